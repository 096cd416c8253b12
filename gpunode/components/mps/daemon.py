"""Which MPS control daemons a node shall have, and what each is told.

The daemon takes nonsense with exit status 0 and prints the old value, so that every command has a question with it and
the answer that proves it. Source: NVIDIA's manual page nvidia-cuda-mps-control(1); the answers as 535 and 550 print
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpunode.settings.sharing import MpsSettings

FOLDER = "/etc/nvidia-mps"
# Of the one daemon of a node, and of those of single GPUs.
UNITS = ("/etc/systemd/system/nvidia-mps.service", "/etc/systemd/system/nvidia-mps@.service")
NODE = "node"
# As the settings have them -> as nvidia-smi shows them.
COMPUTE_MODES = {"exclusive-process": "Exclusive_Process", "default": "Default"}


@dataclass(frozen=True)
class Control:
    """Hold one setting of a daemon: the command, the question that reads it back, and the answer that proves it."""

    command: str
    question: str
    answer: str


@dataclass(frozen=True)
class Daemon:
    """Hold one daemon: its name (`node`, or a GPU's index), the indices of its GPUs, and what it is told."""

    name: str
    gpus: tuple[int, ...]
    controls: tuple[Control, ...]

    @property
    def unit(self) -> str:
        """Return the name of its unit."""
        return "nvidia-mps.service" if self.name == NODE else f"nvidia-mps@{self.name}.service"

    @property
    def unit_path(self) -> str:
        """Return where its unit stands on the node; those of single GPUs have one between them."""
        return UNITS[self.name != NODE]

    @property
    def settings_path(self) -> str:
        """Return where its settings stand on the node, for the unit to apply at every start."""
        return f"{FOLDER}/{self.name}.settings"


def daemons(desired: MpsSettings, gpus: Iterable[int]) -> tuple[Daemon, ...]:
    """Return the daemons of a node with GPUs of these indices."""
    indices = tuple(sorted(gpus))
    if desired.daemons == "node":
        limits = [(index, desired.limit_of(index)) for index in indices]
        return (Daemon(NODE, indices, _controls(desired, limits)),)
    # A daemon that sees one GPU alone counts it as its first.
    return tuple(Daemon(str(index), (index,), _controls(desired, [(0, desired.limit_of(index))])) for index in indices)


def _controls(desired: MpsSettings, limits: Iterable[tuple[int, str | None]]) -> tuple[Control, ...]:
    percentage = desired.active_thread_percentage
    found = [
        Control(
            f"set_default_active_thread_percentage {percentage}",
            "get_default_active_thread_percentage",
            f"{float(percentage):.1f}",
        )
    ]
    for index, limit in limits:
        # Zero takes a limit away; there is no other word for it.
        command = f"set_default_device_pinned_mem_limit {index} {limit or '0G'}"
        found.append(Control(command, f"get_default_device_pinned_mem_limit {index}", limit or ""))
    return tuple(found)


def control_text(controls: Iterable[Control]) -> str:
    """Return a daemon's settings as its unit reads them: lines of command, question and answer, divided by tabs."""
    lines = [f"{item.command}\t{item.question}\t{item.answer}\n" for item in controls]
    return "# Written by gpunode: command, question, answer that proves it. Applied by the unit at every start.\n" + (
        "".join(lines)
    )
