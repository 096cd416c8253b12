"""The GPU Operator's MIG manager: its state by the node's label is judged, and its log is told where it failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.base.reading import ParseError
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.mig import Mig as MigFact
from gpunode.kubernetes.device_plugin.verdict import comes_by_itself
from gpunode.kubernetes.mig_manager import judge_mig_manager, parse_pods
from gpunode.operations import vectors, verify_cluster
from gpunode.settings import Settings, settings_from
from gpunode.system.gpu import Gpus
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host
from tests.support.verify_cluster import TWO

STATE = "nvidia.com/mig.config.state"
ASKED = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/gpu.deploy.mig-manager": "true"}


def operated(cluster: dict[str, Any] | None = None, mig_manager: bool = True) -> Settings:
    return settings_from(
        {
            "kubernetes": {"enabled": True, **(cluster or {})},
            "device_plugin": {"method": "gpu-operator", "nfd": "chart"},
            "gpu_operator": {"mig_manager": mig_manager},
        }
    )


@pytest.mark.pure
@pytest.mark.parametrize(
    ("labels", "actual", "good", "waits"),
    [
        ({**ASKED, STATE: "success"}, "success", True, None),
        ({**ASKED, STATE: "pending"}, "pending", False, True),
        ({**ASKED, STATE: "rebooting"}, "rebooting", False, True),
        (ASKED, "none", False, True),
        ({**ASKED, STATE: "failed"}, "failed", False, False),
    ],
)
def test_what_the_manager_says_by_the_node_s_label_is_judged_and_a_failure_is_a_person_s(
    labels: dict[str, str], actual: str, good: bool, waits: bool | None
) -> None:
    (item,) = judge_mig_manager(operated(), labels)
    assert (item.what, item.actual, item.desired) == ("the operator's MIG manager on all-1g.10gb", actual, "success")
    assert (item.finding_class == "ok") is good
    if not good:
        assert comes_by_itself(item) is waits
        assert "kubectl --namespace gpu-operator logs --selector app=nvidia-mig-manager" in str(item.remedy)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("asked", "labels"),
    [
        (operated(mig_manager=False), ASKED),
        (settings_from({}), ASKED),
        (operated(), {"nvidia.com/mig.config": "all-1g.10gb"}),
        (operated(), {"nvidia.com/gpu.deploy.mig-manager": "true"}),
        (operated(), {**ASKED, "nvidia.com/gpu.deploy.mig-manager": "false"}),
    ],
)
def test_a_node_without_the_manager_or_without_its_label_is_not_asked_for_a_state(
    asked: Settings, labels: dict[str, str]
) -> None:
    assert list(judge_mig_manager(asked, {**labels, STATE: "failed"})) == []


@pytest.mark.pure
@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"items": [1]}'])
def test_what_is_no_list_of_pods_is_no_answer(answer: str) -> None:
    with pytest.raises(ParseError, match="kubectl listed no pods"):
        parse_pods(answer)


@pytest.fixture
def node(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return the host that operations see, and let no time pass."""
    host.readings |= {MigFact: TWO, GpusFact: Gpus("ok", 0, None, ())}
    clock = iter(range(0, 100_000, 5))
    for module in (verify_cluster, vectors):
        monkeypatch.setattr(module, "monotonic", lambda: float(next(clock)))
        monkeypatch.setattr(module, "sleep", lambda _: None)
    return host


@pytest.mark.simulated
@pytest.mark.parametrize("failed", [True, False])
def test_a_run_ends_with_what_the_manager_of_that_node_said_where_it_failed(
    failed: bool, tmp_path: Path, node: Host
) -> None:
    """helm and kubectl are SIMULATED."""
    cluster = SimulatedCluster.of(tmp_path, "gpu-1")
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["metadata"]["labels"] |= {**ASKED, STATE: "failed" if failed else "success"}
    pod = {"metadata": {"name": "nvidia-mig-manager-x7k"}}
    said = "Error: no GPU of 0000:01:00.0 takes 1g.10gb"
    cluster.write(nodes=nodes, log=said, objects={"daemonsets.apps,pods": [], "pods": [pod]})
    for command in verify_cluster.verified._inner(settings=operated({**cluster.settings(), "timeout": 10}), gpus=()):
        assert command.function(node.state, node) is False
    told = "\n".join(node.refusals)
    assert (f"nvidia-mig-manager-x7k said: {said}" in told) is failed
    asked = [" ".join(each) for each in cluster.state()["calls"] if "app=nvidia-mig-manager" in each]
    assert len(asked) == failed
    if failed:
        assert "--namespace gpu-operator" in asked[0] and "--field-selector spec.nodeName=gpu-1" in asked[0]
