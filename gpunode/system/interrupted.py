"""Changes that an earlier run began and did not end: it was cut off, or is at work at this moment; and what to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gpunode.base.comparison import RUN, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.probe_output import repeated
from gpunode.base.reading import Reading
from gpunode.system.transaction import FOLDER

# A restore that no run makes by itself may remove what its owner has put there since.
BY_HAND = (
    f"where no run asks for it any more: on the node, `sh {FOLDER}/NAME.sh undo` puts back what was there before; or "
    f"`mv {FOLDER}/NAME.json {FOLDER}/NAME.given-up.json` keeps what is there now"
)

_HALF_DONE = "a run was cut off in the middle of it: what it was changing may be half done"
_RESTORED = f"{_HALF_DONE}; the next run restores what was there before, and starts again"
_NOT_RESTORED = f"{_HALF_DONE}, and no run of these settings restores what was there before"
_EITHER = f"{RUN}; {BY_HAND}"
INTERRUPTED = finding_message(
    "node",
    "interrupted changes",
    "A run was cut off in the middle of a change on this node.",
    "The change may be half done. The next run that makes it restores what was there before and starts again.",
    causes=(_RESTORED, _NOT_RESTORED),
    remedies=(_EITHER,),
)


@dataclass(frozen=True)
class Interrupted(Reading):
    """Hold the names of the changes that nobody is at work on any more, and of those that somebody is.

    `stale` are those of changes that were cut off before they began, `left` paths of what was left beside files that
    were being written: both are gpunode's own, harm nobody, and go with the next run. `newer` are those whose journal a
    newer gpunode wrote: their state is not known.
    """

    names: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    pulls: bool = False
    newer: tuple[str, ...] = ()


def parse_interrupted(lines: list[str]) -> Interrupted:
    """Parse `interrupted=NAME`, `running=NAME`, `newer=NAME`, `stale=NAME` and `left=PATH` lines, and `pulls=yes`."""
    keys = ("interrupted", "running", "stale", "left", "newer")
    names, running, stale, left, newer = (tuple(dict.fromkeys(repeated(lines, key))) for key in keys)
    return Interrupted(names, running, stale, left, "yes" in repeated(lines, "pulls"), newer)


def decide(actual: Interrupted, unasked: Collection[str] = ()) -> Decision[None]:
    """Return what is to be done about changes that began and that nobody is at work on: they are half done.

    unasked: names of those that no run comes to by these settings
    """
    names, left = (", ".join(name for name in actual.names if (name in unasked) is no) for no in (False, True))
    item = INTERRUPTED.compared(
        names or "none",
        "none",
        not names,
        cause=_RESTORED,
        disruption=Disruption.restart,
    )
    steps: list[Step[None]] = [
        Step(f"put back what an earlier run began and did not end ({names})", (each,), Disruption.restart)
        for each in bad(item)
    ]
    if not left:
        return Decision((item,), tuple(steps))
    switched_off = INTERRUPTED.compared(
        left, "none", False, of="of what is switched off", cause=_NOT_RESTORED, remedy=BY_HAND
    )
    return Decision((item, switched_off), tuple(steps))
