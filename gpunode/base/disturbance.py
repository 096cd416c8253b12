"""How much a change disturbs a node (docs/design.md, rule 7)."""

from __future__ import annotations

from enum import IntEnum


class Disturbance(IntEnum):
    """Order what a change disturbs: nothing, a service, a GPU, the whole node."""

    nothing = 0
    restart = 1
    reset = 2
    reboot = 3
