"""The SIMULATED kernel module: a text file on disk, and what the kernel shows when it is loaded."""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from .capabilities import DEVICES
from .device import make_node
from .machine import Machine, SimulatedGpu

STATE = "/run/gpunode-lab/module.json"
PERSISTENT_STATE = "/var/lib/gpunode-lab/gpus.json"
RUNTIME_STATE = "/run/gpunode-lab/gpus.json"
_DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
# In depmod's order: what DKMS built comes before what NVIDIA's installer built by itself.
_FOLDERS = ("updates/dkms", "kernel/drivers/video")
_UVM_MAJOR = 511
_GPU_MAJOR = 195


class ModuleError(Exception):
    """Carry the reason in the kernel's or kmod's own words."""


@dataclass(frozen=True)
class ModuleFile:
    """Hold the fixture module on disk."""

    path: Path
    version: str
    license: str
    flavour: str
    loads: bool = True


def module_file(machine: Machine, name: str = "nvidia", kernel: str | None = None) -> ModuleFile | None:
    """Return the module on disk for a kernel (the running one by default), or None."""
    path = _path(machine, name, kernel)
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    version, license_name, flavour = (fields.get(key, "") for key in ("version", "license", "flavour"))
    return ModuleFile(path, version, license_name, flavour, fields.get("loads") != "no")


def is_real(machine: Machine, name: str, kernel: str | None = None) -> bool:
    """Say whether the module on disk is one that a compiler made, about which the real modinfo can be asked."""
    try:
        return _path(machine, name, kernel).read_bytes()[:4] == b"\x7fELF"
    except OSError:
        return False


def _path(machine: Machine, name: str, kernel: str | None) -> Path:
    root, file = machine.path(f"/lib/modules/{kernel or machine.kernel}"), f"{name.replace('_', '-')}.ko"
    places = [root / folder / file for folder in _FOLDERS]
    return next((path for path in places if path.exists()), places[0])


def loaded_modules(machine: Machine) -> tuple[str, ...]:
    """Return the simulated modules that are loaded, in the order of loading."""
    return tuple(machine.read_json(STATE).get("modules", ()))


def loaded_version(machine: Machine) -> str | None:
    """Return what /sys/module/nvidia/version says, or None if no nvidia module is loaded."""
    with contextlib.suppress(OSError):
        return machine.path("/sys/module/nvidia/version").read_text().strip()
    return None


def real_driver_loaded(machine: Machine) -> bool:
    """Say whether a driver is loaded that this simulation did not load: then it must keep its hands off."""
    return loaded_version(machine) is not None and not machine.path(STATE).exists()


def version_text(version: str, flavour: str) -> str:
    """Return /proc/driver/nvidia/version as the driver of a flavour writes it."""
    build = "Release Build  (gpunode-lab@SIMULATED)  Wed Sep 17 21:53:36 UTC 2025"
    if flavour == "open":
        first = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  {build}"
    else:
        first = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed Sep 17 21:53:36 UTC 2025"
    return f"{first}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n"


def load(machine: Machine, name: str) -> None:
    """Load a simulated module and those it needs.

    Raises ModuleError with the reason as the kernel gives it: no such device, or a file that is not there.
    """
    name = _kernel_name(name)
    if real_driver_loaded(machine):
        raise ModuleError(f"could not insert '{name}': a real NVIDIA driver is loaded; the simulation keeps out")
    if name in loaded_modules(machine):
        return
    found = _file_to_load(machine, name)
    if found is None:
        raise LookupError(name)
    if name != "nvidia":
        load(machine, "nvidia")
        module = machine.read_json(STATE)
        if found.version != module["version"]:
            # The kernel refuses a module that was built against another nvidia.ko: its symbols disagree.
            raise ModuleError(f"could not insert '{name}': Unknown symbol in module, or unknown parameter (see dmesg)")
    else:
        module = {"version": found.version, "flavour": found.flavour, "modules": []}
        _require_device(machine, found)
    machine.path(f"/sys/module/{name}").mkdir(parents=True, exist_ok=True)
    machine.write_json(STATE, {**module, "modules": [*module["modules"], name]})
    _publish(machine, name, found)
    machine.log("module", f"loaded {name} {found.version} ({found.flavour})")


def _kernel_name(name: str) -> str:
    """Return what the kernel calls a module: Debian renames the files alone."""
    return re.sub(r"^nvidia_current(_open)?", "nvidia", name.replace("-", "_"))


def _file_to_load(machine: Machine, name: str) -> ModuleFile | None:
    """Return the file that modprobe finds under a name, which Debian's `install` lines lead to another one."""
    rest = name.removeprefix("nvidia")
    names = (name, f"nvidia_current{rest}", f"nvidia_current_open{rest}")
    return next((found for each in names if (found := module_file(machine, each)) is not None), None)


def _require_device(machine: Machine, found: ModuleFile) -> None:
    if not found.loads:
        # A module that was built against other symbols, say.
        raise ModuleError("could not insert 'nvidia': Invalid argument")
    branch = int(found.version.split(".")[0])
    for gpu in machine.gpus():
        if found.flavour in gpu.model.modules and branch <= (gpu.model.last_branch or branch):
            return
    raise ModuleError("could not insert 'nvidia': No such device")


def _publish(machine: Machine, name: str, found: ModuleFile) -> None:
    folder = machine.path(f"/sys/module/{name}")
    for file, content in (("version", found.version), ("refcnt", "0"), ("initstate", "live")):
        (folder / file).write_text(content + "\n")
    if name == "nvidia_uvm":
        make_node(machine, "nvidia-uvm", _UVM_MAJOR, 0)
        make_node(machine, "nvidia-uvm-tools", _UVM_MAJOR, 1)
    if name == "nvidia":
        proc = machine.path("/proc/driver/nvidia")
        proc.mkdir(parents=True, exist_ok=True)
        (proc / "version").write_text(version_text(found.version, found.flavour))
        machine.path(RUNTIME_STATE).unlink(missing_ok=True)
        for gpu in machine.gpus():
            _information(proc, gpu)
            make_node(machine, f"nvidia{gpu.index}", _GPU_MAJOR, gpu.index)
        make_node(machine, "nvidiactl", _GPU_MAJOR, 255)
    else:
        (machine.path("/sys/module/nvidia/refcnt")).write_text(f"{len(loaded_modules(machine)) - 1}\n")


def _information(proc: Path, gpu: SimulatedGpu) -> None:
    folder = proc / "gpus" / gpu.sysfs_address
    folder.mkdir(parents=True, exist_ok=True)
    text = f"Model: \t\t {gpu.model.name}\nGPU UUID: \t {gpu.uuid}\nBus Location: \t {gpu.sysfs_address}\n"
    (folder / "information").write_text(f"{text}Device Minor: \t {gpu.index}\n")


def unload(machine: Machine, name: str) -> None:
    """Unload a simulated module.

    Raises ModuleError if it is not loaded, another one stands on it, or a process has its device open.
    """
    name = name.replace("-", "_")
    modules = list(loaded_modules(machine))
    if name not in modules:
        raise ModuleError(f"Module {name} is not currently loaded")
    others = [other for other in modules if other != name]
    if name == "nvidia" and others:
        raise ModuleError(f"Module nvidia is in use by: {' '.join(others)}")
    if _open_devices(machine, name):
        raise ModuleError(f"Module {name} is in use")
    shutil.rmtree(machine.path(f"/sys/module/{name}"), ignore_errors=True)
    if name == "nvidia":
        shutil.rmtree(machine.path("/proc/driver/nvidia"), ignore_errors=True)
        for pattern in _DEVICES:
            for node in machine.path("/dev").glob(pattern):
                node.unlink()
        shutil.rmtree(machine.path(DEVICES), ignore_errors=True)
        machine.path(STATE).unlink(missing_ok=True)
        machine.path(RUNTIME_STATE).unlink(missing_ok=True)
    else:
        machine.write_json(STATE, {**machine.read_json(STATE), "modules": others})
        machine.path("/sys/module/nvidia/refcnt").write_text(f"{len(others) - 1}\n")
        if name == "nvidia_uvm":
            for node in machine.path("/dev").glob("nvidia-uvm*"):
                node.unlink()
    machine.log("module", f"unloaded {name}")


def _open_devices(machine: Machine, name: str) -> bool:
    prefix = "/dev/nvidia-uvm" if name == "nvidia_uvm" else "/dev/nvidia"
    for descriptor in machine.path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()).startswith(prefix):
                return True
    return False
