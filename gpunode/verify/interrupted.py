"""Has what earlier runs began come to its end?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.disturbance import Disturbance
from gpunode.findings import Finding
from gpunode.node import Node
from gpunode.verify.comparison import compared
from gpunode.verify.subject import Subject


def interrupted(node: Node) -> Iterator[Finding]:
    """Judge the journals of changes: one that began and that nobody is at work on is half done."""
    names = ", ".join(node.interrupted.names)
    yield compared(
        "node", Subject.INTERRUPTED, names or "none", "none", not names,
        cause="a run was cut off in the middle of it: what it was changing may be half done; the next run puts back "
        "what was there before, and begins anew",
        disturbs=Disturbance.restart,
    )  # fmt: skip
