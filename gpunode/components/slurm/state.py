"""The Slurm state of a node, and its GPUs and MIG devices as resources: types, files, cores, both files' texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpunode.base.probe_output import cells, files, number, repeated, timestamp, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.versions import program_version
from gpunode.components.mig.state import Mig, MigGpu
from gpunode.settings.slurm import SlurmSettings
from gpunode.system.service import seconds, starts_at_boot

_RANGES = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)
# The kernel counts none beyond it.
_MOST = 8192


def numbers(ranges: str) -> tuple[int, ...]:
    """Return what the kernel's list means: `0-3,8` is 0, 1, 2, 3, 8; raise ParseError."""
    if not ranges:
        return ()
    if _RANGES.fullmatch(ranges) is None:
        raise ParseError(f"not a list of CPUs: {ranges[:80]!r}")
    found: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not low <= high < _MOST or len(found) > _MOST:
            raise ParseError(f"not a range of CPUs: {part!r}")
        found.extend(range(low, high + 1))
    return tuple(found)


def ranges(values: Iterable[int]) -> str:
    """Return numbers as Slurm writes them: 0, 1, 2, 3, 8 is `0-3,8`."""
    parts: list[list[int]] = []
    for value in sorted(set(values)):
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def cores_of(rows: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each core in Slurm's order, from lscpu's rows CPU,CORE,SOCKET,NODE; raise ParseError.

    Sockets, NUMA nodes within them and cores within these come in the order of their first CPUs, as in hwloc.
    """
    by_core: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        cells = row.split(",")
        if len(cells) != 4 or not cells[0].isdecimal():
            raise ParseError(f"not a row of lscpu's: {row[:80]!r}")
        cpu, core, socket, node = cells
        by_core.setdefault((socket, node, core), []).append(int(cpu))

    def first(*key: str) -> int:
        return min(min(cpus) for known, cpus in by_core.items() if known[: len(key)] == key)

    order = {key: (first(key[0]), first(*key[:2]), min(cpus)) for key, cpus in by_core.items()}
    return tuple(tuple(sorted(by_core[key])) for key in sorted(by_core, key=order.__getitem__))


def near_cores(cores: Sequence[Collection[int]], near: Collection[int]) -> str | None:
    """Return the cores of these CPUs as Slurm's list; None where there is no choice: they are all, or not known."""
    found = [core for core, cpus in enumerate(cores) if set(cpus) & set(near)]
    return ranges(found) if found and len(found) < len(cores) else None


FOLDER = "/etc/slurm"
# What the site's gres.conf includes, and its slurm.conf.
GRES, NODES = f"{FOLDER}/gpunode-gres.conf", f"{FOLDER}/gpunode-nodes.conf"
FILES = (GRES, NODES)
_CAPABILITY = re.compile(r"gpu(\d+)/mig/gi(\d+)(?:/ci(\d+))? (\d+)", re.ASCII)
_INCLUDE = re.compile(r"(/[^:]+):\s*include\s+(\S+)\s*(#.*)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class SlurmGpu(Reading):
    """Hold one GPU: its PCI address, the N of /dev/nvidiaN, its product, and the CPUs near it (none: not told)."""

    pci_address: str
    minor: int
    name: str
    near: tuple[int, ...] = ()


@dataclass(frozen=True)
class Capability(Reading):
    """Hold the device of a MIG instance: the N of /dev/nvidia-caps/nvidia-capN; compute: None for the GPU instance."""

    gpu: int
    instance: int
    compute: int | None
    minor: int


@dataclass(frozen=True)
class SlurmUnit(Reading):
    """Hold a daemon's unit. `stale`: it runs since before gpunode's files were last written."""

    active: bool
    enabled: bool
    stale: bool


@dataclass(frozen=True)
class Slurm(Reading):
    """Hold what a node is to Slurm.

    `version` is None where there is no slurmd. `hardware` is the node's line as `slurmd -C` prints it, `types` what
    GresTypes names, `texts` (path, text) of gpunode's files, `includes` (the file that says so, what it includes).
    `cores` are the CPUs of each core, in the order in which Slurm counts cores. `steps` counts the steps of jobs that
    run. `node` is what slurmctld says of the node; None where it did not answer.
    """

    version: str | None = None
    configured: bool = False
    nvml: bool = False
    hardware: str | None = None
    types: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    includes: tuple[tuple[str, str], ...] = ()
    slurmd: SlurmUnit | None = None
    slurmctld: SlurmUnit | None = None
    gpus: tuple[SlurmGpu, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    cores: tuple[tuple[int, ...], ...] = ()
    steps: int = 0
    node: str | None = None

    @property
    def host_name(self) -> str | None:
        """Return the node's name as slurmd takes it of the host."""
        return self.told_of(self.hardware, "NodeName")

    @property
    def gres(self) -> str | None:
        """Return the devices that slurmctld counts on the node; None where it does not say."""
        return self.told_of(self.node, "Gres")

    @property
    def reason(self) -> str | None:
        """Return why slurmctld gives the node no jobs, as whoever took it out has said."""
        _, found, text = (self.node or "").partition(" Reason=")
        return text.rpartition(" [")[0] or text if found else None

    @staticmethod
    def told_of(line: str | None, key: str) -> str | None:
        """Return the value of a key in one of Slurm's lines."""
        return next((word.partition("=")[2] for word in (line or "").split() if word.startswith(f"{key}=")), None)

    def included_in(self, path: str) -> str | None:
        """Return which of the site's files includes one of gpunode's; None where none does."""
        names = (path, path.rpartition("/")[2])
        return next((file for file, name in self.includes if name in names), None)


def parse_slurm(lines: list[str]) -> Slurm:
    """Parse the probe's lines (gpunode/components/slurm/state.sh)."""
    found = values(lines)
    written = [timestamp(text) for text in repeated(lines, "written")]
    units = dict(_unit(line, max(written, default=0.0)) for line in repeated(lines, "unit"))
    return Slurm(
        version=program_version(found.get("version")),
        configured=found.get("configured") == "yes",
        nvml=found.get("nvml") == "yes",
        hardware=found.get("hardware"),
        types=tuple(_types(repeated(lines, "types"))),
        texts=tuple(files(lines)),
        includes=tuple(
            (match[1], match[2]) for line in repeated(lines, "include") if (match := _INCLUDE.fullmatch(line))
        ),
        slurmd=units.get("slurmd"),
        slurmctld=units.get("slurmctld"),
        gpus=tuple(_gpu(line) for line in repeated(lines, "gpu")),
        capabilities=tuple(_capability(line) for line in repeated(lines, "capability")),
        cores=cores_of(repeated(lines, "cpu")),
        steps=number(found.get("steps", "0")),
        node=found.get("node"),
    )


def _types(lines: Iterable[str]) -> list[str]:
    # A later line of slurm.conf takes the place of an earlier one.
    last = [line.partition("=")[2].partition("#")[0] for line in lines][-1:]
    return [name.strip().lower() for text in last for name in text.split(",") if name.strip()]


def _unit(line: str, written: float) -> tuple[str, SlurmUnit]:
    name, active, enabled, started = cells(line, 4)
    stale = bool(started) and written > seconds(started)
    return name, SlurmUnit(active == "active", starts_at_boot(enabled), stale)


def _gpu(line: str) -> SlurmGpu:
    address, minor, near, name = cells(line, 4)
    return SlurmGpu(address, number(minor), name, numbers(near))


def _capability(line: str) -> Capability:
    match = _CAPABILITY.fullmatch(line)
    if match is None:
        raise ParseError(f"not a capability: {line[:80]!r}")
    return Capability(int(match[1]), int(match[2]), None if match[3] is None else int(match[3]), int(match[4]))


OURS = "# Written by gpunode; changes are overwritten."
# What a product's name says of its maker and line, not of its kind.
_LINES = ("nvidia", "tesla", "geforce", "quadro", "graphics", "device")
_NOT_KINDS = re.compile(r"\d+gb|pcie|sxm\d*|hbm\w*|nvl|generation|ada|blackwell|workstation|server|edition", re.ASCII)
_HARDWARE = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")


class Untold(Exception):
    """Say why nobody can tell which devices a node has."""


@dataclass(frozen=True)
class Device:
    """Hold one resource: its type, its device files, and the cores near it where there is a choice."""

    type: str
    files: tuple[str, ...]
    cores: str | None = None


def type_of(product: str) -> str:
    """Return the type of a product: `NVIDIA H100 80GB HBM3` is h100, `NVIDIA GeForce RTX 4090` rtx_4090."""
    words = [word for word in re.split(r"[\s-]+", product.lower()) if word and word not in _LINES]
    kinds = [word for number, word in enumerate(words) if number == 0 or not _NOT_KINDS.fullmatch(word)]
    # Behind a name such as h100 nothing is of the kind; behind one without digits it goes on.
    end = next((number for number, word in enumerate(kinds) if any(map(str.isdigit, word))), len(kinds) - 1)
    while kinds[end + 1 : end + 2] in (["ti"], ["super"]):
        end += 1
    return re.sub(r"[^a-z0-9_.]", "", "_".join(kinds[: end + 1])) or "gpu"


def devices(settings: SlurmSettings, actual: Slurm, mig: Mig) -> tuple[Device, ...]:
    """Return the node's devices in the order of their PCI addresses, which is Slurm's; raise Untold."""
    if not actual.gpus:
        raise Untold("the driver shows no GPU (/proc/driver/nvidia/gpus): load it first")
    every = sorted(actual.gpus, key=lambda each: each.pci_address)
    return tuple(device for gpu in every for device in _of_gpu(gpu, settings, actual, mig))


def _of_gpu(gpu: SlurmGpu, settings: SlurmSettings, actual: Slurm, mig: Mig) -> Iterator[Device]:
    own = next((each for each in mig.gpus if each.pci_address == gpu.pci_address), None)
    cores = near_cores(actual.cores, gpu.near) if settings.cores else None
    path = f"/dev/nvidia{gpu.minor}"
    if own is None or not own.enabled:
        if any(each.gpu == gpu.minor for each in actual.capabilities):
            raise Untold(f"GPU {gpu.pci_address} has MIG instances, and nvidia-smi does not tell which: {mig.status}")
        yield Device(settings.type or type_of(gpu.name), (path,), cores)
        return
    for profile, instance, compute in _instances(own):
        yield Device(profile, (path, *_capabilities(gpu, actual, instance, compute)), cores)


def _instances(own: MigGpu) -> list[tuple[str, int, int]]:
    if own.instances is None:
        raise Untold(f"the MIG instances of GPU {own.pci_address} cannot be read")
    return sorted(
        ((compute.profile, each.id, compute.id) for each in own.instances for compute in each.compute),
        key=lambda row: row[1:],
    )


def _capabilities(gpu: SlurmGpu, actual: Slurm, instance: int, compute: int) -> Iterator[str]:
    for part in (None, compute):
        wanted = (gpu.minor, instance, part)
        found = [each for each in actual.capabilities if (each.gpu, each.instance, each.compute) == wanted]
        if not found:
            raise Untold(f"the driver shows no device of instance {instance} of GPU {gpu.pci_address}")
        yield f"/dev/nvidia-caps/nvidia-cap{found[0].minor}"


def gres_of(every: Sequence[Device]) -> str:
    """Return what a NodeName line says of devices: `gpu:h100:8`; empty without any."""
    return ",".join(f"gpu:{kind}:{count}" for kind, count in Counter(device.type for device in every).items())


def node_name(settings: SlurmSettings, actual: Slurm) -> str:
    """Return the node's name; raise Untold."""
    name = settings.node_name or actual.host_name
    if name is None:
        raise Untold("`slurmd -C` does not print the node's name: set slurm.node_name")
    return name


def texts(settings: SlurmSettings, actual: Slurm, mig: Mig) -> dict[str, str]:
    """Return path -> text of the files that are to be there; raise Untold."""
    name, every = node_name(settings, actual), devices(settings, actual, mig)
    lines = [f"NodeName={name} AutoDetect=nvml"] if settings.autodetect == "nvml" else list(_lines(name, every))
    found = {GRES: "\n".join([f"{OURS} gres.conf is to have the line: include {GRES}", *lines]) + "\n"}
    if settings.node_line:
        hardware = [
            f"{key}={value}"
            for key in (_HARDWARE if settings.node_hardware else ())
            if (value := actual.told_of(actual.hardware, key))
        ]
        gres = gres_of(every)
        line = " ".join([f"NodeName={name}", *hardware, *([f"Gres={gres}"] if gres else [])])
        head = f"{OURS} slurm.conf is to have the line: include {NODES}"
        found[NODES] = f"{head}\n{line}\n"
    return found


def _lines(name: str, every: Sequence[Device]) -> Iterator[str]:
    """Yield the devices as gres.conf has them; whole GPUs of one type and place that follow each other in one line."""
    if not every:
        yield f"NodeName={name} AutoDetect=off"
    groups: list[tuple[Device, list[int]]] = []
    for device in every:
        minor = int(device.files[0].removeprefix("/dev/nvidia"))
        last, minors = groups[-1] if groups else (None, [])
        # Slurm counts devices by the order of files, and a range has one order alone.
        if last is not None and _is_alike(last, device) and minor > minors[-1]:
            minors.append(minor)
            continue
        groups.append((device, [minor]))
    for device, minors in groups:
        which = ranges(minors)
        several = f"[{which}]" if len(minors) > 1 else which
        single = len(device.files) == 1
        files = f"File=/dev/nvidia{several}" if single else f"MultipleFiles={','.join(device.files)}"
        cores = f" Cores={device.cores}" if device.cores else ""
        yield f"NodeName={name} AutoDetect=off Name=gpu Type={device.type} {files}{cores}"


def _is_alike(one: Device, other: Device) -> bool:
    return len(one.files) == len(other.files) == 1 and (one.type, one.cores) == (other.type, other.cores)
