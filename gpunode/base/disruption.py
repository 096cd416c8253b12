"""How much a change disturbs a node (docs/design.md, rule 7)."""

from __future__ import annotations

from enum import IntEnum


class Disruption(IntEnum):
    """Order what a change disruption: nothing, a service, a GPU, the whole node."""

    nothing = 0
    restart = 1
    reset = 2
    reboot = 3
