"""Put the SIMULATED GPUs at the kernel's boundary: sysfs PCI devices, /proc/driver and /sys/module.

Runs once at boot, before ordinary services. Run again, it only brings the PCI devices up to date.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from . import kmod, majors, module
from .machine import HardwareError, Machine, SimulatedGpu

_PCI = "/sys/bus/pci/devices"
_RUN = "/run/gpunode-lab"


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
    for address in switches:
        device = folder / address
        device.mkdir(exist_ok=True)
        for name, content in {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}.items():
            (device / name).write_text(content + "\n")


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
        # Start, end and flags of each region: registers (16 MiB) and memory (128 GiB). NVIDIA's programs read the file.
        "resource": "\n".join([*_regions(gpu.index), *["0x0000000000000000 " * 2 + "0x0000000000000000"] * 11]),
        "uevent": f"{uevent}\nPCI_SLOT_NAME={gpu.sysfs_address}",
    }


def _regions(index: int) -> tuple[str, str]:
    registers, memory = 0xA0000000 + (index << 24), (index + 1) << 38
    return (
        f"0x{registers:016x} 0x{registers + (1 << 24) - 1:016x} 0x0000000000040200",
        f"0x{memory:016x} 0x{memory + (1 << 37) - 1:016x} 0x000000000014220c",
    )


def _mounted(machine: Machine, target: str) -> bool:
    lines = machine.path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == target for line in lines)


def _mount(machine: Machine) -> None:
    run = Path(_RUN)
    (run / "proc-driver").mkdir(parents=True, exist_ok=True)
    majors.prepare(machine)
    bound = (
        (run / "pci-devices", _PCI),
        (run / "proc-driver", "/proc/driver"),
        (Path(majors.FILE), majors.TARGET),
    )
    for source, target in bound:
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
