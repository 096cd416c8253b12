"""The GPU Operator's MIG manager: its state by the node's label is judged, and its log is told where it failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.operations import vectors, verify_cluster
from gpunode.settings import Settings, settings_from
from gpunode.system.gpu import Gpus
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host
from tests.support.verify_cluster import TWO

STATE = "nvidia.com/mig.config.state"
ASKED = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/gpu.deploy.mig-manager": "true"}


def operated(cluster: dict[str, Any]) -> Settings:
    plugin = {"method": "gpu-operator", "nfd": "chart"}
    kubernetes = {"enabled": True, **cluster}
    return settings_from({"kubernetes": kubernetes, "device_plugin": plugin, "gpu_operator": {"mig_manager": True}})


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
