"""Whether a new machine has come up, and how long one waits for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gpunode.facts.readiness import LONGEST
from gpunode.facts.readiness import Readiness as Probed
from gpunode.system.readiness import Answer, Outcome, Readiness, Stage, awaited

pytestmark = pytest.mark.pure

READY = Readiness("done", ("status: done",), "running")


class Life:
    """Answer as machines do one after the other, and let time pass only by sleeping."""

    def __init__(self, *answers: dict[str, Answer]) -> None:
        self.answers: Iterator[dict[str, Answer]] = iter(answers)
        self.last: dict[str, Answer] = {}
        self.now, self.reads = 0.0, 0
        self.told: list[tuple[str, Stage]] = []
        self.left: list[float] = []

    def read(self, left: float) -> dict[str, Answer]:
        self.reads += 1
        self.left.append(left)
        self.last = next(self.answers, self.last)
        return self.last

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def tell(self, name: str, outcome: Outcome) -> None:
        self.told.append((name, outcome.stage))

    def awaited(self, seconds: float) -> dict[str, Stage]:
        found = awaited(self.read, seconds, self.tell, interval=3, clock=lambda: self.now, sleep=self.sleep)
        return {name: outcome.stage for name, outcome in found.items()}


def test_one_waits_until_the_last_machine_is_up_and_is_told_of_changes_alone() -> None:
    life = Life({"a": "refused", "b": READY}, {"a": "refused", "b": READY}, {"a": READY, "b": READY})
    assert life.awaited(60) == {"a": Stage.READY, "b": Stage.READY}
    assert life.told == [("a", Stage.WAITING), ("b", Stage.READY), ("a", Stage.READY)]
    assert (life.reads, life.now) == (3, 6)


def test_one_waits_no_longer_than_asked() -> None:
    life = Life({"a": "refused"})
    assert life.awaited(10) == {"a": Stage.WAITING}
    assert life.now <= 10
    once = Life({"a": "refused"})
    assert once.awaited(0) == {"a": Stage.WAITING}
    assert once.reads == 1


def test_each_look_at_the_machines_is_told_how_long_it_has() -> None:
    life = Life({"a": "refused"})
    life.awaited(10)
    assert life.left == [10, 7, 4, 1]


def test_the_probe_ends_within_the_time_that_it_is_given() -> None:
    limits = re.findall(r"timeout -k (\d+) (\d+) ", Probed.probe)
    assert len(limits) == 2
    assert sum(int(kill) + int(end) for kill, end in limits) < LONGEST


def test_a_machine_whose_cloud_init_failed_ends_the_waiting_for_all() -> None:
    life = Life({"a": "refused", "b": Readiness("error", ("status: error",), "running")})
    assert life.awaited(60) == {"a": Stage.WAITING, "b": Stage.FAILED}
    assert life.reads == 1
