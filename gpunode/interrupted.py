"""Changes that an earlier run began and did not end: it was cut off, or is at work at this moment."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.probe_output import repeated
from gpunode.reading import Reading


@dataclass(frozen=True)
class Interrupted(Reading):
    """Hold the names of the changes that nobody is at work on any more, and of those that somebody is."""

    names: tuple[str, ...] = ()
    running: tuple[str, ...] = ()


def parse_interrupted(lines: list[str]) -> Interrupted:
    """Parse `interrupted=NAME` and `running=NAME` lines."""
    return Interrupted(tuple(repeated(lines, "interrupted")), tuple(repeated(lines, "running")))
