"""Processes that hold a SIMULATED GPU: those that have its device open, as the kernel tells."""

from __future__ import annotations

import os

from .capabilities import DEVICES, instance_of
from .machine import Machine, SimulatedGpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Holder:
    """Hold a process: its id, its program, and the GPU instances that it uses (none named: every one)."""

    def __init__(self, pid: int, program: str, instances: frozenset[int]) -> None:
        self.pid = pid
        self.program = program
        self.instances = instances

    def uses(self, instance: int) -> bool:
        """Say whether it uses a GPU instance."""
        return not self.instances or instance in self.instances


def holders(machine: Machine, gpu: SimulatedGpu) -> list[Holder]:
    """Return the processes that hold the GPU, in order of their ids."""
    opened: dict[int, set[str]] = {}
    for pid, device in open_devices(machine):
        opened.setdefault(pid, set()).add(device)
    return [
        Holder(pid, _program(machine, pid), _instances(gpu, devices))
        for pid, devices in sorted(opened.items())
        if f"/dev/nvidia{gpu.index}" in devices
    ]


def open_devices(machine: Machine) -> Iterator[tuple[int, str]]:
    """Go through what processes have open of the driver's devices: the process's id, and the device's path."""
    for process in machine.names_in("/proc"):
        # Of processes that end meanwhile there is nothing to be read any more.
        for descriptor in machine.names_in(f"/proc/{process}/fd") if process.isdigit() else ():
            try:
                opened = os.readlink(machine.at(f"/proc/{process}/fd/{descriptor}"))
            except OSError:
                continue
            if opened.startswith("/dev/nvidia"):
                yield int(process), opened


def _program(machine: Machine, pid: int) -> str:
    try:
        with open(machine.at(f"/proc/{pid}/cmdline"), "rb") as file:
            return file.read().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return "[Not Found]"


def _instances(gpu: SimulatedGpu, devices: set[str]) -> frozenset[int]:
    minors = [device.removeprefix(f"{DEVICES}/nvidia-cap") for device in devices]
    found = (instance_of(gpu, int(minor)) for minor in minors if minor.isdigit())
    return frozenset(instance for instance in found if instance is not None)
