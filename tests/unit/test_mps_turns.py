"""What drift and the plan tell of a release that comes to its nodes one after the other; helm and kubectl SIMULATED."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.kubernetes.device_plugin.decide_pods import OUTDATED_PODS
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, OURS, PRESENT
from gpunode.settings import Settings, settings_from
from tests.support.messages import unnamed
from tests.support.mps_clients import gpu_pod
from tests.support.mps_restarts import CLUSTER, NODES, RELEASE, installed, told
from tests.support.simulated_cluster import SimulatedCluster, node

pytestmark = [pytest.mark.pure, pytest.mark.tier2]
SETS = ("nvdp", "nvdp-mps-control-daemon")


def _settings(cluster: SimulatedCluster, replicas: int = 4, **more: Any) -> Settings:
    kubernetes = cluster.settings(drain={"enabled": True})
    return settings_from({"kubernetes": kubernetes, "sharing": {"strategy": "mps", "replicas": replicas}, **more})


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster in which two nodes share their GPUs by MPS, each with a client."""
    made = SimulatedCluster.of(tmp_path, *NODES)
    nodes = {name: node(name, **{"nvidia.com/gpu": "4"}) for name in NODES}
    for each in nodes.values():
        each["metadata"]["labels"] |= {CONFIG: "mps-4", PRESENT: "true", MPS_CAPABLE: "true"}
        each["metadata"]["annotations"] = {OURS: f'["{CONFIG}","{PRESENT}","{MPS_CAPABLE}"]'}
    pods = {
        f"{name}-{each}": {"set": name, "node": each, "generation": 1, "ready": True} for name in SETS for each in nodes
    }
    clients = [gpu_pod("training"), gpu_pod("serving", node="gpu-2")]
    made.write(with_daemon=True, generation=1, nodes=nodes, objects={"pods": clients, "daemonsets.apps": []})
    installed(made, _settings(made), _settings(made))
    made.write(plugin_pods=pods)
    return made


IMAGE: dict[str, Any] = {"device_plugin": {"image": "mirror.example/nvidia/k8s-device-plugin"}}


def test_a_release_with_another_template_is_a_step_of_each_node_and_drains_one_after_the_other(
    cluster: SimulatedCluster,
) -> None:
    found = told({name: _settings(cluster, **IMAGE) for name in NODES})
    for name, pod in (("gpu-1", "team/training"), ("gpu-2", "team/serving")):
        (step,) = found.plans[name].steps
        assert unnamed(step.action, name, pod) == []
        assert (step.pending, step.drains, step.disruption) == (False, True, Disruption.restart)
        assert found.plans[name].refusals == ()
    item = found.drift[CLUSTER][RELEASE]
    assert (item.finding_class, item.disruption) == (FindingClass.DRIFT, Disruption.restart)
    assert unnamed(item.cause, "gpu-1") == []


def test_another_entry_of_one_node_is_a_step_of_that_node_alone(cluster: SimulatedCluster) -> None:
    found = told({"gpu-1": _settings(cluster), "gpu-2": _settings(cluster, 8)})
    restart, label, pods = found.plans["gpu-2"].steps
    assert found.plans["gpu-1"].steps == () and restart.drains and label.code == "device-plugin.label"
    assert pods.disruption is Disruption.nothing and not pods.pending
    assert found.drift[CLUSTER][RELEASE].disruption is Disruption.nothing


def test_pods_that_an_earlier_run_left_are_found_and_wait_where_the_settings_forbid_it(
    cluster: SimulatedCluster,
) -> None:
    installed(cluster, _settings(cluster, **IMAGE), _settings(cluster, **IMAGE))
    hosts = {
        "gpu-1": _settings(cluster, **IMAGE, disruption={"allow": "nothing"}),
        "gpu-2": _settings(cluster, **IMAGE),
    }
    found = told(hosts)
    waits, goes = (found.drift[name][OUTDATED_PODS.what] for name in NODES)
    assert (waits.finding_class, goes.finding_class) == (FindingClass.RESTART_PENDING, FindingClass.DRIFT)
    assert unnamed(waits.cause, "gpu-1", "1 GPU pod", "disruption.allow is nothing") == [] and not waits.by_person
    assert goes.disruption is Disruption.restart and not goes.by_person
    (first, stay), (second, go) = found.plans["gpu-1"].steps, found.plans["gpu-2"].steps
    assert first.pending and stay.pending and not (second.pending or go.pending) and second.drains
