"""Does the cluster offer what the settings promise? Judged without one; and looked at where kubectl is SIMULATED."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mps.plugin import PluginDaemon, PluginMps
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.facts.gpu import PluginMps as PluginMpsFact
from gpunode.fleet import cluster as fleet_cluster
from gpunode.fleet import run_end
from gpunode.kubernetes.device_plugin.decide_restart import NONE, Bounds, decide_restart
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, OURS, PRESENT
from gpunode.operations import device_plugin, mps_clients, verify_cluster
from gpunode.settings import settings_from
from gpunode.system.gpu import Gpus
from tests.support.cluster_fleet import of_both
from tests.support.messages import unnamed
from tests.support.simulated_cluster import ENFORCED, SimulatedCluster
from tests.support.simulated_host import Host, State
from tests.support.verify import GOOD, GPU
from tests.support.verify_cluster import (
    DAEMON_SET,
    SHARED,
    _pod,
    _set,
    _settings,
    _verified,
    cluster,
    node,
)

__all__ = ["cluster", "node"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]


def _change(cluster: SimulatedCluster, **node: Any) -> None:
    """Put other labels, allocatable resources or readiness in the place of the node's."""
    nodes = cluster.state()["nodes"]
    if "labels" in node:
        nodes["gpu-1"]["metadata"]["labels"] |= node["labels"]
    if "allocatable" in node:
        nodes["gpu-1"]["status"]["allocatable"] = node["allocatable"]
    if "ready" in node:
        nodes["gpu-1"]["status"]["conditions"][0]["status"] = node["ready"]
    cluster.write(nodes=nodes)


OWN: dict[str, Any] = {"device_plugin": {"config_name": "mine"}, "sharing": {"config": "sliced"}}


@pytest.mark.parametrize(
    ("method", "name"),
    [("helm", DAEMON_SET), ("manifest", "gpunode-device-plugin-mig-mixed")],
    ids=["helm", "manifest"],
)
@pytest.mark.parametrize(
    ("recorded_at", "began", "anew"),
    [
        (1_000, "1970-01-01T00:16:39Z", True),
        (1_000, "1970-01-01T00:16:41Z", False),
        (None, "1970-01-01T00:00:01Z", False),
    ],
    ids=["changed since", "began since", "nothing recorded"],
)
def test_the_plugin_begins_anew_where_the_mig_layout_changed_after_it_did(
    cluster: SimulatedCluster, host: Host, recorded_at: int | None, began: str, anew: bool, method: str, name: str
) -> None:
    pods = [_pod(name, startTime=began), _pod(name, node="gpu-2", startTime="1970-01-01T00:00:01Z")]
    pods[1]["metadata"]["name"] = "of-another-node"
    cluster.write(objects={"daemonsets.apps,pods": [_set(), *pods]})
    host.readings[MigBootFact] = MigBoot(recorded_at=recorded_at)
    sliced = {"mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"}}
    asked = _settings(cluster, **sliced, device_plugin={"method": method})
    for command in device_plugin.current._inner(settings=asked):
        assert command.function(host.state, host, *command.args) is True
    left = {each["metadata"]["name"] for each in cluster.state()["objects"]["daemonsets.apps,pods"]}
    assert (f"{name}-x" not in left) is anew and "of-another-node" in left
    assert not host.refusals and len(host.noops) == (0 if anew else 1)


def test_the_verdict_waits_and_then_fails_with_what_the_plugin_said(cluster: SimulatedCluster, node: Host) -> None:
    _change(cluster, allocatable={})
    said = _verified(node, _settings(cluster, kubernetes={"timeout": 60}))
    # kubectl's logs are not simulated: what it said of that is told in their place.
    assert unnamed(said, "nvidia.com/gpu.shared", "0", "10", f"{DAEMON_SET}-x", "kubectl logs") == []
    assert cluster.called("kubectl get daemonsets.apps,pods") >= 3


@pytest.mark.parametrize("back", [True, False])
def test_an_api_server_may_start_anew(
    cluster: SimulatedCluster, node: Host, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    _change(cluster, allocatable={})
    looks = iter(["down", "up"] if back else ["down"])

    def passes(_: float) -> None:
        now = next(looks, None)
        if now == "down":
            cluster.write(failures={"kubectl get nodes": "Error: connection refused"})
        elif now == "up":
            cluster.write(failures={})
            _change(cluster, allocatable={"nvidia.com/gpu.shared": "10"})

    monkeypatch.setattr(verify_cluster, "sleep", passes)
    said = _verified(node, _settings(cluster, kubernetes={"timeout": 600 if back else 60}))
    assert (said.startswith("5 "), not node.refusals, "connection refused" in said) == (back, back, not back)


def test_the_verdict_does_not_wait_for_what_does_not_come_by_itself(cluster: SimulatedCluster, node: Host) -> None:
    _change(cluster, labels={CONFIG: "theirs"})
    said = _verified(node, _settings(cluster))
    assert unnamed(node.refusals[0], f"label {CONFIG} is theirs", "time-slicing-5-renamed") == [] and "Remedy" in said
    assert cluster.called("kubectl get nodes") == 1


def test_the_verdict_is_good_where_all_is_as_asked_and_starts_no_pod(cluster: SimulatedCluster, node: Host) -> None:
    said = _verified(node, _settings(cluster))
    assert said.startswith("5 ") and said.endswith("; taken: nvidia.com/gpu.shared 0 of 10") and not node.refusals
    assert cluster.called("kubectl create") == 0


def test_the_verdict_asks_the_plugin_s_mps_daemons_once_all_else_is_well(cluster: SimulatedCluster, node: Host) -> None:
    """The facts are made up here: who asks for one that is not there would fail."""
    _change(cluster, labels={CONFIG: "mps-5-renamed", MPS_CAPABLE: "true"})
    pods = [_set(), _pod(), _set(f"{DAEMON_SET}-mps-control-daemon"), _pod(f"{DAEMON_SET}-mps-control-daemon")]
    cluster.write(objects={"daemonsets.apps,pods": pods})
    settings = _settings(cluster, sharing={**SHARED, "strategy": "mps"}, kubernetes={"timeout": 60})
    gpus = tuple(replace(GPU, index=number, compute_mode="Exclusive_Process", memory_mib=40960) for number in (0, 1))
    daemon = PluginDaemon("nvidia.com/gpu.shared", True, "20.0", ((0, "8G"), (1, "8G")))
    node.readings |= {GpusFact: Gpus("ok", 0, None, gpus), PluginMpsFact: PluginMps("/usr/bin/x", (daemon,))}
    assert _verified(node, settings).split()[3:5] == ["as", "desired"] and not node.refusals
    node.readings[PluginMpsFact] = PluginMps("/usr/bin/x", (replace(daemon, percentage="10.0"),))
    assert "percentage is 10.0, desired 20.0" in _verified(node, settings) and node.refusals
    # Nobody is asked where the cluster is not well, nor without MPS.
    del node.readings[PluginMpsFact]
    node.state = State()
    node.refusals.clear()
    _change(cluster, ready="False")
    assert "not Ready, desired Ready" in _verified(node, settings) and "percentage" not in node.refusals[0]


def test_what_waits_for_mps_clients(cluster: SimulatedCluster, node: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has left the label as it was: what the node offers is by its former configuration."""
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["metadata"]["annotations"] = {OURS: json.dumps([CONFIG, PRESENT], separators=(",", ":"))}
    cluster.write(nodes=nodes)
    settings = _settings(cluster, sharing={**SHARED, "replicas": 6}, disruption={"allow": "nothing"})
    assert "allocatable nvidia.com/gpu.shared is 10, desired 12" in _verified(node, settings)
    waiting = decide_restart({"gpu-1": ["team/a"]}, Bounds({"gpu-1": settings}, {"gpu-1"}))
    monkeypatch.setattr(mps_clients, "label_waits", lambda name: waiting if name == "gpu-1" else NONE)
    node.refusals.clear()
    cluster.write(calls=[])
    said = _verified(node, settings)
    assert said.startswith("3 of 5 ") and "; taken: " in said and not node.refusals
    assert cluster.called("kubectl get nodes") <= 1
    # So is an image that the release would bring, if it did not wait.
    asked = _settings(cluster, device_plugin={"image_digest": f"sha256:{'a' * 64}"}, disruption={"allow": "nothing"})
    pod = _pod(containerStatuses=[{"name": "plugin", "imageID": f"sha256:{'b' * 64}"}])
    cluster.write(objects={"daemonsets.apps,pods": [_set(), pod]})
    monkeypatch.setattr(mps_clients, "label_waits", lambda _: NONE)
    monkeypatch.setattr(mps_clients, "release_waits", lambda: waiting)
    node.state = State()
    node.noops.clear()
    said = _verified(node, asked)
    assert said.startswith("5 of 6 ") and "; taken: " in said and not node.refusals
    # What has nothing to do with it counts as ever.
    _change(cluster, ready="False")
    node.state = State()
    assert "not Ready, desired Ready" in _verified(node, settings) and node.refusals


def test_the_vectors_pod_asks_for_what_the_node_offers(cluster: SimulatedCluster, node: Host) -> None:
    _change(cluster, labels={CONFIG: "sliced"}, allocatable={"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "2"})
    # No pod runs in the simulation: which one was asked for is told by what became of it.
    said = _verified(node, _settings(cluster, **OWN, verify={"vector_add": "registry.invalid/add:1"}))
    assert unnamed(said, "nvidia.com/mig-1g.10gb") == [] and node.refusals


def test_a_dry_run_asks_nothing(cluster: SimulatedCluster, node: Host) -> None:
    node.state.is_executing = False
    assert _verified(node, _settings(cluster)) and not node.refusals
    assert cluster.state()["calls"] == []


def test_a_cluster_that_does_not_answer_the_verdict_is_a_finding_of_its_own_and_fails_the_node(
    cluster: SimulatedCluster, node: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Finding] = []
    monkeypatch.setattr(run_end, "cluster_judged", lambda state, name, findings: noted.extend(findings))
    cluster.write(failures={"kubectl": "The connection to the server 192.0.2.1:6443 was refused"})
    for _ in range(2):
        assert "192.0.2.1:6443" in _verified(node, _settings(cluster)) and node.refusals
    assert [(item.what, item.finding_class, item.actual) for item in noted] == [
        ("cluster", FindingClass.ERROR, "not known")
    ]


def _drift(cluster: SimulatedCluster, **more: Any) -> list[Finding]:
    settings = _settings(cluster, **more)
    return of_both(fleet_cluster.findings(Path("none.py"), {"gpu-1": settings}, {"gpu-1": GOOD}))


def test_drift_tells_of_a_cluster_that_does_not_answer_without_a_traceback(cluster: SimulatedCluster) -> None:
    cluster.write(failures={"kubectl": "The connection to the server 192.0.2.1:6443 was refused"})
    (finding,) = _drift(cluster)
    assert finding.finding_class is FindingClass.ERROR and "192.0.2.1:6443" in (finding.cause or "")
    assert unnamed(finding.remedy, "kubernetes.kubeconfig") == []


def test_drift_tells_of_what_the_cluster_lacks(cluster: SimulatedCluster) -> None:
    cluster.write(namespaces={"nvidia-device-plugin": {ENFORCED[0]: "restricted"}})
    found = {each.what: each for each in _drift(cluster, containerd={"default_runtime": "runc"})}
    namespace = found["namespace nvidia-device-plugin"]
    assert namespace.finding_class is FindingClass.DRIFT and unnamed(namespace.cause, "restricted") == []
    assert found["RuntimeClass"].finding_class is FindingClass.DRIFT and "nvidia" in (found["RuntimeClass"].cause or "")
    release = found["helm release nvidia-device-plugin/nvdp"]
    assert (release.finding_class, release.code) == (FindingClass.DRIFT, "device-plugin.helm-release") and release.cause
    assert cluster.called("helm upgrade") == cluster.called("kubectl create") == 0


def test_the_gate_takes_a_node_that_is_ready_and_tells_why_not(cluster: SimulatedCluster) -> None:
    hosts = {"gpu-1": _settings(cluster), "gpu-9": _settings(cluster), "cpu-1": settings_from({})}

    def against(*names: str) -> dict[str, str]:
        return fleet_cluster.against(Path("none.py"), hosts, names)

    assert against("gpu-1", "cpu-1") == {} and list(against("gpu-9")) == ["gpu-9"]
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["spec"]["unschedulable"] = True
    cluster.write(nodes=nodes)
    # Somebody else's cordon.
    assert against("gpu-1") == {}
    nodes["gpu-1"]["metadata"]["annotations"] = {"gpunode/drain": '{"cordon": "gpunode"}'}
    cluster.write(nodes=nodes)
    assert list(against("gpu-1")) == ["gpu-1"]
    _change(cluster, ready="False")
    assert list(against("gpu-1")) == ["gpu-1"] and "Ready" in against("gpu-1")["gpu-1"]
    cluster.write(failures={"kubectl": "The connection to the server 192.0.2.1:6443 was refused"}, calls=[])
    assert "was refused" in against("gpu-1")["gpu-1"]
    assert against("cpu-1") == {} and cluster.called("kubectl") == 1
    assert fleet_cluster.findings(Path("none.py"), {"cpu-1": hosts["cpu-1"]}, {"cpu-1": GOOD}) == ({}, None)
    assert cluster.called("kubectl") == 1
