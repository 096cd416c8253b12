"""What drift, a plan and a rollout's waves say of drains."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.base.run_context import RUN_NAME, WAVE
from gpunode.fleet import cluster
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.fleet.run import child
from gpunode.fleet.run.child import Files
from gpunode.kubernetes.drain.session import DrainError
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, parse_node
from gpunode.kubernetes.nodes.cordon import judged
from gpunode.node.plan import plan
from gpunode.settings import check_hosts, settings_from
from tests.support.simulated_node import BUDGET, NOW, Cluster, pod, session
from tests.support.verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


def _node(cluster: Cluster) -> ClusterNode:
    return parse_node(json.dumps(cluster.node))


def test_drift_tells_of_a_node_that_gpunode_holds_back_and_of_no_other_cordon() -> None:
    cluster = Cluster()
    assert judged(_node(cluster)).finding_class is FindingClass.OK
    cluster.by_hand(True)
    assert judged(_node(cluster)).finding_class is FindingClass.OK
    cluster.by_hand(False)
    cluster.pods, cluster.budgets = [pod("web-1")], [BUDGET]
    with pytest.raises(DrainError):
        session(cluster).empty("a reboot")
    found = judged(_node(cluster))
    assert found.finding_class is FindingClass.DRIFT
    assert found.actual == f"drain blocked since {NOW}, for: a reboot"
    assert "budget web" in (found.cause or "") and "run deploys/gpu_node.py" in (found.remedy or "")


def _inventory(**kubernetes: object) -> dict[str, Any]:
    return check_hosts({name: {"kubernetes": {"enabled": True, **kubernetes}} for name in ("gpu-1", "gpu-2", "gpu-3")})


def test_drift_asks_the_cluster_once_for_all_nodes_and_not_at_all_without_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = [Cluster("gpu-1"), Cluster("gpu-2")]
    session(clusters[1], "gpu-2").empty("a reboot")
    asked: list[Command] = []

    def here(command: Command) -> Output:
        asked.append(command)
        return Output(0, json.dumps({"items": [each.node for each in clusters]}), "")

    monkeypatch.setattr(cluster, "reached", lambda *_: nullcontext(here))
    found = cluster.held_back(Path("x"), _inventory())
    assert {name: item.finding_class for name, item in found.items()} == {
        "gpu-1": FindingClass.OK, "gpu-2": FindingClass.DRIFT,
    }  # fmt: skip
    assert len(asked) == 1
    assert cluster.held_back(Path("x"), _inventory(drain={"enabled": False})) == {} and len(asked) == 1


@pytest.mark.parametrize("answer", [Output(1, "", "refused"), Output(0, "<html>", "")])
def test_drift_says_that_it_does_not_know_where_the_cluster_does_not_answer(
    answer: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "reached", lambda *_: nullcontext(lambda _: answer))
    found = cluster.held_back(Path("x"), _inventory())
    assert {item.finding_class for item in found.values()} == {FindingClass.ERROR} and len(found) == 3


@pytest.mark.parametrize(("enabled", "drained"), [(True, True), (False, False)])
def test_a_plan_says_before_which_steps_the_node_is_drained(enabled: bool, drained: bool) -> None:
    asked = {"driver": {"branch": "580"}, "disruption": {"allow": "reboot"}, "kubernetes": {"enabled": enabled}}
    node = replace(GOOD, driver=replace(GOOD.driver, loaded_version="580.82.07"))
    found = plan(settings_from(asked), node)
    assert found.drains is drained
    assert all(step.drains is (drained and step.disruption > Disruption.nothing) for step in found.steps)
    assert ("; drains the node" in plan_text({"gpu-1": found})) is drained
    waits = plan(settings_from({**asked, "disruption": {"allow": "restart"}}), node)
    assert any(step.pending for step in waits.steps) and not waits.drains


def test_a_run_has_what_its_wave_tells_it(tmp_path: Path) -> None:
    script = f"import os; print(os.environ['{WAVE}'], os.environ['{RUN_NAME}'])"
    files = Files(tmp_path / "log", tmp_path / "printed", tmp_path / "events")
    code, _ = child.run([sys.executable, "-c", script], files, "a wave", 3, {WAVE: "3"})
    assert code == 0
    assert (tmp_path / "printed").read_text() == "3 a wave\n"
