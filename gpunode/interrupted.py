"""Changes that an earlier run began and did not end: it was cut off, or is at work at this moment."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.probe_output import repeated
from gpunode.reading import Reading


@dataclass(frozen=True)
class Interrupted(Reading):
    """Hold the names of the changes that nobody is at work on any more, and of those that somebody is.

    `stale` are those of changes that were cut off before they began, `left` paths of what was left beside files that
    were being written: both are gpunode's own, harm nobody, and go with the next run.
    """

    names: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def parse_interrupted(lines: list[str]) -> Interrupted:
    """Parse `interrupted=NAME`, `running=NAME`, `stale=NAME` and `left=PATH` lines."""
    names, running, stale, left = (repeated(lines, key) for key in ("interrupted", "running", "stale", "left"))
    return Interrupted(tuple(names), tuple(running), tuple(dict.fromkeys(stale)), tuple(left))
