"""The majors of the SIMULATED driver's devices in /proc/devices, over which a file of the lab's is bound."""

from __future__ import annotations

from .machine import Machine

TARGET, FILE = "/proc/devices", "/run/gpunode-lab/proc-devices"
# Module -> its lines, as the kernel writes them.
_LINES = {"nvidia": ("195 nvidia", "509 nvidia-caps"), "nvidia_uvm": ("511 nvidia-uvm",)}


def prepare(machine: Machine) -> None:
    """Write the file with what the kernel itself lists, unless it exists."""
    if not machine.exists(FILE):
        machine.write(FILE, machine.read(TARGET))


def publish(machine: Machine, modules: tuple[str, ...]) -> None:
    """List the majors of these modules after the kernel's own; nothing where the file was not prepared."""
    if not machine.exists(FILE):
        return
    ours = [line for lines in _LINES.values() for line in lines]
    kernels = [line for line in machine.read(FILE).splitlines() if line not in ours]
    end = kernels.index("") if "" in kernels else len(kernels)
    loaded = [line for module in modules for line in _LINES.get(module, ())]
    machine.write(FILE, "\n".join([*kernels[:end], *loaded, *kernels[end:]]) + "\n")
