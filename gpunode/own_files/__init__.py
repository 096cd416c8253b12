"""The files that are gpunode's alone, as the settings ask for them: what a run writes, and what drift compares with.

What follows from the packages that are there (what a hold says), and what belongs to a transaction of its own (MPS,
MIG), is judged by its component; the record of the last run tells of those files.
"""

from __future__ import annotations

from gpunode.driver_packages import on_system
from gpunode.machine import Machine
from gpunode.own_files import containerd, cuda, driver, holds, packaging, repositories, toolkit
from gpunode.settings import Settings

_COMPONENTS = (packaging, driver, cuda, toolkit, containerd, repositories, holds)
# Every path that may be in `desired_files`: a node is asked of these, whatever its record says.
PATHS: tuple[str, ...] = tuple(path for component in _COMPONENTS for path in component.PATHS)


def desired_files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return path -> the text that a run of these settings leaves there; None: that it leaves no such file.

    Of other paths a run says nothing: what is there stays. The node is one that preflight accepts.
    """
    resolved = on_system(settings, machine.operating_system)
    return {path: text for each in _COMPONENTS for path, text in each.files(resolved, machine).items()}


__all__ = ["PATHS", "desired_files"]
