"""Changes that an earlier run began and did not end: it was cut off, or is at work at this moment; and what to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gpunode.base.comparison import RUN, compared
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.probe_output import repeated
from gpunode.base.reading import Reading
from gpunode.base.subject import Subject
from gpunode.system.transaction import FOLDER

# A restore that nobody asks for may take away what its owner has put there since.
BY_HAND = (
    f"where no run asks for it any more: on the node, `sh {FOLDER}/NAME.sh undo` puts back what was there before; or "
    f"`mv {FOLDER}/NAME.json {FOLDER}/NAME.given-up.json` keeps what is there now"
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
    item = compared(
        "node",
        Subject.INTERRUPTED,
        names or "none",
        "none",
        not names,
        cause="a run was cut off in the middle of it: what it was changing may be half done; the next run puts back "
        "what was there before, and begins anew",
        remedy=f"{RUN}; {BY_HAND}",
        disruption=Disruption.restart,
    )
    steps: list[Step[None]] = [
        Step(f"put back what an earlier run began and did not end ({names})", (each,), Disruption.restart)
        for each in bad(item)
    ]
    if not left:
        return Decision((item,), tuple(steps))
    switched_off = compared(
        "node",
        Subject.INTERRUPTED.of("of what is switched off"),
        left,
        "none",
        False,
        remedy=BY_HAND,
        cause="a run was cut off in the middle of it: what it was changing may be half done, and no run of these "
        "settings puts back what was there before",
    )
    return Decision((item, switched_off), tuple(steps))
