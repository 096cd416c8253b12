"""Device nodes of the SIMULATED driver."""

from __future__ import annotations

import os
import stat

from .machine import Machine


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
