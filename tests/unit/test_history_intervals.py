"""How long a finding was so: by readings in any order, as far as they tell it and no further."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.history.intervals import End, Interval, State
from tests.support.history_readings import GOOD, OLD, OLDER, Found, Readings, after, at

pytestmark = pytest.mark.pure


def test_how_it_ended_and_when_it_was_good_last_are_known() -> None:
    first, second = after([(0, GOOD), (10, OLD), (20, OLDER), (30, GOOD)])
    assert (first.end, second.end) == (End.CHANGED, End.GOOD)
    assert first.last_good == second.last_good == at(0)


def test_what_went_before_may_have_been_pruned() -> None:
    first, second = after([(0, GOOD), (10, OLD), (20, OLDER)])
    assert first.ended is not None
    assert after([(30, OLDER)], (second,))[-1].since == at(10)


def test_the_latest_words_about_the_cause_are_kept() -> None:
    why = State(OLD.finding_class, OLD.actual, OLD.desired, cause="4 containers run")
    assert after([(0, OLD), (10, why)])[0].state.cause == "4 containers run"


def test_of_two_readings_at_one_time_the_first_counts() -> None:
    for first, second in ((OLD, GOOD), (GOOD, OLD), (OLD, OLDER)):
        before = after([(0, OLD), (10, first)])
        assert after([(0, OLD), (10, first), (10, second)]) == before


READINGS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([OLD, OLDER, GOOD])), unique_by=lambda each: each[0], max_size=12
)


@given(READINGS)
def test_in_order_each_reading_is_told_to_the_minute(readings: Readings) -> None:
    found = after(sorted(readings, key=lambda each: each[0]))
    runs: list[list[tuple[int, Found]]] = []
    for reading in sorted(readings, key=lambda each: each[0]):
        if runs and runs[-1][0][1] == reading[1]:
            runs[-1].append(reading)
        else:
            runs.append([reading])
    desired = [
        (run[0][1], before and at(before[-1][0]), at(run[0][0]), at(run[-1][0]), behind and at(behind[0][0]))
        for before, run, behind in zip([None, *runs], runs, [*runs[1:], None], strict=False)
        if run[0][1] is not GOOD
    ]
    assert [(each.state, each.not_yet, each.begun, each.last, each.ended) for each in found] == desired


@given(READINGS.flatmap(lambda readings: st.tuples(st.just(readings), st.permutations(readings))))
def test_in_any_order_what_was_found_is_told_once_and_nothing_else_of_that_time(
    both: tuple[Readings, Readings],
) -> None:
    readings, mixed = both
    at_a_time = {at(minute): found for minute, found in readings}
    is_parted, before = False, tuple[Interval, ...]()
    for number, (minute, state) in enumerate(mixed):
        is_parted |= any(each.begun < at(minute) < each.last and each.state != state for each in before)
        before = after(mixed[: number + 1])
    for first, second in pairwise(before):
        assert first.ended is not None and first.ended <= second.begun
    for each in before:
        assert each.begun <= each.last and (each.ended is None) == (each.end is None)
        assert at_a_time[each.begun] == each.state == at_a_time[each.last]
        for time in filter(None, (each.not_yet, each.ended)):
            assert at_a_time[time] != each.state and not each.begun <= time <= each.last
        # What found all as desired, and ended nothing, left no trace; nor did what lay within an interval now parted.
        here = {found for time, found in at_a_time.items() if each.begun <= time <= each.last}
        assert here <= {each.state, GOOD} or is_parted
        assert each.since <= each.begun and at_a_time[each.since] is not GOOD
    if not is_parted:
        # Told a second time, they may tell more closely when it ended, and nothing else of their own times.
        for known in (before, after(mixed, before)):
            for time, found in at_a_time.items():
                covered = [each.state for each in known if each.begun <= time <= each.last]
                assert found is GOOD or covered == [found]


@given(READINGS.flatmap(lambda readings: st.tuples(st.just(readings), st.sets(st.sampled_from(range(12))))))
def test_two_controllers_that_write_in_turn_tell_what_one_would(both: tuple[Readings, set[int]]) -> None:
    """Each writes in its own order; the other one's come in between."""
    readings = sorted(both[0], key=lambda each: each[0])
    slow = [each for number, each in enumerate(readings) if number in both[1]]
    quick = [each for each in readings if each not in slow]
    found = after([*quick, *slow])
    last = readings[-1] if readings else (0, GOOD)
    # Whoever is asked how it is now gets the same answer.
    now = [each.state for each in found if each.ended is None]
    assert now == ([] if last[1] is GOOD else [last[1]])
