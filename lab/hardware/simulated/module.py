"""The SIMULATED kernel module: a text file on disk, and what the kernel shows when it is loaded."""

from __future__ import annotations

from .capabilities import DEVICES, MAJOR, write_minors
from .device import make_node, write_majors
from .holders import open_devices
from .machine import Machine, SimulatedGpu

STATE = "/run/gpunode-lab/module.json"
PERSISTENT_STATE = "/var/lib/gpunode-lab/gpus.json"
RUNTIME_STATE = "/run/gpunode-lab/gpus.json"
# Where it is, an RDMA stack was there whose ib_core has an interface for peers' memory when the modules were built.
PEER_MEMORY = "/run/gpunode-lab/peer-memory"
# The table that NVML's functions answer from in containers (nvml.py): the container toolkit mounts gsp*.bin.
FIRMWARE, TABLE = "/lib/firmware/nvidia", "gsp_gpunode_lab.bin"
_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
# In depmod's order: what DKMS built comes before what NVIDIA's installer built by itself. DKMS' place is Debian's
# and Arch's, SUSE's, and RHEL's.
_FOLDERS = ("updates/dkms", "updates", "extra", "kernel/drivers/video")
_UVM_MAJOR = 511
_GPU_MAJOR = 195


class ModuleError(Exception):
    """Carry the reason in the kernel's or kmod's own words."""


class ModuleFile:
    """Hold the fixture module on disk; `path` is the node's own."""

    def __init__(self, path: str, fields: dict[str, str]) -> None:
        self.path = path
        self.version = fields.get("version", "")
        self.license = fields.get("license", "")
        self.flavour = fields.get("flavour", "")
        self.loads = fields.get("loads") != "no"


def module_file(machine: Machine, name: str = "nvidia", kernel: str | None = None) -> ModuleFile | None:
    """Return the module on disk for a kernel (the running one by default), or None."""
    path = _path(machine, name, kernel)
    try:
        lines = machine.read(path).splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return ModuleFile(path, dict(line.split("=", 1) for line in lines if "=" in line))


def is_real(machine: Machine, name: str, kernel: str | None = None) -> bool:
    """Say whether the module on disk is one that a compiler made, about which the real modinfo can be asked."""
    try:
        with open(machine.at(_path(machine, name, kernel)), "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _path(machine: Machine, name: str, kernel: str | None) -> str:
    root, file = f"/lib/modules/{kernel or machine.kernel}", f"{name.replace('_', '-')}.ko"
    places = [f"{root}/{folder}/{file}" for folder in _FOLDERS]
    return next((path for path in places if machine.exists(path)), places[0])


def loaded_modules(machine: Machine) -> tuple[str, ...]:
    """Return the simulated modules that are loaded, in the order of loading."""
    return tuple(machine.read_json(STATE).get("modules", ()))


def loaded_version(machine: Machine) -> str | None:
    """Return what /sys/module/nvidia/version says, or None if no nvidia module is loaded."""
    try:
        return machine.read("/sys/module/nvidia/version").strip()
    except OSError:
        return None


def real_driver_loaded(machine: Machine) -> bool:
    """Say whether a driver is loaded that this simulation did not load: then it must keep its hands off."""
    return loaded_version(machine) is not None and not machine.exists(STATE)


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
    if name == "nvidia_peermem" and not machine.exists(PEER_MEMORY):
        raise ModuleError(f"could not insert '{name}': Invalid argument")
    if name != "nvidia":
        load(machine, "nvidia")
        module = machine.read_json(STATE)
        if found.version != module["version"]:
            # The kernel refuses a module that was built against another nvidia.ko: its symbols disagree.
            raise ModuleError(f"could not insert '{name}': Unknown symbol in module, or unknown parameter (see dmesg)")
    else:
        module = {"version": found.version, "flavour": found.flavour, "modules": []}
        _require_device(machine, found)
    machine.make_folder(f"/sys/module/{name}")
    machine.write_json(STATE, {**module, "modules": [*module["modules"], name]})
    _publish(machine, name, found)
    _publish_majors(machine)
    machine.log("module", f"loaded {name} {found.version} ({found.flavour})")


def _kernel_name(name: str) -> str:
    """Return what the kernel calls a module: Debian renames the files alone."""
    name = name.replace("-", "_")
    for renamed in ("nvidia_current_open", "nvidia_current"):
        if name.startswith(renamed):
            return "nvidia" + name.removeprefix(renamed)
    return name


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
    for file, content in (("version", found.version), ("refcnt", "0"), ("initstate", "live")):
        machine.write(f"/sys/module/{name}/{file}", content + "\n")
    if name == "nvidia_uvm":
        make_node(machine, "nvidia-uvm", _UVM_MAJOR, 0)
        make_node(machine, "nvidia-uvm-tools", _UVM_MAJOR, 1)
    if name == "nvidia":
        machine.write("/proc/driver/nvidia/version", version_text(found.version, found.flavour))
        machine.remove(RUNTIME_STATE)
        for gpu in machine.gpus():
            _information(machine, gpu)
            make_node(machine, f"nvidia{gpu.index}", _GPU_MAJOR, gpu.index)
        make_node(machine, "nvidiactl", _GPU_MAJOR, 255)
        write_minors(machine)
    else:
        machine.write("/sys/module/nvidia/refcnt", f"{len(loaded_modules(machine)) - 1}\n")


def _information(machine: Machine, gpu: SimulatedGpu) -> None:
    text = f"Model: \t\t {gpu.model.name}\nGPU UUID: \t {gpu.uuid}\nBus Location: \t {gpu.sysfs_address}\n"
    file = f"/proc/driver/nvidia/gpus/{gpu.sysfs_address}/information"
    machine.write(file, f"{text}Device Minor: \t {gpu.index}\n")


def unload(machine: Machine, name: str) -> None:
    """Unload a simulated module.

    Raises ModuleError if it is not loaded, another one stands on it, or a process has its device open.
    """
    from shutil import rmtree

    name = name.replace("-", "_")
    modules = list(loaded_modules(machine))
    if name not in modules:
        raise ModuleError(f"Module {name} is not currently loaded")
    others = [other for other in modules if other != name]
    if name == "nvidia" and others:
        raise ModuleError(f"Module nvidia is in use by: {' '.join(others)}")
    if _open_devices(machine, name):
        raise ModuleError(f"Module {name} is in use")
    rmtree(machine.at(f"/sys/module/{name}"), ignore_errors=True)
    if name == "nvidia":
        for folder in ("/proc/driver/nvidia", "/proc/driver/nvidia-caps"):
            rmtree(machine.at(folder), ignore_errors=True)
        for node in machine.names_in("/dev"):
            if node in _DEVICES or (node.startswith("nvidia") and node[6:7].isdigit()):
                machine.remove(f"/dev/{node}")
        rmtree(machine.at(DEVICES), ignore_errors=True)
        machine.remove(STATE)
        machine.remove(RUNTIME_STATE)
        _empty_tables(machine)
    else:
        machine.write_json(STATE, {**machine.read_json(STATE), "modules": others})
        machine.write("/sys/module/nvidia/refcnt", f"{len(others) - 1}\n")
        if name == "nvidia_uvm":
            for node in machine.names_in("/dev"):
                if node.startswith("nvidia-uvm"):
                    machine.remove(f"/dev/{node}")
    _publish_majors(machine)
    machine.log("module", f"unloaded {name}")


def _publish_majors(machine: Machine) -> None:
    majors = {
        "nvidia": {"nvidia": _GPU_MAJOR, "nvidiactl": _GPU_MAJOR, "nvidia-caps": MAJOR},
        "nvidia_modeset": {"nvidia-modeset": _GPU_MAJOR},
        "nvidia_uvm": {"nvidia-uvm": _UVM_MAJOR},
    }
    write_majors(
        machine, {name: number for each in loaded_modules(machine) for name, number in majors.get(each, {}).items()}
    )


def _empty_tables(machine: Machine) -> None:
    """Empty what containers see of the hardware. The file stays, for what describes containers names it."""
    for version in machine.names_in(FIRMWARE):
        if machine.exists(f"{FIRMWARE}/{version}/{TABLE}"):
            machine.write(f"{FIRMWARE}/{version}/{TABLE}", "end\n")


def _open_devices(machine: Machine, name: str) -> bool:
    prefix = "/dev/nvidia-uvm" if name == "nvidia_uvm" else "/dev/nvidia"
    return any(device.startswith(prefix) for _, device in open_devices(machine))
