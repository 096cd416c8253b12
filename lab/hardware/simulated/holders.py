"""Processes that hold a SIMULATED GPU: those that have its device open, as the kernel tells."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from .capabilities import DEVICES, instance_of
from .machine import Machine, SimulatedGpu


@dataclass(frozen=True)
class Holder:
    """Hold a process: its id, its program, and the GPU instances that it uses (none named: every one)."""

    pid: int
    program: str
    instances: frozenset[int]

    def uses(self, instance: int) -> bool:
        """Say whether it uses a GPU instance."""
        return not self.instances or instance in self.instances


def holders(machine: Machine, gpu: SimulatedGpu) -> list[Holder]:
    """Return the processes that hold the GPU, in order of their ids."""
    opened: dict[int, set[str]] = {}
    for descriptor in machine.path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if (device := str(descriptor.readlink())).startswith("/dev/nvidia"):
                opened.setdefault(int(descriptor.parts[-3]), set()).add(device)
    return [
        Holder(pid, _program(machine.path(f"/proc/{pid}")), _instances(gpu, devices))
        for pid, devices in sorted(opened.items())
        if f"/dev/nvidia{gpu.index}" in devices
    ]


def _program(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    return "[Not Found]"


def _instances(gpu: SimulatedGpu, devices: set[str]) -> frozenset[int]:
    minors = [device.removeprefix(f"{DEVICES}/nvidia-cap") for device in devices]
    found = (instance_of(gpu, int(minor)) for minor in minors if minor.isdigit())
    return frozenset(instance for instance in found if instance is not None)
