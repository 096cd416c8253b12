"""Processes that hold a SIMULATED GPU: those that have its device open, as the kernel tells."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from .machine import Machine, SimulatedGpu

# What a process holds besides, by its id: written by hold.py.
HELD = "/run/gpunode-lab/held"


@dataclass(frozen=True)
class Holder:
    """Hold a process: its id, its program, and the GPU instance that it uses (None: every one)."""

    pid: int
    program: str
    instance: int | None

    def uses(self, instance: int) -> bool:
        """Say whether it uses a GPU instance."""
        return self.instance in (None, instance)


def holders(machine: Machine, gpu: SimulatedGpu) -> list[Holder]:
    """Return the processes that hold the GPU, in order of their ids."""
    pids = set()
    for descriptor in machine.path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()) == f"/dev/nvidia{gpu.index}":
                pids.add(int(descriptor.parts[-3]))
    return [Holder(pid, _program(machine.path(f"/proc/{pid}")), _instance(machine, pid)) for pid in sorted(pids)]


def _program(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    return "[Not Found]"


def _instance(machine: Machine, pid: int) -> int | None:
    number = machine.read_json(f"{HELD}/{pid}.json").get("instance")
    return number if isinstance(number, int) else None
