"""What comes before the plugin's MPS daemons restart under clients: decided once, for drift, the plan and the run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.comparison import compared
from gpunode.base.decision import Decision, Step, marked
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.kubernetes.device_plugin.decide_restart import (
    NONE,
    Bounds,
    behind_restart,
    decide_label,
    decide_restart,
    waits,
    with_restart,
)
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT, LabelChange
from gpunode.settings import Settings, settings_from

pytestmark = pytest.mark.pure
POD = ["team/training"]


def _settings(allow: str = "restart", most: int = 1, drains: bool = True) -> Settings:
    kubernetes = {"enabled": True, "drain": {"enabled": drains}}
    return settings_from({"disruption": {"allow": allow, "max_parallel": most}, "kubernetes": kubernetes})


def _bounds(held: tuple[str, ...] = (), wave: int = 0, **settings: Settings) -> Bounds:
    named = {name.replace("_", "-"): each for name, each in settings.items()}
    return Bounds(named, frozenset(named), held, wave)


_PODS = st.lists(st.integers(0, 99).map("team/pod-{}".format), max_size=9)
_NAMES = st.sampled_from(["gpu-1", "gpu-2", "gpu-3"])


@given(
    clients=st.dictionaries(_NAMES, _PODS),
    allowed=st.dictionaries(_NAMES, st.sampled_from(["nothing", "restart", "reset", "reboot"])),
    in_run=st.frozensets(_NAMES),
    held=st.frozensets(_NAMES),
    most=st.integers(1, 4),
    wave=st.integers(0, 4),
)
def test_all_nodes_with_clients_are_drained_within_the_bounds_or_every_one_waits(
    clients: dict[str, list[str]],
    allowed: dict[str, str],
    in_run: frozenset[str],
    held: frozenset[str],
    most: int,
    wave: int,
) -> None:
    decision = decide_restart(clients, Bounds({n: _settings(a, most) for n, a in allowed.items()}, in_run, held, wave))
    felt = {name for name, pods in clients.items() if pods}
    assert {step.change for step in decision.steps} == felt
    assert all(step.disruption is Disruption.restart for step in decision.steps)
    assert len({step.waits for step in decision.steps}) <= 1
    reached = felt <= in_run & allowed.keys()
    may = reached and all(allowed[name] != "nothing" for name in felt)
    room = felt <= held or len(felt | held) <= max(most, wave)
    assert (waits(decision) is None) is ((may and room) or not felt)
    # What the settings forbid is pending; what takes another run is refused.
    assert (decision.refusal is not None) is bool(felt and (not reached or (may and not room)))
    assert decision.refusal is None or str(waits(decision)) in decision.refusal


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (_bounds(gpu_1=_settings("nothing"), gpu_2=_settings()), "gpu-1 has 1 GPU pod and disruption.allow is nothing"),
        (_bounds(gpu_1=_settings()), "gpu-2 is not in this run and has 1 GPU pod"),
        (_bounds(gpu_1=_settings(), gpu_2=_settings()), "gpu-1, gpu-2 would be empty at the same time"),
        (_bounds(gpu_1=_settings(), gpu_2=_settings()), "time, for these daemons restart at once, and"),
        (_bounds(("gpu-9",), gpu_1=_settings(most=2), gpu_2=_settings(most=2)), "gpu-1, gpu-2, gpu-9 would be empty"),
    ],
)
def test_the_reason_names_nodes_pods_and_setting(bounds: Bounds, reason: str) -> None:
    assert reason in str(waits(decide_restart({"gpu-1": POD, "gpu-2": POD}, bounds)))


def test_one_node_that_has_its_turn_alone_is_told_who_is_in_its_way() -> None:
    said = str(waits(decide_restart({"gpu-1": POD}, _bounds(("gpu-9",), gpu_1=_settings()))))
    assert "gpu-1, gpu-9 would be empty at the same time, for gpunode holds gpu-9 so already" in said
    assert "at once" not in said


@pytest.mark.parametrize(
    "bounds",
    [
        _bounds(gpu_1=_settings(most=2), gpu_2=_settings(most=2)),
        _bounds(gpu_1=_settings(drains=False), gpu_2=_settings(drains=False)),
        _bounds(("gpu-1",), gpu_1=_settings(most=2), gpu_2=_settings(most=2)),
        _bounds(wave=2, gpu_1=_settings(), gpu_2=_settings()),
    ],
)
def test_two_nodes_are_drained_where_two_may_be_empty_or_none_is_drained(bounds: Bounds) -> None:
    decision = decide_restart({"gpu-1": POD, "gpu-2": POD}, bounds)
    assert decision.refusal is None and [step.change for step in decision.steps] == ["gpu-1", "gpu-2"]
    assert waits(decision) is None


def test_many_pods_are_counted_and_ways_out_are_named() -> None:
    decision = decide_restart({"gpu-1": [f"team/pod-{number}" for number in range(7)]}, _bounds())
    assert (
        decision.steps[0].action.endswith("team/pod-3, team/pod-4, 2 more") and decision.steps[0].actual == "7 GPU pods"
    )
    assert "disruption.allow = 'restart'" in str(decision.refusal) and "max_parallel" in str(decision.refusal)


def _changing() -> Decision[str]:
    item = compared("kubernetes", "helm release gpu/nvdp", "another", "0.20.0", False)
    good = compared("kubernetes", "label a", "b", "b", True)
    return Decision((good, item), (Step("upgrade", (item,), Disruption.nothing, change="it"),))


def test_what_restarts_daemons_tells_whom_it_ends_and_stays_a_change() -> None:
    decision = with_restart(_changing(), decide_restart({"gpu-1": POD}, _bounds(gpu_1=_settings())))
    good, item = marked(decision).findings
    assert good.disruption is None and item.disruption is Disruption.restart and not item.by_person
    assert item.finding_class is FindingClass.DRIFT and "which ends team/training" in str(item.cause)
    (step,) = decision.steps
    assert (
        step.waits is None and step.change == "it" and step.disruption is Disruption.restart and step.settles == (item,)
    )


@pytest.mark.parametrize("bounds", [_bounds(gpu_1=_settings("nothing")), _bounds()])
def test_what_waits_is_pending_with_its_reason_and_not_a_person_s(bounds: Bounds) -> None:
    restart = decide_restart({"gpu-1": POD}, bounds)
    decision = with_restart(_changing(), restart)
    _, item = marked(decision).findings
    assert item.finding_class is FindingClass.RESTART_PENDING and not item.by_person
    assert str(waits(restart)) in str(item.cause) and "End these pods" in str(item.remedy)
    assert decision.steps[0].waits == waits(restart) and decision.refusal == restart.refusal


def test_without_clients_a_change_stays_as_it_is_but_for_what_is_not_known() -> None:
    assert with_restart(_changing(), NONE) == _changing()
    unknown = compared("kubernetes", "pods with a GPU", "unknown", "known", False)
    assert with_restart(_changing(), Decision((unknown,))).findings == (*_changing().findings, unknown)


def _labels(**to_set: Any) -> LabelChange:
    return LabelChange(
        {CONFIG if name == "config" else PRESENT: value for name, value in to_set.items()}, (), None, {}, False
    )


def test_a_label_for_another_configuration_waits_with_the_release_that_is_to_have_it() -> None:
    pending = decide_restart({"gpu-1": POD}, _bounds(gpu_1=_settings("nothing")))
    allowed = decide_restart({"gpu-1": POD}, _bounds(gpu_1=_settings()))
    assert decide_label(NONE, pending, _labels(config="mps-8")) is pending
    assert decide_label(allowed, pending, _labels(present="true")) is allowed
    assert decide_label(NONE, allowed, _labels(config="mps-8")) is NONE
    item = behind_restart(compared("kubernetes", "allocatable nvidia.com/gpu", 4, 8, False), "it waits")
    assert item.finding_class is FindingClass.RESTART_PENDING and item.cause == "it waits"
