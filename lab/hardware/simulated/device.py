"""Device nodes of the SIMULATED driver."""

from __future__ import annotations

import os
import stat

from .machine import Machine

# The boundary mounts it over /proc/devices (boundary.py).
MAJORS = "/run/gpunode-lab/proc-devices"
_BLOCK = "\nBlock devices:\n"


def make_node(machine: Machine, name: str, major: int, minor: int) -> None:
    """Make the device /dev/NAME, which everybody may open; on a folder that stands for a machine, a file."""
    if machine.exists(f"/dev/{name}"):
        return
    if not machine.is_node:
        machine.write(f"/dev/{name}", "")
        return
    path = machine.at(f"/dev/{name}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    os.chmod(path, 0o666)


def write_majors(machine: Machine, majors: dict[str, int]) -> None:
    """Write the driver's major numbers by name into /proc/devices, next to the kernel's own."""
    text = machine.read(MAJORS) if machine.exists(MAJORS) else f"Character devices:\n{_BLOCK}"
    characters, _, blocks = text.partition(_BLOCK)
    title, *lines = characters.splitlines()
    lines = [line for line in lines if not line.split()[1].startswith("nvidia")]
    lines += [f"{number:>3} {name}" for name, number in majors.items()]
    lines.sort(key=lambda line: int(line.split()[0]))
    machine.write(MAJORS, "\n".join([title, *lines, ""]) + _BLOCK + blocks)
