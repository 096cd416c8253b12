"""A GPU's layout as one line of text, for the shell on a node: UUID, `off`, or `on` and a word for each GPU instance.

A word is PROFILE:START=SIZES, with the sizes of its compute instances, largest first: `3g.40gb:4=3`, `3g.40gb:0=2,1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpunode.components.mig.change import Instance

UUID = re.compile(r"GPU-[0-9a-zA-Z-]{1,64}", re.ASCII)
_LINE = re.compile(
    r"GPU-[0-9a-zA-Z-]{1,64} (?:off|on(?: [0-9]+g\.[0-9]+gb(?:[+-][A-Za-z0-9.,]+)?:[0-9]+=(?:[0-9]+(?:,[0-9]+)*)?)*)",
    re.ASCII,
)


def word(instance: Instance) -> str:
    """Return a GPU instance as the shell has it."""
    return f"{instance.placement}={','.join(map(str, sorted(instance.compute, reverse=True)))}"


def line(uuid: str, enabled: bool, instances: Iterable[Instance]) -> str:
    """Return the layout of a GPU, larger instances first: that is the order in which they are created."""
    largest_first = sorted(instances, key=lambda each: (-each.placement.size, each.placement))
    return " ".join([uuid, "on" if enabled else "off", *(map(word, largest_first) if enabled else ())])


def lines_of(text: str) -> tuple[str, ...] | None:
    """Return the lines of a record; None where one is no layout, which nobody may act on."""
    found = tuple(filter(None, text.splitlines()))
    return found if all(map(_LINE.fullmatch, found)) else None
