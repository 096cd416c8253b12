"""Has what earlier runs began come to its end?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding
from gpunode.node import Node

_FOLDER = "/var/lib/gpunode/transactions"
# A restore that nobody asks for may take away what its owner has put there since.
BY_HAND = (
    f"where no run asks for it any more: on the node, `sh {_FOLDER}/NAME.sh undo` puts back what was there before; or "
    f"`mv {_FOLDER}/NAME.json {_FOLDER}/NAME.given-up.json` keeps what is there now"
)


def interrupted(node: Node) -> Iterator[Finding]:
    """Judge the journals of changes: one that began and that nobody is at work on is half done."""
    names = ", ".join(node.interrupted.names)
    yield compared(
        "node", Subject.INTERRUPTED, names or "none", "none", not names,
        cause="a run was cut off in the middle of it: what it was changing may be half done; the next run puts back "
        "what was there before, and begins anew",
        remedy=f"{RUN}; {BY_HAND}", disturbs=Disturbance.restart,
    )  # fmt: skip
