"""What is to be done about links in /dev/char, without which a container loses its GPUs at a reload of systemd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpunode.base.comparison import finding_message
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.components.toolkit.state import ContainerToolkit

DEVICE_LINKS = finding_message(
    "toolkit",
    "device links",
    "The links in /dev/char to NVIDIA's devices are missing.",
    "With systemd's cgroups a container that runs loses its GPUs at the next `systemctl daemon-reload` without them.",
    cause="a container loses its GPUs at the next `systemctl daemon-reload`",
)


@dataclass(frozen=True)
class Links:
    """Hold the devices that are to get a link in /dev/char."""

    devices: tuple[str, ...]


def decide_links(actual: ContainerToolkit) -> Decision[Any]:
    """Return what is to be done about links in /dev/char; their udev rule is an own file."""
    lacking = [f"none for {', '.join(actual.unlinked)}"] if actual.unlinked else []
    if not actual.link_rule:
        lacking.append("no udev rule")
    item = DEVICE_LINKS.compared(
        "; ".join(lacking) or "all", "one in /dev/char for each device, and a udev rule", not lacking
    )
    action = "link NVIDIA's devices in /dev/char, now and whenever the driver is loaded"
    change = Links(actual.unlinked) if actual.unlinked else None
    return Decision((item,), (Step(action, (item,), Disruption.nothing, change=change),) if lacking else ())
