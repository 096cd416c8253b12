"""Whether a new machine has come up, and how long one waits for it."""

from __future__ import annotations

import re

import pytest

from gpunode.facts.system import LONGEST
from gpunode.facts.system import Readiness as Probed
from gpunode.system.readiness import Answer, Readiness, Stage, awaited

pytestmark = pytest.mark.pure

FAILED = Readiness("error", ("status: error",), "running")
READY = Readiness("done", ("status: done",), "running")


class Life:
    """Answer as machines do one after the other, and let time pass only by sleeping."""

    def __init__(self, *answers: dict[str, Answer]) -> None:
        self.answers, self.now = list(answers), 0.0
        self.told: list[tuple[str, Stage]] = []
        self.left: list[float] = []

    def read(self, left: float) -> dict[str, Answer]:
        self.left.append(left)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def awaited(self, seconds: float) -> dict[str, Stage]:
        tell = lambda name, outcome: self.told.append((name, outcome.stage))  # noqa: E731
        found = awaited(self.read, seconds, tell, interval=3, clock=lambda: self.now, sleep=self.sleep)
        return {name: outcome.stage for name, outcome in found.items()}


def test_one_waits_until_the_last_machine_is_up_and_is_told_of_changes_alone() -> None:
    life = Life({"a": "refused", "b": READY}, {"a": "refused", "b": READY}, {"a": READY, "b": READY})
    assert life.awaited(60) == {"a": Stage.READY, "b": Stage.READY}
    assert life.told == [("a", Stage.WAITING), ("b", Stage.READY), ("a", Stage.READY)]
    assert (len(life.left), life.now) == (3, 6)


@pytest.mark.parametrize(
    ("answers", "seconds", "left", "stages"),
    [
        # How long each look has.
        ({"a": "refused"}, 10, [10, 7, 4, 1], {"a": Stage.WAITING}),
        ({"a": "refused"}, 0, [0], {"a": Stage.WAITING}),
        # A machine whose cloud-init failed ends the waiting for all.
        ({"a": "refused", "b": FAILED}, 60, [60], {"a": Stage.WAITING, "b": Stage.FAILED}),
    ],
)
def test_one_waits_no_longer_than_asked_or_than_is_of_use(
    answers: dict[str, Answer], seconds: float, left: list[float], stages: dict[str, Stage]
) -> None:
    life = Life(answers)
    assert life.awaited(seconds) == stages
    assert life.left == left and life.now <= seconds


def test_the_probe_ends_within_the_time_that_it_is_given() -> None:
    limits = re.findall(r"timeout -k (\d+) (\d+) ", Probed.probe)
    assert len(limits) == 2
    assert sum(int(kill) + int(end) for kill, end in limits) < LONGEST
