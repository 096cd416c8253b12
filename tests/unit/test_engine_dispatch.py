"""Parts are given to SIMULATED workers, each once; tests/cases has what becomes of them where workers break or die."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.engine import dispatch
from gpunode.fleet.engine.dispatch import Task, outcomes
from tests.support.engine_crew import GOOD, Crew, ends_at_once, is_forgotten_as_all_is_lost, run, tasks

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


@given(st.integers(0, 20), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_every_part_has_one_outcome_and_is_given_once(number: int, workers: int, slots: int, changes: bool) -> None:
    crew = Crew({f"w{each}": None for each in range(workers)}, slots=slots)
    assert run(crew, tasks(number), changes) == dict.fromkeys(range(number), GOOD)
    assert sorted(name for name, _ in crew.given) == sorted(f"t{each}" for each in range(number))


def test_where_the_scheduler_went_with_the_line_each_part_says_so() -> None:
    for _ in range(10):
        # What has ended at the same look is told as it ended, in whatever order.
        crew = Crew({"a": None}, ends_at_once, is_forgotten_as_all_is_lost, slots=2)
        found = run(crew, tasks(2), changes=True)
        assert found[0] == GOOD and list(found[1]) == ["lost"] and len(found) == 2


@pytest.mark.parametrize(
    "answer",
    [
        None, b"{}", 7, "", "[]", "{}", "null", '"broken"', "{", '{"document": ' + "[" * 100_000, "9" * 5000,
        '{"document": []}', '{"document": 1, "refused": "x", "names": ["gpu-9"]}', " " * (17 << 20) + json.dumps(GOOD),
        '{"worker": "w"}', '{"lost": "x", "waiting": "x"}',
    ],
)  # fmt: skip
def test_an_answer_that_is_no_outcome_breaks_its_own_part_alone(answer: Any) -> None:
    def answers(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
        crew.at_once[address] -= 1
        future.set_result(answer)

    crew = Crew({"a": None}, answers)
    found = run(crew, tasks(2), changes=True)
    assert found[1] == GOOD and found[0]["broken"]
    assert found[0].keys() <= {"worker", "broken"}


def never_answers(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
    """Be at work for ever."""


@pytest.mark.parametrize("changes", [True, False])
def test_a_worker_that_never_answers_is_given_up_and_gets_no_other_part(changes: bool) -> None:
    crew = Crew({"a": "west", "b": "east"}, never_answers)
    todo = [Task(f"t{each}", ("drift",), {}, site, longest=0.01) for each, site in enumerate(("west", "west", "east"))]
    found = run(crew, todo, changes)
    assert [list(found[each]) for each in range(2)] == [["lost"], ["waiting"]] and found[2] == GOOD
    assert crew.ended == ["t0"] and crew.given == [("t0", "a"), ("t2", "b")]


def test_a_wait_is_reported_again_after_twice_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "REPORT", 0.01)
    todo = [Task("t", ("drift",), {}, longest=0.2)]
    reports = [told for _, told in outcomes(Crew({"a": None}, never_answers), todo, False, look=0.001)]
    assert [list(told) for told in reports[:-1]] == [["waits"]] * (len(reports) - 1) and "lost" in reports[-1]
    assert 2 <= len(reports) <= 6
