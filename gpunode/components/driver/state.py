"""The NVIDIA driver on a node: packages, module on disk, loaded module, user-space library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from gpunode.base.comparison import finding_message
from gpunode.base.probe_output import repeated, timestamp, values
from gpunode.base.reading import Reading
from gpunode.packages.driver_packages.installed import pinned_by_apt
from gpunode.packages.driver_packages.names import belongs, brings_kernels
from gpunode.packages.families import dnf, dnf5
from gpunode.system.boot import Boot
from gpunode.system.service import is_masked, starts_at_boot

driver_finding = partial(finding_message, "driver")


_VERSION = re.compile(r"\b(\d{3}\.\d{2,3}(?:\.\d{2})?)\b")


@dataclass(frozen=True)
class Service(Reading):
    """Hold how a service of the driver's is: whether it runs, starts at boot, or is masked.

    ended: the last lines of its journal, where it failed
    """

    name: str
    active: bool
    enabled: bool
    ended: str | None = None
    masked: bool = False


@dataclass(frozen=True)
class DriverState(Reading):
    """Hold every place where a driver version shows; versions are upstream strings, None where there is none.

    `uvm_loaded`: nvidia_uvm is loaded beside nvidia; CUDA needs it, nvidia-smi does not. `uvm_without_device`: it is,
    and /dev/nvidia-uvm is no device: a module does not make it, nvidia-modprobe does, which udev or CUDA starts.
    `peermem`: which module lends the GPUs' memory to RDMA adapters, nvidia_peermem or the former nv_peer_mem; `rdma`:
    ib_core is loaded, without which neither does.
    `runfile`: NVIDIA's own installer (the .run file) was here and has not been undone. `dkms`: DKMS has the sources
    of this module, by the name that this installer gives them; what is left of another version does not count.
    `held` are names of packages that apt keeps as they are, `kernels` names of packages that bring new kernels.
    `pinned` are (name, version) of what gpunode keeps as it is by apt or dnf, whether it is still there or not.
    `unproven`: the last change of packages has not been followed by a load of its module yet.
    `nouveau_bound`: nouveau has GPUs, and gives them up at a boot alone; loaded without any, it is in nobody's way.
    `blockers` say what keeps nvidia from GPUs: FILE:LINE:TEXT of modprobe's configuration, or which driver has which
    GPU (nouveau apart).
    `services` are those of fabric manager and the persistence daemon whose units are installed.
    `waits_for_kernel`: only this kernel, which boots next, has a module, and it is its version that is told.
    `booted_for`: what gpunode last booted the node for, of which no run has seen yet whether it helped.
    `root`: where the driver's files stand; below another one than / nothing is said of a module on disk. `root_smi` is
    the path of nvidia-smi there, `root_folder` says whether the folder is there at all, and `root_devices` whether it
    has devices in a dev of its own, as a driver container's has.
    `parameters` are (name without NVreg_, value) that the loaded module goes by, where it tells.
    `cuda_library`: the file that the dynamic loader loads as libcuda.so.1; None: there is none; empty: an older
    reading, which does not have it. `loader_unknown`: the loader's cache could not be read. `session_libraries` are
    (file, library): what the LD_LIBRARY_PATH of that file puts in front, in login shells.
    `module_changed`: when the module on disk came, in Unix seconds, where another one is loaded.
    """

    packages: tuple[tuple[str, str], ...]
    module_version: str | None
    module_license: str | None
    loaded_version: str | None
    loaded_flavour: str | None
    library_version: str | None
    uvm_loaded: bool = False
    uvm_without_device: bool = False
    runfile: bool = False
    held: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    unproven: bool = False
    nouveau_bound: bool = False
    waits_for_kernel: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    dkms: bool = False
    booted_for: str | None = None
    peermem: str | None = None
    rdma: bool = False
    root: str = "/"
    root_folder: bool = False
    root_smi: str | None = None
    root_devices: bool = False
    pinned: tuple[tuple[str, str], ...] = ()
    cuda_library: str | None = ""
    loader_unknown: bool = False
    session_libraries: tuple[tuple[str, str], ...] = ()
    module_changed: float | None = None
    blockers: tuple[str, ...] = ()

    @property
    def module_flavour(self) -> str | None:
        """Return `open` or `proprietary` of the module on disk, by its licence (drivers.yaml, read_back)."""
        return {"Dual MIT/GPL": "open", "NVIDIA": "proprietary"}.get(self.module_license or "")

    @property
    def ways(self) -> tuple[str, ...]:
        """Return by which ways the driver came that is there: `runfile`, `packages`, both, or none."""
        return tuple(way for way, actual in (("runfile", self.runfile), ("packages", self.packages)) if actual)

    def service(self, name: str) -> Service | None:
        """Return a service by its unit's name without the ending, None where there is no such unit."""
        return next((service for service in self.services if service.name == name), None)

    @property
    def is_cuda_shadowed(self) -> bool:
        """Say whether the dynamic loader takes a libcuda from a folder that no driver's installer fills."""
        return not self.is_elsewhere and not (self.cuda_library or "/lib").startswith(("/usr/lib", "/lib"))

    @property
    def branch(self) -> str | None:
        """Return the branch of the version that counts: loaded, else on disk."""
        version = self.loaded_version or self.module_version
        return version.split(".")[0] if version else None

    @property
    def is_elsewhere(self) -> bool:
        """Say whether the driver stands below a root of its own, by which no boot of the node brings another one."""
        return self.root != "/"

    @property
    def reboot_pending(self) -> bool:
        """Say whether another module runs than the one on disk (nouveau, too): right after a boot, wrong until then."""
        if self.waits_for_kernel:
            return True
        if self.loaded_version is None and self.module_version is not None and self.nouveau_bound:
            return True
        if self.loaded_version is None or self.module_version is None:
            return False
        flavours = {self.loaded_flavour, self.module_flavour} - {None}
        return self.loaded_version != self.module_version or len(flavours) > 1

    @property
    def runs(self) -> str:
        """Return what has the GPUs now, for people."""
        if self.loaded_version is not None:
            return f"{self.loaded_version} ({self.loaded_flavour or 'flavour unknown'})"
        return "nouveau" if self.nouveau_bound else "none"

    @property
    def to_come(self) -> str:
        """Return what the next boot is to load, for people."""
        if self.waits_for_kernel:
            return f"{self.module_version} with kernel {self.waits_for_kernel}"
        return f"{self.module_version} ({self.module_flavour or 'flavour unknown'})"

    def is_outlived(self, boot: Boot) -> bool:
        """Say whether this boot loaded another module than the one on disk, which came before: so would one more."""
        if self.module_changed is None or boot.started is None:
            return False
        kernel = boot.next_kernel
        return max(self.module_changed, (kernel and kernel.initramfs_written) or 0.0) < boot.started

    def other_parameters(self, desired: Mapping[str, str]) -> tuple[str, ...]:
        """Return NAME=VALUE of what the loaded module goes by where another value is asked for.

        What the module does not tell is not judged: a text that it prints nowhere, or one that is no longer asked for.
        """
        actual = dict(self.parameters)
        told = ((name, actual.get(name.removeprefix("NVreg_"))) for name in desired)
        return tuple(f"{name}={value}" for name, value in told if value is not None and not _same(value, desired[name]))

    def with_next_kernel(self, boot: Boot) -> DriverState:
        """Return this state with the module of the kernel that boots next, where the running kernel has none on disk.

        So it is where a module could be built for the newer of two kernels alone: it is there, and a boot away.
        """
        kernel = boot.next_kernel
        if self.is_elsewhere or self.module_version is not None or kernel is None or kernel.release == boot.running:
            return self
        if kernel.module_version is None:
            return self
        return replace(self, module_version=kernel.module_version, waits_for_kernel=kernel.release)


def _same(loaded: str, desired: str) -> bool:
    """Say whether two values of a parameter are one: numbers as the kernel prints them (unsigned), texts in quotes."""
    try:
        return _number(loaded) % 2**32 == _number(desired) % 2**32
    except ValueError:
        return loaded.strip('"') == desired.strip('"')


def _number(text: str) -> int:
    """Return a number as the kernel reads it: 0660 is octal."""
    return int(text, 8) if re.fullmatch(r"-?0[0-7]+", text) else int(text, 0)


def _flavour(proc_version: str | None) -> str | None:
    if not proc_version:
        return None
    return "open" if "Open Kernel Module" in proc_version else "proprietary"


def module_fields(lines: list[str]) -> dict[str, str]:
    """Return field -> value of what modinfo prints of a module; the first one counts, an empty one is none."""
    found: dict[str, str] = {}
    for line in lines:
        field, _, value = line.partition(":")
        if value.strip():
            found.setdefault(field, value.strip())
    return found


def _pinned(lines: list[str]) -> dict[str, str]:
    text = {key: "\n".join(repeated(lines, key)) for key in ("preference", "lock", "versionlock")}
    return {**pinned_by_apt(text["preference"]), **dnf.pinned(text["lock"]), **dnf5.pinned(text["versionlock"])}


def parse_driver(lines: list[str]) -> DriverState:
    """Parse the driver probe's lines; a module is loaded if /sys/module/nvidia/version or /proc tells its version."""
    found = values(lines)
    proc_version = found.get("proc")
    loaded = found.get("loaded")
    if loaded is None and proc_version and (match := _VERSION.search(proc_version)):
        loaded = match[1]
    libraries = {path.rpartition("/")[2].partition(".")[0]: path for path in repeated(lines, "library")}
    library = libraries.get("libnvidia-ml")
    library_version = library.rpartition(".so.")[2] if library else None
    session = (line.partition(" ") for line in repeated(lines, "session"))
    module = module_fields(repeated(lines, "modinfo"))
    module_version = module.get("version")
    versions = {module_version, library_version} - {None}
    sources = set(repeated(lines, "dkms"))
    packages, kernels = [], []
    for line in repeated(lines, "package"):
        name, _, version = line.partition(" ")
        if belongs(name):
            packages.append((name, version))
        elif brings_kernels(name):
            kernels.append(name)
    parameters = (line.partition(" ") for line in repeated(lines, "parameter"))
    services, ended = [], dict(line.partition(" ")[::2] for line in repeated(lines, "ended"))
    for line in repeated(lines, "service"):
        name, _, states = line.partition(" ")
        active, _, enabled = states.partition(" ")
        runs, boots = active in ("active", "activating", "reloading"), starts_at_boot(enabled)
        words = ended.get(name, "no line") if active == "failed" else None
        services.append(Service(name, runs, boots, words, is_masked(enabled)))
    return DriverState(
        packages=tuple(sorted(packages)),
        module_version=module_version,
        module_license=module.get("license"),
        loaded_version=loaded,
        loaded_flavour=_flavour(proc_version),
        library_version=library_version,
        uvm_loaded=found.get("uvm") == "loaded",
        uvm_without_device=found.get("uvm_device") == "missing",
        runfile=found.get("runfile") == "yes",
        held=tuple(sorted(set(repeated(lines, "held")))),
        kernels=tuple(sorted(kernels)),
        services=tuple(services),
        unproven=found.get("unproven") == "yes",
        nouveau_bound=found.get("nouveau") == "yes",
        parameters=tuple((name, value) for name, _, value in parameters),
        # Where there is no driver yet, or any more, whatever DKMS has.
        dkms=bool(sources & versions if versions else sources),
        booted_for=found.get("attempt", "").partition(" ")[0] or None,
        peermem=found.get("peermem"),
        rdma=found.get("rdma") == "loaded",
        root=found.get("root", "/"),
        root_folder=found.get("root_folder") == "yes",
        root_smi=found.get("root_smi"),
        root_devices=found.get("root_devices") == "yes",
        pinned=tuple(sorted(_pinned(lines).items())),
        cuda_library=libraries.get("libcuda"),
        loader_unknown=found.get("loader") == "unknown",
        session_libraries=tuple((origin, file) for origin, _, file in session),
        module_changed=timestamp(found["changed"]) if found.get("changed", "").isdecimal() else None,
        blockers=tuple(repeated(lines, "blocker")),
    )
