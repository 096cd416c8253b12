"""A node that somebody else has cordoned, and is left alone. kubectl is SIMULATED: a script that prints nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host

import gpunode.deploys.component
from gpunode.base.findings import FindingClass
from gpunode.base.reading import Unknown
from gpunode.base.verdicts import Refusal
from gpunode.cli.plan import _of
from gpunode.facts.node import Machine as MachineFact
from gpunode.fleet.cluster import cluster_nodes, with_cluster_nodes
from gpunode.fleet.drift import contained_report
from gpunode.fleet.nodes import Answer
from gpunode.fleet.rollout.choice import left_out
from gpunode.kubernetes.mig_label import left_alone
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, Note
from gpunode.node import Node
from gpunode.node.plan import Plan
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.preflight import machine
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
ASKED = "get nodes --output json --request-timeout 30s"


def _settings(foreign: str = "skip", **kubernetes: Any) -> dict[str, Any]:
    return {"kubernetes": {"enabled": True, "drain": {"foreign_cordon": foreign}, **kubernetes}}


def _node(unschedulable: bool, cordon: str | None = None) -> ClusterNode:
    note = None if cordon is None else Note("drained", "a reason", "2026-01-31T12:00:00Z", cordon)
    return ClusterNode("gpu-1", {}, None, {}, unschedulable, True, note)


@pytest.mark.parametrize(
    "foreign, node, is_left",
    [
        ("skip", _node(False), False),
        ("skip", _node(True), True),
        ("skip", _node(True, "other"), True),
        ("skip", _node(True, "gpunode"), False),
        ("skip", None, False),
        ("drain", _node(True), False),
    ],
)
def test_only_a_node_that_somebody_else_cordoned_is_left_alone(
    foreign: str, node: ClusterNode | None, is_left: bool
) -> None:
    nodes = {} if node is None else {"gpu-1": node}
    found = left_alone("gpu-1", settings_from(_settings(foreign)), nodes)
    assert isinstance(found, Refusal) == is_left
    if isinstance(found, Refusal):
        assert unnamed(found.reason, "node gpu-1") == [] and "`kubectl uncordon gpu-1`" in found.remedy


def test_nothing_is_done_where_nobody_knows_of_the_cordon() -> None:
    found = left_alone("gpu-1", settings_from(_settings()), Unknown("no route"))
    assert found is not None and found.code == "preflight.cordon-not-known" and unnamed(found.remedy, "'drain'") == []


class _Kubectl:
    """A program that notes each call, and prints these nodes."""

    def __init__(self, folder: Path) -> None:
        self.program, self.calls, self.answer = folder / "kubectl", folder / "calls", folder / "answer"
        self.program.write_text(f'#!/bin/sh\necho "$@" >> {self.calls}\ncat {self.answer}\n')
        self.program.chmod(0o755)

    def prints(self, **cordoned: bool) -> None:
        items = [{"metadata": {"name": name}, "spec": {"unschedulable": is_so}} for name, is_so in cordoned.items()]
        self.answer.write_text(json.dumps({"items": items}))

    @property
    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def _with_nodes(inventory: Path, answers: tuple[Answer[Node], ...]) -> list[Answer[Node]]:
    nodes = cluster_nodes(inventory, [each.settings for each in answers])
    assert nodes is not None
    return with_cluster_nodes(answers, nodes)


@pytest.fixture
def kubectl(tmp_path: Path) -> _Kubectl:
    return _Kubectl(tmp_path)


def test_drift_plan_and_rollout_say_so_and_the_cluster_is_asked_once(kubectl: _Kubectl, tmp_path: Path) -> None:
    kubectl.prints(**{"gpu-1": True, "gpu-2": False})
    settings = settings_from(_settings(kubectl=str(kubectl.program)))
    answers = tuple(Answer[Node](name, settings, GOOD, None) for name in ("gpu-1", "gpu-2"))
    first, second = _with_nodes(tmp_path / "unread.py", answers)
    assert kubectl.asked == [ASKED]
    report = contained_report(first)
    finding, *others = report.findings
    assert finding.finding_class is FindingClass.UNSUPPORTED and others
    plan = _of(first)
    assert isinstance(plan, Plan) and [each.code for each in plan.refusals] == ["preflight.foreign-cordon"]
    left = left_out(report, everyone=True)
    assert left is not None and left.finding_class is FindingClass.UNSUPPORTED
    assert second == answers[1]


def test_where_the_cluster_does_not_answer_the_nodes_are_refused_and_judged(kubectl: _Kubectl, tmp_path: Path) -> None:
    kubectl.program.write_text("#!/bin/sh\necho 'The connection to the server was refused' >&2\nexit 1\n")
    settings = settings_from(_settings(kubectl=str(kubectl.program)))
    answers = (Answer[Node]("gpu-1", settings, GOOD, None), Answer[Node]("gpu-2", settings, None, "no route"))
    first, second = _with_nodes(tmp_path / "unread.py", answers)
    finding, *others = contained_report(first).findings
    assert (finding.finding_class, finding.code) == (FindingClass.UNSUPPORTED, "preflight.cordon-not-known") and others
    plan = _of(first)
    assert isinstance(plan, Plan) and [each.code for each in plan.refusals] == ["preflight.cordon-not-known"]
    assert second.reading is None and second.reason == "no route"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Return the operations that a host gets by deploys/component.py."""
    found: list[tuple[str, Any]] = []
    monkeypatch.setattr(gpunode.deploys.component, "leave_alone", lambda name, reason: found.append((name, reason)))
    monkeypatch.setattr(gpunode.deploys.component, "refuse", lambda name, reasons: found.append((name, reasons)))
    yield found
    ctx_host.reset()


class _Run:
    """Stand for pyinfra's state, of which there is one in a run: it is being prepared."""

    is_executing = False


def _accepted(monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]) -> bool:
    host = Host({MachineFact: machine()}, name="gpu-1", state=_Run())
    host.data = SimpleNamespace(dict=lambda: data, override_datas={})  # type: ignore[attr-defined]
    host.groups = []  # type: ignore[attr-defined]
    host.inventory = SimpleNamespace(  # type: ignore[attr-defined]
        get_data=dict, get_host_data=lambda _: data, get_override_data=dict, groups={}
    )
    monkeypatch.setattr(gpunode.deploys.component, "host", host)
    ctx_host.set(host)
    return gpunode.deploys.component.accepted()


@pytest.mark.parametrize(
    ("answer", "operation", "names"),
    [
        ({"gpu-1": True}, "Leave this node alone", []),
        ({"gpu-1": False}, None, []),
        (None, "Refuse this node", ["'drain'"]),
    ],
    ids=["cordoned", "not cordoned", "no answer"],
)
def test_a_run_leaves_a_cordoned_host_alone_and_refuses_one_of_which_nobody_knows(
    kubectl: _Kubectl,
    monkeypatch: pytest.MonkeyPatch,
    given: list[tuple[str, Any]],
    answer: dict[str, bool] | None,
    operation: str | None,
    names: list[str],
) -> None:
    if answer is None:
        kubectl.program.write_text("#!/bin/sh\nexit 1\n")
    else:
        kubectl.prints(**answer)
    assert _accepted(monkeypatch, _settings(kubectl=str(kubectl.program))) == (operation is None)
    assert [name for name, _ in given] == ([operation] if operation else [])
    assert all(name in str(given[0][1]) for name in names)
