"""Copy the simulated-hardware programs and units into an unpacked base image."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
from pathlib import Path

from gpunode.lab.errors import LabError
from gpunode.lab.hardware.compiled import compiled

_HERE = Path(__file__).parent
_LIBRARY = "usr/lib/gpunode-lab"
_UNIT = "gpunode-lab-hardware.service"
_PCI_UNIT = "gpunode-lab-pci.service"
_LAUNCHER = """#!/usr/bin/python3 -ISB
# SIMULATED hardware of gpunode's lab.
import sys

sys.path.insert(0, "/usr/lib/gpunode-lab")
from simulated.{module} import {function}

sys.exit({function}({arguments}))
"""
_LAUNCHERS = {
    f"{_LIBRARY}/kmod": ("kmod", "main", "sys.argv[1:]"),
    f"{_LIBRARY}/boot": ("boundary", "main", ""),
    f"{_LIBRARY}/nvml": ("nvml", "main", "sys.argv[1:]"),
}
# A shell starts in a tenth of Python's time, and most modules that a node asks for are not NVIDIA's. kmod goes by the
# name that it is started by: hence a folder of links.
_WRAPPER = f"""#!/bin/sh
# SIMULATED hardware of gpunode's lab: nvidia* is simulated, all else goes to the real kmod.
case "$*" in
    *nvidia*) exec /usr/bin/python3 -ISB /{_LIBRARY}/kmod "${{0##*/}}" "$@" ;;
    *) exec "/{_LIBRARY}/real/${{0##*/}}" "$@" ;;
esac
"""
_FOR_TESTS = {"usr/sbin/gpunode-lab-fault": "fault", "usr/sbin/gpunode-lab-hold": "hold"}
_PCI = f"{_LIBRARY}/pci"
_DIVERTED = ("modprobe", "rmmod", "modinfo")


class HardwareInstallError(LabError):
    """Say why the simulated hardware cannot go into an image."""


def _sources() -> list[Path]:
    """Return the programs that go into a node, data included."""
    folder = _HERE / "simulated"
    return sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".json"))


def hardware_digest() -> str:
    """Return a SHA-256 (hex) over everything that `install_hardware` puts into an image."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in (_HERE / "compiled.py", *_sources(), _HERE / _UNIT, _HERE / _PCI_UNIT):
        digest.update(str(path.relative_to(_HERE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def install_hardware(rootfs: Path) -> None:
    """Copy programs and units into an unpacked base image, enable the unit, put wrappers before kmod's programs.

    Safe to run again on the same image. Raises HardwareInstallError if the image lacks kmod or Python.
    """
    for needed in ("usr/bin/kmod", "usr/bin/python3"):
        if not (rootfs / needed).exists() and not (rootfs / needed).is_symlink():
            raise HardwareInstallError(f"{rootfs} has no /{needed}: install the packages kmod and python3 in the image")
    _copy_programs(rootfs)
    for program in _DIVERTED:
        _divert(rootfs, program)
        _program(rootfs / "usr/sbin" / program, _WRAPPER)
        real = rootfs / _LIBRARY / "real" / program
        real.parent.mkdir(exist_ok=True)
        real.symlink_to("/usr/bin/kmod")
    for path, launched in _LAUNCHERS.items():
        _launcher(rootfs / path, *launched)
    _enable(rootfs, _UNIT)


def install_pci(rootfs: Path) -> None:
    """Give a machine that has a kernel of its own GPUs on the PCI bus, and nothing else that is simulated."""
    _copy_programs(rootfs)
    _launcher(rootfs / _PCI, "boundary", "pci_alone", "")
    _enable(rootfs, _PCI_UNIT)


def _copy_programs(rootfs: Path) -> None:
    library = rootfs / _LIBRARY
    shutil.rmtree(library, ignore_errors=True)
    for source in _sources():
        target = library / source.relative_to(_HERE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        if source.suffix == ".py":
            _compile(source, target)
    for path, module in _FOR_TESTS.items():
        _launcher(rootfs / path, module, "main", "sys.argv[1:]")


def _compile(source: Path, target: Path) -> None:
    """Put a module's compiled form where Python looks for it."""
    cached = target.parent / "__pycache__" / Path(importlib.util.cache_from_source(target.name)).name
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(compiled(f"/{_LIBRARY}/{source.relative_to(_HERE).as_posix()}", source.read_bytes()))


def _launcher(target: Path, module: str, function: str, arguments: str) -> None:
    _program(target, _LAUNCHER.format(module=module, function=function, arguments=arguments))


def _program(target: Path, text: str) -> None:
    # kmod's programs are links to /usr/bin/kmod: writing through one would overwrite kmod itself.
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(0o755)


def _divert(rootfs: Path, program: str) -> None:
    """Make dpkg leave the wrapper alone when kmod itself is upgraded."""
    listed = _owned_path(rootfs, program)
    command = ["dpkg-divert", "--root", str(rootfs), "--local", "--no-rename", "--divert", f"{listed}.kmod", listed]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise HardwareInstallError(f"cannot divert {listed} in {rootfs}: {result.stderr.strip()}")


def _owned_path(rootfs: Path, program: str) -> str:
    """Return the program's path as kmod's file list has it: /sbin or /usr/sbin, by distribution."""
    paths = {f"/sbin/{program}", f"/usr/sbin/{program}"}
    for name in ("kmod.list", "kmod:amd64.list"):
        listing = rootfs / "var/lib/dpkg/info" / name
        if listing.exists():
            for line in listing.read_text().splitlines():
                if line in paths:
                    return line
    return f"/sbin/{program}"


def _enable(rootfs: Path, unit: str) -> None:
    units = rootfs / "usr/lib/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_HERE / unit, units / unit)
    wants = rootfs / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    link = wants / unit
    link.unlink(missing_ok=True)
    link.symlink_to(f"/usr/lib/systemd/system/{unit}")
