"""Device nodes of the SIMULATED driver."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .machine import Machine


def make_node(machine: Machine, name: str, major: int, minor: int) -> None:
    """Make the device /dev/NAME, which everybody may open; on a folder that stands for a machine, a file."""
    path = machine.path(f"/dev/{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    if machine.root != Path("/"):
        path.touch()
        return
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    path.chmod(0o666)
