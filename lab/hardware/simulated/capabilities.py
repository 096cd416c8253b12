"""What the SIMULATED driver shows of instances: for each a capability, and the device that its users have open.

Minors are counted as the real driver counts them (/proc/driver/nvidia-caps/mig-minors): from 3 on, 15 GPU instances for
each GPU, with 8 compute instances for each of them.
"""

from __future__ import annotations

import os

from .device import make_node
from .machine import Machine, SimulatedGpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

DEVICES = "/dev/nvidia-caps"
_FOLDER = "/proc/driver/nvidia/capabilities"
MAJOR = 509
_FIRST, _OF_A_GPU, _OF_AN_INSTANCE = 3, 15, 9


def minor(gpu: SimulatedGpu, instance: int, compute: int | None = None) -> int:
    """Return the minor of a GPU instance's device, or of one of its compute instances'."""
    first = _FIRST + (gpu.index * _OF_A_GPU + instance) * _OF_AN_INSTANCE
    return first if compute is None else first + 1 + compute


def write_minors(machine: Machine) -> None:
    """Write /proc/driver/nvidia-caps/mig-minors: the minors of every instance that could exist, of 32 GPUs."""
    lines = ["config 1", "monitor 2"]
    number = _FIRST
    for gpu in range(32):
        for instance in range(_OF_A_GPU):
            name = f"gpu{gpu}/gi{instance}"
            lines.append(f"{name}/access {number}")
            lines += [f"{name}/ci{compute}/access {number + 1 + compute}" for compute in range(_OF_AN_INSTANCE - 1)]
            number += _OF_AN_INSTANCE
    machine.write("/proc/driver/nvidia-caps/mig-minors", "\n".join(lines) + "\n")


def instance_of(gpu: SimulatedGpu, number: int) -> int | None:
    """Return the id of the GPU instance that a minor belongs to; None: it is none of this GPU's."""
    found = (number - _FIRST) // _OF_AN_INSTANCE - gpu.index * _OF_A_GPU
    return found if 0 <= found < _OF_A_GPU else None


def publish(machine: Machine, gpu: SimulatedGpu, instances: Iterable[Mapping[str, Any]]) -> None:
    """Show the capabilities of a GPU's instances (id, and compute: each with an id), and no others of that GPU."""
    # The driver knows no umask of whoever calls nvidia-smi: everybody may look these up.
    before = os.umask(0o022)
    try:
        _publish(machine, gpu, instances)
    finally:
        os.umask(before)


def _publish(machine: Machine, gpu: SimulatedGpu, instances: Iterable[Mapping[str, Any]]) -> None:
    from shutil import rmtree

    wanted = {}
    for row in instances:
        wanted[f"gi{row['id']}"] = minor(gpu, row["id"])
        for compute in row["compute"]:
            wanted[f"gi{row['id']}/ci{compute['id']}"] = minor(gpu, row["id"], compute["id"])
    folder = f"{_FOLDER}/gpu{gpu.index}/mig"
    # What stays is left as it is: to make all anew at each change is most of what a simulated change takes.
    for name in _published(machine, folder):
        if name not in wanted:
            rmtree(machine.at(f"{folder}/{name}"), ignore_errors=True)
    if not wanted:
        rmtree(machine.at(folder), ignore_errors=True)
    there = set(_published(machine, folder))
    for name, number in wanted.items():
        if name not in there:
            machine.write(
                f"{folder}/{name}/access", f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
            )
        make_node(machine, f"nvidia-caps/nvidia-cap{number}", MAJOR, number)
    for device in machine.names_in(DEVICES):
        digits = device.removeprefix("nvidia-cap")
        if digits.isdigit() and instance_of(gpu, int(digits)) is not None and int(digits) not in wanted.values():
            machine.remove(f"{DEVICES}/{device}")


def _published(machine: Machine, folder: str) -> list[str]:
    """Return the names of what has a capability: gi1, and gi1/ci0 within it."""
    found = [name for name in machine.names_in(folder) if name.startswith("gi")]
    inner = [f"{name}/{one}" for name in found for one in machine.names_in(f"{folder}/{name}") if one.startswith("ci")]
    return [*found, *inner]
