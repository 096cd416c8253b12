"""Put the SIMULATED GPUs at the kernel's boundary: sysfs PCI devices, /proc/driver and /sys/module.

Runs once at boot, before ordinary services. Run again, it only brings the PCI devices up to date.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from . import kmod, module
from .device import MAJORS
from .machine import HardwareError, Machine, SimulatedGpu

_PCI = "/sys/bus/pci/devices"
_RUN = "/run/gpunode-lab"
# A line for each range of memory that the device could have.
_NO_MEMORY = "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13)


def main() -> int:
    """Set up the boundary of this node and load the module from disk, as udev would; return the exit status."""
    machine = Machine()
    try:
        if module.real_driver_loaded(machine):
            raise HardwareError("a real NVIDIA driver is loaded here; the simulation keeps out")
        gpus = machine.gpus()
        publish_pci(machine, gpus)
        _mount(machine)
    except (HardwareError, OSError, subprocess.CalledProcessError) as error:
        machine.log("hardware", f"failed: {error}")
        print(f"SIMULATED hardware: {error}", file=sys.stderr)
        return 1
    log = machine.path("/var/log/gpunode-lab.log")
    machine.log("hardware", f"{len(gpus)} GPU(s): {', '.join(gpu.model.name for gpu in gpus) or 'none'}")
    log.chmod(0o666)
    _load_as_udev_would(machine, gpus)
    return 0


def pci_alone() -> int:
    """Put the GPUs on the PCI bus of a machine that loads real modules into a kernel of its own; return the status.

    Those modules are the lab's too, and say SIMULATED: the file in which the simulated kmod keeps its modules makes the
    lab's programs take the loaded driver for one of the lab's.
    """
    machine = Machine()
    try:
        gpus = machine.gpus()
        publish_pci(machine, gpus)
        if not _mounted(machine, _PCI):
            subprocess.run(["mount", "--bind", f"{_RUN}/pci-devices", _PCI], check=True)
        machine.write_json(module.STATE, {})
    except (HardwareError, OSError, subprocess.CalledProcessError) as error:
        machine.log("hardware", f"failed: {error}")
        print(f"SIMULATED hardware: {error}", file=sys.stderr)
        return 1
    machine.log("hardware", f"{len(gpus)} GPU(s) on the PCI bus: {', '.join(gpu.model.name for gpu in gpus) or 'none'}")
    return 0


def publish_pci(machine: Machine, gpus: tuple[SimulatedGpu, ...]) -> None:
    """Write one sysfs folder per GPU and NVSwitch into the folder that is bound over /sys/bus/pci/devices."""
    folder = machine.path(f"{_RUN}/pci-devices")
    switches = [f"0000:{bus.lower()}:00.0" for bus in (gpus[0].model.nvswitches if gpus else ())]
    wanted = {gpu.sysfs_address for gpu in gpus} | set(switches)
    folder.mkdir(parents=True, exist_ok=True)
    if not _mounted(machine, _PCI):
        # The real devices stay visible; their links are relative to this very path.
        for device in machine.path(_PCI).glob("*"):
            link = folder / device.name
            if device.is_symlink() and not link.is_symlink():
                link.symlink_to(device.readlink())
    for stale in folder.iterdir():
        if not stale.is_symlink() and stale.name not in wanted:
            shutil.rmtree(stale)
    for number, gpu in enumerate(gpus):
        device = folder / gpu.sysfs_address
        device.mkdir(exist_ok=True)
        for name, content in _pci_files(gpu, numa_node=number * 2 // len(gpus)).items():
            (device / name).write_text(content + "\n")
        (device / "config").write_bytes(_pci_config(gpu.model.device_id))
    for address in switches:
        device = folder / address
        device.mkdir(exist_ok=True)
        files = {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000", "numa_node": "0", "resource": _NO_MEMORY}
        for name, content in files.items():
            (device / name).write_text(content + "\n")
        (device / "config").write_bytes(_pci_config("22a3"))


def _pci_files(gpu: SimulatedGpu, numa_node: int) -> dict[str, str]:
    ids = f"10DE:{gpu.model.device_id.upper()}"
    uevent = f"PCI_CLASS=30200\nPCI_ID={ids}\nPCI_SUBSYS_ID=10DE:{gpu.model.subsystem_id.upper()}"
    return {
        "vendor": "0x10de",
        "device": f"0x{gpu.model.device_id}",
        "class": "0x030200",
        "subsystem_vendor": "0x10de",
        "subsystem_device": f"0x{gpu.model.subsystem_id}",
        "numa_node": str(numa_node),
        "resource": _NO_MEMORY,
        "uevent": f"{uevent}\nPCI_SLOT_NAME={gpu.sysfs_address}",
    }


def _pci_config(device_id: str) -> bytes:
    """Return a device's configuration space: its ids, and a list of one capability, that of PCI Express."""
    space = bytearray(4096)
    space[0:4] = bytes.fromhex("de10") + bytes.fromhex(device_id)[::-1]
    # The status says that there is a list, and the pointer where it begins.
    space[0x06], space[0x34] = 0x10, 0x40
    space[0x40:0x42] = bytes.fromhex("1000")
    return bytes(space)


def _mounted(machine: Machine, target: str) -> bool:
    lines = machine.path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == target for line in lines)


def _mount(machine: Machine) -> None:
    run = Path(_RUN)
    (run / "proc-driver").mkdir(parents=True, exist_ok=True)
    if not _mounted(machine, "/proc/devices"):
        machine.write(MAJORS, machine.read("/proc/devices"))
    sources = {_PCI: run / "pci-devices", "/proc/driver": run / "proc-driver", "/proc/devices": Path(MAJORS)}
    for target, source in sources.items():
        if not _mounted(machine, target):
            subprocess.run(["mount", "--bind", str(source), target], check=True)
    if not _mounted(machine, "/sys/module"):
        layers = run / "sys-module"
        for name in ("upper", "work"):
            (layers / name).mkdir(parents=True, exist_ok=True)
        options = f"lowerdir=/sys/module,upperdir={layers}/upper,workdir={layers}/work"
        subprocess.run(["mount", "-t", "overlay", "gpunode-lab", "-o", options, "/sys/module"], check=True)


def _load_as_udev_would(machine: Machine, gpus: tuple[SimulatedGpu, ...]) -> None:
    if not gpus or module.module_file(machine) is None or kmod.blacklisted(machine, "nvidia"):
        return
    try:
        kmod.insert(machine, "nvidia")
    except module.ModuleError as error:
        # udev's own modprobe fails as quietly: the boot goes on without a driver.
        machine.log("hardware", f"module not loaded at boot: {error}")
