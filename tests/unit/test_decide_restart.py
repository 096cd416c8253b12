"""What comes before the plugin's MPS daemons restart under clients: decided once, for drift, the plan and the run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import Decision, Step, marked
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.kubernetes.device_plugin.decide_labels import LABEL
from gpunode.kubernetes.device_plugin.decide_pods import ALLOCATABLE
from gpunode.kubernetes.device_plugin.decide_restart import (
    NONE,
    Bounds,
    behind_restart,
    decide_label,
    decide_restart,
    waits,
    with_restart,
)
from gpunode.kubernetes.helm.change import RELEASE
from gpunode.kubernetes.mps_restarts import GPU_PODS
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT, LabelChange
from gpunode.settings import Settings, settings_from
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure
POD = ["team/training"]


def _settings(allow: str = "restart", most: int = 1) -> Settings:
    return settings_from({"disruption": {"allow": allow, "max_parallel": most}, "kubernetes": {"enabled": True}})


def _restart(allow: str | None) -> Decision[str]:
    """Return what comes before a restart on gpu-1, which is in the run where its settings are given."""
    named = {} if allow is None else {"gpu-1": _settings(allow)}
    return decide_restart({"gpu-1": POD}, Bounds(named, frozenset(named)))


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


def _changing() -> Decision[str]:
    item = RELEASE.compared("another", "0.20.0", False, of="gpu/nvdp")
    good = LABEL.compared("b", "b", True, of="a")
    return Decision((good, item), (Step("upgrade", (item,), Disruption.nothing, change="it"),))


def test_what_restarts_daemons_tells_whom_it_ends_and_stays_a_change() -> None:
    good, item = marked(decision := with_restart(_changing(), _restart("restart"))).findings
    assert good.disruption is None and item.disruption is Disruption.restart and not item.by_person
    assert item.finding_class is FindingClass.DRIFT and unnamed(item.cause, *POD) == []
    (step,) = decision.steps
    assert (step.waits, step.change, step.disruption, step.settles) == (None, "it", Disruption.restart, (item,))


@pytest.mark.parametrize("allow", ["nothing", None])
def test_what_waits_is_pending_with_its_reason_and_not_a_person_s(allow: str | None) -> None:
    restart = _restart(allow)
    decision = with_restart(_changing(), restart)
    _, item = marked(decision).findings
    assert item.finding_class is FindingClass.RESTART_PENDING and not item.by_person
    assert str(waits(restart)) in str(item.cause) and item.remedy
    assert decision.steps[0].waits == waits(restart) and decision.refusal == restart.refusal


def test_without_clients_a_change_stays_as_it_is_but_for_what_is_not_known() -> None:
    assert with_restart(_changing(), NONE) == _changing()
    unknown = GPU_PODS.compared("unknown", "known", False)
    assert with_restart(_changing(), Decision((unknown,))).findings == (*_changing().findings, unknown)


def _labels(**to_set: Any) -> LabelChange:
    return LabelChange(
        {CONFIG if name == "config" else PRESENT: value for name, value in to_set.items()}, (), None, {}, False
    )


def test_a_label_for_another_configuration_waits_with_the_release_that_is_to_have_it() -> None:
    pending, allowed = _restart("nothing"), _restart("restart")
    assert decide_label(NONE, pending, _labels(config="mps-8")) is pending
    assert decide_label(allowed, pending, _labels(present="true")) is allowed
    assert decide_label(NONE, allowed, _labels(config="mps-8")) is NONE
    item = behind_restart(ALLOCATABLE.compared(4, 8, False, of="nvidia.com/gpu"), "it waits")
    assert item.finding_class is FindingClass.RESTART_PENDING and item.cause == "it waits"
