"""Which waves come, whatever becomes of the nodes and of the controller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.fleet.rollout.amount import amount
from gpunode.fleet.rollout.choice import CanaryError, canaries, sorted_out
from gpunode.fleet.rollout.entries import Begun, WaveBegun, WaveEnded
from gpunode.fleet.rollout.gate import RunResult, outcomes
from gpunode.fleet.rollout.progress import OutOfOrder, Stop, next_step, waves_to_come
from gpunode.fleet.rollout.together import fitting, together, with_mates
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


def test_what_is_as_asked_and_what_no_run_can_mend_is_left_out_with_the_reason() -> None:
    nodes, left = sorted_out(REPORTS, everyone=False)
    assert nodes == ("stale", "mendable")
    assert {name: each.finding_class for name, each in left.items()} == {
        "good": "ok", "gone": "unreachable", "refused": "unsupported", "sick": "error",
    }  # fmt: skip
    assert all(each.reason for each in left.values())
    assert sorted_out(REPORTS, everyone=True)[0] == ("good", "stale", "mendable")


def test_a_node_that_merely_waits_for_what_the_settings_do_not_allow_is_no_canary_and_no_wave_s() -> None:
    boots = report("boots", FindingClass.OK, FindingClass.REBOOT_PENDING)
    item = Finding("mig", FindingClass.RESTART_PENDING, "MIG instances", "", "", disruption=Disruption.reset)
    resets = NodeReport("resets", (item,))
    drifts = report("drifts", FindingClass.DRIFT, FindingClass.REBOOT_PENDING)
    reports = (boots, resets, drifts)

    def taken(level: Disruption, everyone: bool = False) -> tuple[str, ...]:
        return sorted_out(reports, everyone, dict.fromkeys(("boots", "resets", "drifts"), level))[0]

    assert taken(Disruption.restart) == taken(Disruption.restart, everyone=True) == ("drifts",)
    assert taken(Disruption.reset) == ("resets", "drifts")
    assert taken(Disruption.reboot) == ("boots", "resets", "drifts")
    nodes, left = sorted_out(reports, False, {"boots": Disruption.restart})
    assert left["boots"].finding_class is FindingClass.REBOOT_PENDING and nodes == ("resets", "drifts")
    assert unnamed(left["boots"].reason, "disruption.allow", "restart") == []
    with pytest.raises(CanaryError):
        canaries("boots", nodes, left)


def test_a_percentage_is_rounded_down() -> None:
    assert [amount(text).of(9) for text in ("2", "50%", "100%")] == [2, 4, 9]


def test_the_gate_takes_the_run_the_reading_and_the_cluster() -> None:
    names = ("good", "stale", "failed", "unread", "cordoned")
    reports = (*REPORTS[:2], report("failed", FindingClass.OK), report("cordoned", FindingClass.OK))
    run = RunResult(frozenset({"failed"}), "wave-1.log")
    found = outcomes(names, run, reports, lambda nodes: {"cordoned": "cordon"})
    assert [name for name, each in found.items() if each.passed] == ["good"]
    assert [unnamed(found[name].reason, said) for name, said in (("failed", "wave-1.log"), ("cordoned", "cordon"))] == [
        [], []
    ]  # fmt: skip
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


def gets_a_list(name: str, kind: FindingClass = FindingClass.DRIFT, by_person: bool = False) -> NodeReport:
    what = "file /etc/nvidia-imex/nodes_config.cfg"
    return NodeReport(name, (Finding("imex", kind, what, "none", "as desired", by_person=by_person),))


def test_nodes_whose_domain_gets_another_list_go_together_and_no_others() -> None:
    rack = frozenset({"gpu-1", "gpu-2", "gpu-3", "gpu-4"})
    other = frozenset({"gpu-5", "gpu-6"})
    domains = {**dict.fromkeys(rack, rack), **dict.fromkeys(other, other)}
    reports = [
        *(gets_a_list(name) for name in ("gpu-1", "gpu-3", "gpu-5")),
        gets_a_list("gpu-2", FindingClass.OK),
        gets_a_list("gpu-4", by_person=True),
        gets_a_list("gpu-6", FindingClass.RESTART_PENDING),
        gets_a_list("gpu-9"),
    ]
    assert together(NAMES, reports, domains) == (("gpu-1", "gpu-3"), ("gpu-5", "gpu-6"))
    # One node of a domain, whose list a hand changed, is healed by itself.
    assert together(NAMES, [gets_a_list("gpu-1")], domains) == ()
