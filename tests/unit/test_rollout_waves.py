"""Which waves come, whatever becomes of the nodes and of the controller."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.fleet.rollout.amount import amount
from gpunode.fleet.rollout.choice import CanaryError, canaries, sorted_out
from gpunode.fleet.rollout.entries import Begun, Ended, Outcome, Resumed, WaveBegun, WaveEnded
from gpunode.fleet.rollout.gate import RunResult, outcomes
from gpunode.fleet.rollout.progress import OutOfOrder, Progress, Stop, Wave, next_step, waves_to_come
from gpunode.fleet.rollout.together import TogetherError, fitting, refuse_cut, together, with_mates
from tests.support.messages import unnamed
from tests.support.rollout_waves import AT, PASSED, REPORTS, report, rollout

pytestmark = pytest.mark.pure

FAILED = Outcome(finding_class=FindingClass.DRIFT, passed=False, reason="drift")
GROUP = ("gpu-2", "gpu-3", "gpu-4")


def in_groups(progress: Progress, *groups: tuple[str, ...]) -> Progress:
    return replace(progress, begun=progress.begun.model_copy(update={"together": groups}))


def begun(progress: Progress, wave: Wave) -> Progress:
    return progress.after(WaveBegun(number=wave.number, kind=wave.kind, nodes=wave.nodes, at=AT))


def ended(progress: Progress, wave: Wave, *failing: str) -> Progress:
    found = {name: FAILED if name in failing else PASSED for name in wave.nodes}
    return progress.after(WaveEnded(number=wave.number, outcomes=found, at=AT))


def step(progress: Progress, *failing: str) -> tuple[Progress, tuple[str, ...]]:
    """Carry out the wave that comes next, and return the progress after it and the wave's nodes."""
    wave = next_step(progress)
    assert isinstance(wave, Wave)
    return ended(begun(progress, wave), wave, *failing), wave.nodes


def resumed(progress: Progress) -> Progress:
    return progress.after(Resumed(at=AT))


def stopped(progress: Progress) -> Progress:
    return progress.after(Ended(how="stopped", at=AT))


@pytest.mark.parametrize(
    ("progress", "waves"),
    [
        (rollout(6, most=2), ["gpu-1", "gpu-2 gpu-3", "gpu-4 gpu-5", "gpu-6"]),
        # Named canaries, in no larger waves than others.
        (rollout(4, canary_names=("gpu-4", "gpu-2")), ["gpu-4", "gpu-2", "gpu-1", "gpu-3"]),
        (rollout(3, most=2, away=1), ["gpu-1", "gpu-2", "gpu-3"]),
        # Nodes that go together wait for room.
        (in_groups(rollout(5, most=3), GROUP), ["gpu-1", "gpu-2 gpu-3 gpu-4", "gpu-5"]),
    ],
)
def test_the_canary_goes_first_and_then_as_many_as_may_be_unavailable(progress: Progress, waves: list[str]) -> None:
    found, end = waves_to_come(progress)
    assert [" ".join(wave.nodes) for wave in found] == waves and end == Stop(True)
    first = len(progress.begun.policy.canaries)
    assert [wave.kind for wave in found] == ["canary"] * first + ["wave"] * (len(waves) - first)


def test_a_canary_that_fails_stops_the_rollout_whatever_may_fail() -> None:
    progress, nodes = step(rollout(4, most=4, budget=4), "gpu-1")
    assert nodes == ("gpu-1",)
    end = next_step(progress)
    assert isinstance(end, Stop) and not end.finished
    assert unnamed(end.reason, "canary", "gpu-1") == []
    assert progress.untouched == ("gpu-2", "gpu-3", "gpu-4")


def test_one_failure_more_than_the_budget_stops_the_rollout() -> None:
    progress, _ = step(rollout(9, most=4, budget=1))
    progress, nodes = step(progress, "gpu-2")
    assert len(nodes) == 4
    # What failed stays unavailable: only three more may go down.
    progress, nodes = step(progress, "gpu-7")
    assert nodes == ("gpu-6", "gpu-7", "gpu-8")
    end = next_step(progress)
    assert isinstance(end, Stop) and unnamed(end.reason, 2, 1) == []


def test_no_wave_comes_where_as_many_nodes_are_away_as_may_be_unavailable() -> None:
    end = next_step(rollout(3, most=2, away=2))
    assert isinstance(end, Stop) and not end.finished
    assert unnamed(end.reason, "away-0", "away-1") == []


def test_only_nodes_that_were_away_from_the_beginning_stop_a_rollout_for_good() -> None:
    end = next_step(resumed(stopped(rollout(3, most=1, away=1))))
    assert isinstance(end, Stop) and end.for_good
    progress, _ = step(rollout(6, most=2, budget=3, away=1))
    progress, _ = step(progress, "gpu-2")
    end = next_step(progress)
    assert isinstance(end, Stop) and not end.for_good
    assert isinstance(next_step(resumed(stopped(progress))), Wave)


def test_an_interrupted_wave_is_repeated_with_its_own_nodes() -> None:
    progress, _ = step(rollout(5, most=2))
    wave = next_step(progress)
    assert isinstance(wave, Wave)
    assert next_step(resumed(begun(progress, wave))) == replace(wave, repeated=True)


def test_those_that_failed_before_a_stop_come_first_and_alone_whether_it_was_written_or_not() -> None:
    progress, _ = step(rollout(6, most=3))
    progress, _ = step(progress, "gpu-3")
    assert isinstance(next_step(progress), Stop)
    progress, nodes = step(resumed(stopped(progress)))
    assert nodes == ("gpu-3",)
    assert step(progress)[1] == ("gpu-5", "gpu-6")
    progress, _ = step(rollout(3), "gpu-1")
    assert next_step(resumed(progress)) == Wave(2, "canary", ("gpu-1",))


def test_what_failed_within_the_budget_is_not_tried_again_after_a_pause() -> None:
    progress, _ = step(rollout(6, most=3, budget=1))
    progress, _ = step(progress, "gpu-2")
    assert next_step(resumed(progress.after(Ended(how="paused", at=AT)))) == Wave(3, "wave", ("gpu-5", "gpu-6"))


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


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("0", ()), ("1", ("stale",)), ("9", ("stale", "mendable")), ("mendable", ("mendable",)),
        ("good,stale", ("stale",)), ("nobody", None), ("stale,gone", None), ("refused", None), (",", None),
    ],
)  # fmt: skip
def test_canaries_are_so_many_or_named_and_can_be_some(asked: str, first: tuple[str, ...] | None) -> None:
    found = sorted_out(REPORTS, everyone=False)
    if first is not None:
        assert canaries(asked, *found) == first
        return
    with pytest.raises(CanaryError):
        canaries(asked, *found)


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


def test_nodes_that_go_together_stop_a_rollout_that_has_no_room_left() -> None:
    progress = in_groups(rollout(6, most=3, budget=1), ("gpu-3", "gpu-4", "gpu-5"))
    progress, _ = step(progress)
    progress, nodes = step(progress, "gpu-2")
    assert nodes == ("gpu-2",)
    found = next_step(progress)
    assert isinstance(found, Stop) and not found.finished and not found.for_good
    assert unnamed(found.reason, "gpu-2", 3) == []
    # Gone on with, the one that failed is tried again first; then there is room.
    progress, nodes = step(resumed(stopped(progress)))
    assert nodes == ("gpu-2",)
    assert step(progress)[1] == ("gpu-3", "gpu-4", "gpu-5")


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
    assert with_mates(("gpu-3", "gpu-8"), (("gpu-1", "gpu-3"),)) == ("gpu-3", "gpu-1", "gpu-8")


@pytest.mark.parametrize(("most", "away", "remedy"), [(2, 0, 3), (3, 1, 4), (1, 0, 3)])
def test_a_group_that_no_wave_has_room_for_is_refused_before_anything_is_begun(
    most: int, away: int, remedy: int
) -> None:
    groups = (("gpu-1", "gpu-2", "gpu-3"),)
    with pytest.raises(TogetherError) as refused:
        refuse_cut(groups, most, away)
    assert unnamed(str(refused.value), "gpu-1 to gpu-3", f"--max-unavailable {remedy}") == []
    refuse_cut(groups, remedy, away)
    # Where there is no room for anybody, that is the reason.
    refuse_cut(groups, 2, 2)
