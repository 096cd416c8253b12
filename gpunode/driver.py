"""The NVIDIA driver on a node: packages, module on disk, loaded module, user-space library."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.probe_output import repeated, values
from gpunode.reading import Reading

_VERSION = re.compile(r"\b(\d{3}\.\d{2,3}(?:\.\d{2})?)\b")


@dataclass(frozen=True)
class DriverState(Reading):
    """Hold every place where a driver version shows; versions are upstream strings, None where there is none.

    `uvm_loaded`: nvidia_uvm is loaded beside nvidia; CUDA needs it, nvidia-smi does not.
    """

    packages: tuple[tuple[str, str], ...]
    module_version: str | None
    module_license: str | None
    loaded_version: str | None
    loaded_flavour: str | None
    library_version: str | None
    uvm_loaded: bool = False

    @property
    def module_flavour(self) -> str | None:
        """Return `open` or `proprietary` of the module on disk, by its licence (drivers.yaml, read_back)."""
        return {"Dual MIT/GPL": "open", "NVIDIA": "proprietary"}.get(self.module_license or "")

    @property
    def branch(self) -> str | None:
        """Return the branch of the version that counts: loaded, else on disk."""
        version = self.loaded_version or self.module_version
        return version.split(".")[0] if version else None

    @property
    def reboot_pending(self) -> bool:
        """Say whether a module runs that is not the one on disk: right after the next boot, wrong until then."""
        if self.loaded_version is None or self.module_version is None:
            return False
        flavours = {self.loaded_flavour, self.module_flavour} - {None}
        return self.loaded_version != self.module_version or len(flavours) > 1


def _flavour(proc_version: str | None) -> str | None:
    if not proc_version:
        return None
    return "open" if "Open Kernel Module" in proc_version else "proprietary"


def parse_driver(lines: list[str]) -> DriverState:
    """Parse the driver probe's lines; a module is loaded if /sys/module/nvidia/version or /proc tells its version."""
    found = values(lines)
    proc_version = found.get("proc")
    loaded = found.get("loaded")
    if loaded is None and proc_version and (match := _VERSION.search(proc_version)):
        loaded = match[1]
    library = found.get("library")
    packages = []
    for line in repeated(lines, "package"):
        name, _, version = line.partition(" ")
        packages.append((name, version))
    return DriverState(
        packages=tuple(sorted(packages)),
        module_version=found.get("module_version"),
        module_license=found.get("module_license"),
        loaded_version=loaded,
        loaded_flavour=_flavour(proc_version),
        library_version=library.rpartition(".so.")[2] if library else None,
        uvm_loaded=found.get("uvm") == "loaded",
    )
