"""Parts are given to SIMULATED workers, each once; tests/cases has what becomes of them where workers break or die."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
