"""What a run does where the controller would restart the plugin's MPS daemons all at once: a person's RollingUpdate.

pyinfra on @fake hosts, the cluster SIMULATED. How gpunode does it by itself: test_node_by_node_deploy.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, PRESENT
from tests.support.device_plugin_deploy import Run, data, run
from tests.support.messages import unnamed
from tests.support.mps_clients import gpu_pod
from tests.support.simulated_cluster import SimulatedCluster

pytestmark = [pytest.mark.pure, pytest.mark.tier2]
WITHOUT_DRAIN = {"enabled": False}
AT_ONCE = {"values": {"updateStrategy": {"type": "RollingUpdate"}}}


def _hosts(cluster: SimulatedCluster, first: int, second: int, **settings: Any) -> dict[str, dict[str, Any]]:
    """Return two nodes that share their GPUs by MPS, with so many replicas."""
    drain = settings.pop("drain", WITHOUT_DRAIN)
    made = {
        name: data(cluster, name, sharing={"strategy": "mps", "replicas": count}, device_plugin=AT_ONCE, **settings)
        for name, count in (("gpu-1", first), ("gpu-2", second))
    }
    for each in made.values():
        each["kubernetes"]["drain"] = drain
    return made


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster with MPS on two nodes, one of them with a client."""
    made = SimulatedCluster.of(tmp_path, "gpu-1", "gpu-2")
    made.write(with_daemon=True, objects={"daemonsets.apps,pods": []})
    assert run(tmp_path, _hosts(made, 4, 4)).code == 0
    nodes = made.state()["nodes"]
    for node in nodes.values():
        # By GPU feature discovery or by gpunode; here by either.
        node["metadata"]["labels"][MPS_CAPABLE] = "true"
    made.write(nodes=nodes, objects={"daemonsets.apps,pods": [], "pods": [gpu_pod("training")]}, calls=[])
    return made


def _unchanged(cluster: SimulatedCluster, done: Run, *named: str, pending: bool = False) -> None:
    """Say that nothing was changed, and why: what is pending is no failure, as with any other restart."""
    assert (done.code, "restart pending" in done.said) == ((0, True) if pending else (1, False))
    assert unnamed(done.said, *named) == []
    assert not cluster.called("helm upgrade") and not cluster.called("helm uninstall")
    assert cluster.labels("gpu-1")[CONFIG] == cluster.labels("gpu-2")[CONFIG] == "mps-4"


def test_another_replica_count_waits_for_clients_where_nothing_may_be_disturbed(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    """Also where it is another node's count that changes: the ConfigMap is one for all."""
    forbidden = {"allow": "nothing"}
    done = run(tmp_path, _hosts(cluster, 4, 8, disruption=forbidden))
    _unchanged(cluster, done, "gpu-1", "1 GPU pod", "disruption.allow is nothing", pending=True)
    assert run(tmp_path, _hosts(cluster, 4, 4, disruption=forbidden)).code == 0
    # Without clients, nobody would feel it.
    cluster.write(objects={"daemonsets.apps,pods": [], "pods": []})
    assert run(tmp_path, _hosts(cluster, 4, 8, disruption=forbidden)).code == 0
    assert cluster.labels("gpu-2")[CONFIG] == "mps-8" and PRESENT in cluster.labels("gpu-2")


def test_a_node_with_clients_that_the_run_leaves_out_is_not_disturbed_by_it(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    done = run(tmp_path, _hosts(cluster, 4, 8), "-y", "--limit", "@fake/gpu-2")
    _unchanged(cluster, done, "gpu-1", "1 GPU pod")


def test_a_node_with_clients_is_drained_before_the_release_changes(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """The drain itself has its own tests; this cluster does not tell of the node, so that it comes no further."""
    done = run(tmp_path, _hosts(cluster, 4, 8, drain={"enabled": True}))
    _unchanged(cluster, done, "MPS daemon of gpu-1", "node gpu-1")
    assert cluster.called("kubectl get --raw /api/v1/nodes/gpu-1")


def test_a_node_that_is_not_drained_is_restarted_under_its_pods_which_are_named(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    done = run(tmp_path, _hosts(cluster, 8, 4))
    assert done.code == 0 and cluster.labels("gpu-1")[CONFIG] == "mps-8"
    assert unnamed(done.said, "MPS daemon of gpu-1", "team/training") == []


def test_a_label_alone_waits_as_the_release_does(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """The chart's ConfigMap has both entries already: the node's configuration is what changes."""
    cluster.write(objects={"daemonsets.apps,pods": [], "pods": []})
    assert run(tmp_path, _hosts(cluster, 4, 8)).code == 0
    cluster.write(objects={"daemonsets.apps,pods": [], "pods": [gpu_pod("training", node="gpu-2")]})
    # The two counts change places.
    done = run(tmp_path, _hosts(cluster, 8, 4, disruption={"allow": "nothing"}))
    assert done.code == 0 and unnamed(done.said, "labels of gpu-2", "MPS daemons") == []
    assert cluster.labels("gpu-1")[CONFIG] == cluster.labels("gpu-2")[CONFIG] == "mps-8"


def test_two_nodes_that_would_be_empty_together_are_refused_before_either_is_drained(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    cluster.write(objects={"daemonsets.apps,pods": [], "pods": [gpu_pod("training"), gpu_pod("serving", node="gpu-2")]})
    done = run(tmp_path, _hosts(cluster, 4, 8, drain={"enabled": True}))
    _unchanged(cluster, done, "gpu-1, gpu-2", "disruption.max_parallel is 1")
    assert not cluster.called("kubectl drain") and not cluster.called("kubectl get --raw /api/v1/nodes/gpu-1")
