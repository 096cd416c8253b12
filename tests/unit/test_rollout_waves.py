"""Which waves come, whatever becomes of the nodes and of the controller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.fleet.rollout.choice import outcomes, sorted_out
from gpunode.fleet.rollout.entries import Begun, WaveBegun, WaveEnded
from gpunode.fleet.rollout.opening import amount
from gpunode.fleet.rollout.progress import OutOfOrder, Stop, fitting, next_step, waves_to_come, with_mates
from tests.support.messages import unnamed
from tests.support.rollout_waves import AT, REPORTS, begun, ended, report, resumed, rollout, stopped

pytestmark = pytest.mark.pure


def test_the_waves_to_come_begin_with_the_canary() -> None:
    waves, end = waves_to_come(rollout(6, most=2))
    assert [wave.nodes for wave in waves] == [("gpu-1",), ("gpu-2", "gpu-3"), ("gpu-4", "gpu-5"), ("gpu-6",)]
    assert [wave.kind for wave in waves] == ["canary", "wave", "wave", "wave"] and end == Stop(True)


@pytest.mark.parametrize(
    "entry",
    [
        WaveBegun(number=2, kind="wave", nodes=("gpu-1",), at=AT),
        WaveBegun(number=1, kind="wave", nodes=("gpu-9",), at=AT),
        WaveEnded(number=1, outcomes={}, at=AT),
        rollout(1).begun,
    ],
)
def test_an_entry_that_cannot_come_next_is_refused(entry: WaveBegun | WaveEnded | Begun) -> None:
    with pytest.raises(OutOfOrder):
        rollout(2).after(entry)


@given(st.data())
def test_never_more_unavailable_than_allowed_and_every_node_once_and_the_canary_first(data: st.DataObject) -> None:
    nodes, most = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 5))
    away = data.draw(st.integers(0, 3))
    progress = rollout(nodes, data.draw(st.integers(0, 4)), most, data.draw(st.integers(0, 4)), away)
    allowed = max(most, away)
    # What the nodes really are, beside what the journal says of them.
    broken: set[str] = set()
    passed: list[str] = []
    for _ in range(60):
        wave = next_step(progress)
        if isinstance(wave, Stop):
            if wave.finished or not data.draw(st.booleans(), label="go on after the stop"):
                break
            progress = resumed(stopped(progress))
            if isinstance(next_step(progress), Stop):
                break
            continue
        assert wave.nodes and away + len(broken | set(wave.nodes)) <= allowed
        assert not set(wave.nodes) & set(passed)
        first = progress.begun.policy.canaries
        assert set(wave.nodes) <= set(first) or set(first) <= set(passed)
        progress = begun(progress, wave)
        if data.draw(st.booleans(), label="the controller is killed"):
            # Half done: any of them may be down.
            broken |= set(data.draw(st.sets(st.sampled_from(wave.nodes))))
            progress = resumed(progress)
            continue
        failing = data.draw(st.sets(st.sampled_from(wave.nodes)))
        broken = (broken - set(wave.nodes)) | failing
        passed += [name for name in wave.nodes if name not in failing]
        progress = ended(progress, wave, *failing)
        assert set(progress.failed) <= broken
    assert len(passed) == len(set(passed))
    if next_step(progress) == Stop(True):
        assert set(passed) | set(progress.failed) == set(progress.begun.nodes)


def test_nodes_are_sorted_out_each_by_its_own_level_of_disruption() -> None:
    assert sorted_out(REPORTS, everyone=False)[0] == ("stale", "mendable")
    assert sorted_out(REPORTS, everyone=True)[0] == ("good", "stale", "mendable")
    reports = [report(name, FindingClass.REBOOT_PENDING) for name in ("boots", "others")]
    nodes, left = sorted_out(reports, False, {"boots": Disruption.restart})
    assert nodes == ("others",) and list(left) == ["boots"]


def test_a_percentage_is_rounded_down() -> None:
    assert [amount(text).of(9) for text in ("2", "50%", "100%")] == [2, 4, 9]


def test_the_gate_takes_the_run_the_reading_and_the_cluster() -> None:
    names = ("good", "stale", "failed", "unread", "cordoned")
    reports = (*REPORTS[:2], report("failed", FindingClass.OK), report("cordoned", FindingClass.OK))
    why = Finding(
        "run",
        FindingClass.ERROR,
        "“X”",
        cause="no room",
        remedy="make room",
        code="run.operation-failed",
        log="wave-1.log",
    )
    run = {"failed": why}
    found = outcomes(names, run, reports, lambda nodes: {"cordoned": "cordon"})
    assert [name for name, each in found.items() if each.passed] == ["good"]
    assert [unnamed(found[name].reason, said) for name, said in (("failed", "wave-1.log"), ("cordoned", "cordon"))] == [
        [], []
    ]  # fmt: skip
    assert (found["failed"].code, found["failed"].remedy) == (why.code, why.remedy)
    assert found["stale"].finding_class is FindingClass.DRIFT and unnamed(found["stale"].reason, "driver", 1, 2) == []
    assert found["unread"].finding_class is FindingClass.ERROR


NAMES = [f"gpu-{number}" for number in range(1, 13)]


@given(st.permutations(NAMES), st.integers(0, 12), st.lists(st.integers(1, 4), max_size=4), st.data())
def test_a_wave_takes_a_group_whole_or_not_at_all_and_goes_by_the_order(
    names: list[str], capacity: int, sizes: list[int], data: st.DataObject
) -> None:
    mixed, groups = data.draw(st.permutations(NAMES)), []
    for size in sizes:
        groups.append(tuple(mixed[:size]))
        mixed = mixed[size:]
    found = fitting(names, capacity, tuple(groups))
    assert len(found) <= capacity and len(set(found)) == len(found)
    for group in groups:
        assert set(group) <= set(found) or not set(group) & set(found)
    # Whoever is next would be too much, with those that go with it.
    if len(found) < len(names):
        following = next(name for name in names if name not in found)
        assert len(found) + len(with_mates((following,), tuple(groups))) > capacity
    # Without groups it is the first so many.
    assert fitting(names, capacity, ()) == tuple(names[:capacity])
