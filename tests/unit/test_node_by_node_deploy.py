"""One release, brought to one node after the other: pyinfra on @fake hosts, the cluster and nodes' words SIMULATED."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gpunode.kubernetes.nodes.cluster_nodes import ANNOTATION
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE
from gpunode.operations.node_by_node import reason_of
from tests.support import device_plugin_deploy as deploy
from tests.support.device_plugin_deploy import Run, data
from tests.support.messages import unnamed
from tests.support.mps_clients import gpu_pod
from tests.support.simulated_cluster import SimulatedCluster

pytestmark = [pytest.mark.pure, pytest.mark.tier2]
SETS = ("nvdp", "nvdp-mps-control-daemon")
# What a node says of its boot and of its MPS daemons, which a @fake host does not.
SAID = """
from types import SimpleNamespace

import gpunode.operations.drain as drain
import gpunode.operations.node_by_node as turns


def read_back(state, host, settings):
    host.log("MPS limits read back")
    return host.data.get("x_limits", True)


drain.read_fact, turns._limits_read_back = lambda *_: SimpleNamespace(boot_id=""), read_back
"""


def run(folder: Path, hosts: Mapping[str, Mapping[str, Any]], *options: str) -> Run:
    with patch.object(deploy, "DEPLOY", SAID + deploy.DEPLOY):
        return deploy.run(folder, hosts, *options)


def hosts(cluster: SimulatedCluster, first: int, second: int, **more: Any) -> dict[str, dict[str, Any]]:
    """Return two nodes that share their GPUs by MPS, with so many replicas, and are drained where need be."""
    made = {
        name: data(cluster, name, sharing={"strategy": "mps", "replicas": count}, **more)
        for name, count in (("gpu-1", first), ("gpu-2", second))
    }
    for each in made.values():
        each["kubernetes"] |= {"drain": {"enabled": True}, "timeout": 10}
    return made


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster whose two nodes share by MPS in 4 parts, each with a client."""
    made = SimulatedCluster.of(tmp_path, "gpu-1", "gpu-2")
    made.write(with_daemon=True, drains=True, generation=1, objects={"daemonsets.apps,pods": [], "pods": []})
    first = run(tmp_path, hosts(made, 4, 4))
    assert first.code == 0, first.said
    nodes = made.state()["nodes"]
    for node in nodes.values():
        node["metadata"]["labels"][MPS_CAPABLE] = "true"
    pod = {"generation": 1, "ready": True}
    pods = {f"{name}-{node}": {"set": name, "node": node, **pod} for name in SETS for node in nodes}
    clients = [gpu_pod("training"), gpu_pod("serving", node="gpu-2")]
    made.write(nodes=nodes, plugin_pods=pods, calls=[], objects={"daemonsets.apps,pods": [], "pods": clients})
    return made


def anew(cluster: SimulatedCluster) -> set[str]:
    """Return the nodes all of whose pods are others than before."""
    pods = cluster.state()["plugin_pods"].items()
    return {each["node"] for _, each in pods} - {each["node"] for name, each in pods if not name.endswith("x")}


def held(cluster: SimulatedCluster) -> set[str]:
    return {name for name, node in cluster.state()["nodes"].items() if node["spec"].get("unschedulable")}


IMAGE: dict[str, Any] = {"device_plugin": {"image": "mirror.example/nvidia/k8s-device-plugin"}}


def test_a_release_comes_to_one_node_after_the_other_once(cluster: SimulatedCluster, tmp_path: Path) -> None:
    done = run(tmp_path, hosts(cluster, 4, 4, **IMAGE))
    assert done.code == 0, done.said
    assert anew(cluster) == {"gpu-1", "gpu-2"} and held(cluster) == set()
    calls = [" ".join(call[:3]) for call in cluster.state()["calls"]]
    order = [each for each in calls if each.startswith(("kubectl drain", "kubectl delete", "helm upgrade"))]
    # Each is drained, and its pods go, before the other is looked at.
    first, second = (each.split()[2] for each in order if each.startswith("kubectl drain"))
    assert {first, second} == {"gpu-1", "gpu-2"} and order.count("helm upgrade nvdp") == 1
    assert [each.split()[1] for each in order] == ["upgrade", "drain", "delete", "drain", "delete"]
    assert done.said.count("MPS limits read back") == 2
    # A turn looks every second: at its own node, and not at the thousands of pods of others.
    every = [" ".join(call) for call in cluster.state()["calls"]]
    turns = every[next(number for number, each in enumerate(every) if each.startswith("helm upgrade")) :]
    pods = [each for each in turns if each.startswith("kubectl get pods ")]
    assert pods and all("--field-selector spec.nodeName=gpu-" in each for each in pods)
    cluster.write(calls=[])
    again = run(tmp_path, hosts(cluster, 4, 4, **IMAGE))
    assert again.code == 0 and not cluster.called("helm upgrade"), again.said
    assert not cluster.called("kubectl patch") and not cluster.called("kubectl delete")


def test_a_node_that_fails_in_its_turn_stays_cordoned(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(sick=["gpu-1", "gpu-2"])
    done = run(tmp_path, hosts(cluster, 4, 4, **IMAGE))
    (broken,) = anew(cluster)
    (other,) = {"gpu-1", "gpu-2"} - {broken}
    assert done.code == 1 and held(cluster) == {broken}, done.said
    assert not cluster.called(f"kubectl drain {other}")
    # The next run goes on where this one stopped: the node is well by now, and is given back before the other's turn.
    pods = {name: {**each, "ready": True} for name, each in cluster.state()["plugin_pods"].items()}
    cluster.write(sick=[], plugin_pods=pods, calls=[])
    done = run(tmp_path, hosts(cluster, 4, 4, **IMAGE))
    assert done.code == 0, done.said
    assert anew(cluster) == {"gpu-1", "gpu-2"} and held(cluster) == set()
    assert not cluster.called("helm upgrade") and not cluster.called(f"kubectl drain {broken}")


def test_an_api_server_that_begins_anew_stops_nothing(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(hiccups_after_delete={"kubectl get pods --namespace": 2})
    done = run(tmp_path, hosts(cluster, 4, 4, **IMAGE))
    assert done.code == 0 and anew(cluster) == {"gpu-1", "gpu-2"} and held(cluster) == set(), done.said
    assert not cluster.state()["hiccups"]


def noted(cluster: SimulatedCluster, name: str, reason: str, state: str = "failed") -> None:
    """Have a node held empty by an earlier run, for a reason."""
    nodes = cluster.state()["nodes"]
    note = {"state": state, "reason": reason, "since": "2026-11-26T12:00:00Z", "cordon": "gpunode"}
    nodes[name]["spec"]["unschedulable"] = True
    nodes[name]["metadata"].setdefault("annotations", {})[ANNOTATION] = json.dumps(note)
    cluster.write(nodes=nodes)


@pytest.mark.parametrize("options", [{}, IMAGE])
def test_a_node_that_others_emptied_stays_so(
    cluster: SimulatedCluster, tmp_path: Path, options: dict[str, Any]
) -> None:
    """It waits for the verdict, which it failed: also where the release had it emptied, and where pods come anew."""
    reason = "the MPS daemon of gpu-1 is to restart"
    noted(cluster, "gpu-1", reason)
    done = run(tmp_path, hosts(cluster, 4, 4, disruption={"max_parallel": 2}, **options))
    assert done.code == 0 and anew(cluster) == ({"gpu-1", "gpu-2"} if options else set()), done.said
    assert held(cluster) == {"gpu-1"}
    assert json.loads(cluster.state()["nodes"]["gpu-1"]["metadata"]["annotations"][ANNOTATION])["reason"] == reason


def test_the_node_where_a_run_was_cut_off_comes_first(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """Else the other one, which may not be empty at the same time, is refused."""
    noted(cluster, "gpu-2", reason_of("gpu-2"), "drained")
    cluster.write(objects={"daemonsets.apps,pods": [], "pods": [gpu_pod("training")]})
    asked = {name: {**each, "sharing": {}} for name, each in hosts(cluster, 4, 4).items()}
    done = run(tmp_path, asked)
    assert done.code == 0 and held(cluster) == set(), done.said
    calls = [" ".join(call[:3]) for call in cluster.state()["calls"]]
    assert "kubectl drain gpu-1" in calls and "kubectl drain gpu-2" not in calls


def test_a_node_is_not_drained_again_for_its_labels(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """Its clients are back by the time that the others get theirs."""
    noted(cluster, "gpu-2", reason_of("gpu-2"), "drained")
    cluster.write(objects={"daemonsets.apps,pods": [], "pods": []}, come_back=[gpu_pod("serving", node="gpu-2")])
    done = run(tmp_path, hosts(cluster, 4, 8))
    assert done.code == 0 and cluster.labels("gpu-2")[CONFIG] == "mps-8", done.said
    assert anew(cluster) == {"gpu-2"} and held(cluster) == set() and not cluster.called("kubectl drain")


def test_daemons_with_other_limits_stop_the_release(cluster: SimulatedCluster, tmp_path: Path) -> None:
    asked = {name: {**each, "x_limits": False} for name, each in hosts(cluster, 4, 4, **IMAGE).items()}
    done = run(tmp_path, asked)
    assert done.code == 1 and len(anew(cluster)) == 1 and held(cluster) == anew(cluster)


def test_another_replica_count_restarts_its_daemon_alone(cluster: SimulatedCluster, tmp_path: Path) -> None:
    done = run(tmp_path, hosts(cluster, 4, 8))
    assert done.code == 0, done.said
    assert anew(cluster) == {"gpu-2"} and cluster.labels("gpu-2")[CONFIG] == "mps-8" and held(cluster) == set()
    assert not cluster.called("kubectl drain gpu-1") and cluster.called("kubectl drain gpu-2") == 1
    # With the entry that came, and without the one that is left over.
    assert cluster.called("helm upgrade") == 1


def test_what_the_settings_forbid_waits_on_its_node(cluster: SimulatedCluster, tmp_path: Path) -> None:
    asked = hosts(cluster, 4, 4, **IMAGE)
    asked["gpu-1"]["disruption"] = {"allow": "nothing"}
    done = run(tmp_path, asked)
    assert done.code == 0 and anew(cluster) == {"gpu-2"} and held(cluster) == set(), done.said
    assert unnamed(done.said, "gpu-1", "disruption.allow", "nothing") == []


def test_a_node_without_clients_is_not_drained(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(objects={"daemonsets.apps,pods": [], "pods": [gpu_pod("serving", node="gpu-2")]})
    done = run(tmp_path, hosts(cluster, 4, 4, **IMAGE), "-y", "--limit", "@fake/gpu-1")
    assert done.code == 0 and anew(cluster) == {"gpu-1"} and not cluster.called("kubectl drain"), done.said
