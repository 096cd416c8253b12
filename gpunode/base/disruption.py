"""How much a change disturbs a node (docs/design.md, rule 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

# Yields what empties a node before a step that its pods would feel, given the step: `containerd is to be restarted`.
Drain = Callable[[str], Iterator[Any]]


class Disruption(IntEnum):
    """Order what a change disruption: nothing, a service, a GPU, the whole node."""

    nothing = 0
    restart = 1
    reset = 2
    reboot = 3
