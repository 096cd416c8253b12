"""A node that reboots and the clock of who waits for it, both made up, for tests and cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from gpunode.node.reboot import NotBack, awaited
from gpunode.system.running_boot import RunningBoot

OLD = RunningBoot("aaaa", 5_000_000, container=True)
NEW = RunningBoot("aaaa", 9_000_000, container=True)


@dataclass
class Time:
    """Stand in for the clock: it moves by what is slept, and by what each look takes."""

    answers: Iterator[RunningBoot | str]
    look_takes: float = 0.0
    now: float = 1000.0
    longest_look: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def look(self, seconds: float) -> RunningBoot | str:
        self.longest_look = max(self.longest_look, seconds)
        self.now += min(self.look_takes, seconds)
        return next(self.answers)


def in_turn(*answers: RunningBoot | str, look_takes: float = 0.0) -> Time:
    """Return a clock with answers one by one, and the last one for ever."""
    return Time(chain(answers, repeat(answers[-1])), look_takes)


def waited(answers: list[Any], timeout: float, look_takes: float = 0.0) -> dict[str, Any]:
    """Return the boot that was waited for, or why none is taken, with the seconds in all and of the longest look."""
    time = in_turn(*answers, look_takes=look_takes)
    try:
        found: RunningBoot | str = awaited(OLD, time.look, timeout, lambda: time.now, time.sleep)
    except NotBack as reason:
        found = str(reason)
    return {"found": found, "seconds": time.now - 1000, "longest_look": time.longest_look}
