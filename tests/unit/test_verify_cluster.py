"""Does the cluster offer what the settings promise? Judged without one; and looked at where kubectl is SIMULATED."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import Mig, MigGpu
from gpunode.components.mps.plugin import PluginDaemon, PluginMps
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.mig_boot import MigBoot as MigBootFact
from gpunode.facts.plugin_mps import PluginMps as PluginMpsFact
from gpunode.fleet import drift_cluster
from gpunode.kubernetes.device_plugin import vector_add
from gpunode.kubernetes.device_plugin.decide_restart import NONE, Bounds, decide_restart
from gpunode.kubernetes.device_plugin.mig_state import offered
from gpunode.kubernetes.device_plugin.verdict import comes_by_itself, judge_node, resource_to_ask_for
from gpunode.kubernetes.device_plugin.view import parse_objects
from gpunode.kubernetes.nodes.cluster_nodes import parse_nodes
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, OURS, PRESENT
from gpunode.operations import device_plugin, mps_clients, verify_cluster
from gpunode.settings import settings_from
from gpunode.system.gpu import Gpus
from tests.support.messages import unnamed
from tests.support.simulated_cluster import ENFORCED, SimulatedCluster
from tests.support.simulated_host import Host
from tests.support.verify import GOOD, GPU
from tests.support.verify_cluster import (
    DAEMON_SET,
    SHARED,
    SLICED,
    TWO,
    _bad,
    _gpu,
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
    """Put other labels, allocatable resources or readiness in the place of the node's, or other objects."""
    if "objects" in node:
        cluster.write(objects={"daemonsets.apps,pods": node.pop("objects")})
    nodes = cluster.state()["nodes"]
    if "labels" in node:
        nodes["gpu-1"]["metadata"]["labels"] |= node["labels"]
    if "allocatable" in node:
        nodes["gpu-1"]["status"]["allocatable"] = node["allocatable"]
    if "ready" in node:
        nodes["gpu-1"]["status"]["conditions"][0]["status"] = node["ready"]
    cluster.write(nodes=nodes)


def _findings(cluster: SimulatedCluster, mig: Mig = TWO, name: str = "gpu-1", **more: Any) -> tuple[Finding, ...]:
    from gpunode.kubernetes.device_plugin.cluster import Cluster
    from gpunode.kubernetes.run_on import here

    settings = _settings(cluster, **more)
    view = Cluster(settings.kubernetes, settings.proxy, here).view("nvidia-device-plugin")
    return judge_node(settings, name, None, mig, view)


def test_a_node_that_offers_what_it_promises_is_as_desired(cluster: SimulatedCluster) -> None:
    findings = _findings(cluster)
    assert _bad(findings) == []
    assert findings[0].code == "device-plugin.node-of-the-cluster" and [each.what for each in findings[1:]] == [
        f"label {CONFIG}", f"label {PRESENT}", f"pod of {DAEMON_SET}",
        "allocatable nvidia.com/gpu.shared",
    ]  # fmt: skip


_SHARED, _POD = "allocatable nvidia.com/gpu.shared", f"pod of {DAEMON_SET}"
_RELEASE = ("helm release nvidia-device-plugin/nvdp", "none", "there")
_WAITS = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


@pytest.mark.parametrize(
    ("change", "bad", "waits"),
    [
        ({"ready": "Unknown"}, ("node of the cluster", "not Ready", "Ready"), True),
        ({"labels": {CONFIG: "none"}}, (f"label {CONFIG}", "none", "time-slicing-5-renamed"), False),
        ({"allocatable": {"nvidia.com/gpu.shared": "9"}}, (_SHARED, "9", "10"), True),
        ({"allocatable": {}}, (_SHARED, "0", "10"), True),
        ({"allocatable": {"nvidia.com/gpu.shared": "10", "nvidia.com/gpu": "2"}},
         ("allocatable nvidia.com/gpu", "2", "0"), True),
        ({"objects": [_set()]}, (_POD, "none", "ready"), True),
        ({"objects": [_set(), _pod(node="gpu-2")]}, (_POD, "none", "ready"), True),
        ({"objects": [_set(), _pod(ready=False)]}, (_POD, "Running", "ready"), True),
        ({"objects": []}, _RELEASE, False),
        ({"objects": [_set(release="theirs"), _pod()]}, _RELEASE, False),
        ({"objects": [_set(), _pod(), _set("nvdp-node-feature-discovery-worker")]}, None, False),
    ],
)  # fmt: skip
def test_what_the_cluster_has_otherwise_is_found(
    cluster: SimulatedCluster, change: dict[str, Any], bad: tuple[str, str, str] | None, waits: bool
) -> None:
    _change(cluster, **change)
    wrong = [each for each in _findings(cluster) if each.finding_class is not FindingClass.OK]
    assert _bad(wrong) == [each for each in (bad,) if each]
    assert all(each.finding_class is FindingClass.DRIFT and comes_by_itself(each) is waits for each in wrong)
    assert all(each.remedy for each in wrong)


def test_what_is_looked_for_is_what_is_asked_and_known(cluster: SimulatedCluster) -> None:
    by_mps = _findings(cluster, sharing={"strategy": "mps", "replicas": 5, "rename": True})
    assert (f"{_POD}-mps-control-daemon", "none", "ready") in _bad(by_mps)
    _change(cluster, objects=[_set(), _pod(ready=False, containerStatuses=[_WAITS])])
    assert [each.cause for each in _findings(cluster) if each.cause] == ["ImagePullBackOff: no such image"]
    (lacks,) = _findings(cluster, name="gpu-9")
    assert lacks.actual == "none" and lacks.remedy
    assert ("allocatable", "unknown", "known") in _bad(_findings(cluster, Mig("no driver")))


OWN: dict[str, Any] = {"device_plugin": {"config_name": "mine"}, "sharing": {"config": "sliced"}}
NOTHING = [("allocatable", "none", "GPUs or MIG devices")]


@pytest.mark.parametrize(
    ("mig", "allocatable", "found", "by"),
    [
        (TWO, {"nvidia.com/gpu": "8"}, [], "nvidia.com/gpu"),
        (TWO, {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "8"}, [], "nvidia.com/gpu.shared"),
        (SLICED, {"nvidia.com/mig-1g.10gb": "2"}, [], "nvidia.com/mig-1g.10gb"),
        (TWO, {"nvidia.com/gpu": "0", "nvidia.com/hostdev": "8"}, NOTHING, None),
        (Mig("ok", None, ()), {}, [], None),
        (Mig("no driver"), {"nvidia.com/gpu": "2"}, [("allocatable", "unknown", "known")], "nvidia.com/gpu"),
    ],
    ids=["as often as the entry says", "renamed", "by MIG device", "nothing", "no GPU", "no driver"],
)  # fmt: skip
def test_by_one_s_own_config_map_a_node_is_to_offer_anything(
    cluster: SimulatedCluster, mig: Mig, allocatable: dict[str, str], found: list[Any], by: str | None
) -> None:
    _change(cluster, labels={CONFIG: "sliced"}, allocatable={"cpu": "64", **allocatable})
    assert _bad(_findings(cluster, mig, **OWN)) == found
    node = parse_nodes(json.dumps({"items": list(cluster.state()["nodes"].values())}))["gpu-1"]
    assert resource_to_ask_for(_settings(cluster, **OWN), mig, None, node) == by
    # By gpunode's own configuration, on what that promises.
    assert resource_to_ask_for(_settings(cluster), TWO, None, None) == "nvidia.com/gpu.shared"
    share = {"device_plugin": {"method": "gpushare"}, "gpushare": {"scheduler": "theirs"}, "sharing": {}}
    gpus = Gpus("ok", 0, None, (replace(GPU, memory_mib=81559),))
    assert resource_to_ask_for(_settings(cluster, **share), TWO, gpus, None) == "aliyun.com/gpu-mem"


def test_mig_devices_are_counted_by_profile_and_whole_gpus_beside_them() -> None:
    mig = Mig("ok", None, (_gpu(0, "1g.10gb", "1g.10gb", "3g.40gb"), _gpu(1)))
    assert offered(mig, "mixed") == (1, {"1g.10gb": 2, "3g.40gb": 1})
    assert offered(mig, "none") == (2, {})
    unread = MigGpu(0, "GPU-0", "0", "2330", "H100", "Enabled", "Enabled", None)
    assert offered(Mig("ok", None, (unread,)), "mixed") is None


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
    assert _verified(node, settings).split()[1:2] == ["things"] and not node.refusals
    node.readings[PluginMpsFact] = PluginMps("/usr/bin/x", (replace(daemon, percentage="10.0"),))
    assert "percentage is 10.0, desired 20.0" in _verified(node, settings) and node.refusals
    # Nobody is asked where the cluster is not well, nor without MPS.
    del node.readings[PluginMpsFact]
    verify_cluster._watched.clear()
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
    verify_cluster._watched.clear()
    node.noops.clear()
    said = _verified(node, asked)
    assert said.startswith("5 of 6 ") and "; taken: " in said and not node.refusals
    # What has nothing to do with it counts as ever.
    _change(cluster, ready="False")
    verify_cluster._watched.clear()
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


def test_a_pod_for_which_no_gpu_is_free_is_no_failure() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for message, crowded in (("0/1 nodes: 1 Insufficient nvidia.com/gpu.", True), ("1 node was unschedulable", False)):
        pod = _pod(phase="Pending", conditions=[{**unscheduled, "message": message}]) | {"spec": {}}
        (found,) = parse_objects(json.dumps({"items": [pod]}))[1]
        assert vector_add.is_crowded_out(found) is crowded


DIGEST = "sha256:" + "0123456789abcdef" * 4
NAMED = f"nvcr.io/nvidia/k8s-device-plugin:v0.20.0@{DIGEST}"
TAGGED = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
OTHER = "nvcr.io/nvidia/k8s-device-plugin@sha256:" + "f" * 64


@pytest.mark.parametrize(
    ("asked", "runs", "others"),
    [
        (NAMED, f"nvcr.io/nvidia/k8s-device-plugin@{DIGEST}", ()),
        (TAGGED, f"docker-pullable://nvcr.io/nvidia/k8s-device-plugin@{DIGEST}", ()),
        # By the digest of the index the image of its own platform runs, which has a digest of its own.
        (NAMED, OTHER, ()),
        (TAGGED, OTHER, (OTHER,)),
        # Loaded by hand: nothing but its configuration's digest is known.
        (TAGGED, "sha256:" + "e" * 64, ("sha256:" + "e" * 64,)),
        (NAMED, "", ()),
    ],
)
def test_another_image_is_found(cluster: SimulatedCluster, asked: str, runs: str, others: tuple[str, ...]) -> None:
    pod = _pod(containerStatuses=[{"name": "plugin", "imageID": runs}])
    pod["spec"]["containers"] = [{"name": "plugin", "image": asked}]
    cluster.write(objects={"daemonsets.apps,pods": [_set(), pod]})
    wanted = [] if not others else [(f"image of {DAEMON_SET}", others[0], DIGEST)]
    assert _bad(_findings(cluster, device_plugin={"image_digest": DIGEST})) == wanted
    # Nobody asked for one.
    assert _bad(_findings(cluster)) == []


def _drift(cluster: SimulatedCluster, **more: Any) -> list[Finding]:
    settings = _settings(cluster, **more)
    return drift_cluster.findings(Path("none.py"), {"gpu-1": settings}, {"gpu-1": GOOD})["gpu-1"]


def test_drift_tells_of_a_cluster_that_does_not_answer_without_a_traceback(cluster: SimulatedCluster) -> None:
    cluster.write(failures={"kubectl": "The connection to the server 192.0.2.1:6443 was refused"})
    (finding,) = _drift(cluster)
    assert finding.finding_class is FindingClass.ERROR and "192.0.2.1:6443" in (finding.cause or "")
    assert unnamed(finding.remedy, "kubernetes.kubeconfig") == []


@pytest.mark.parametrize(
    ("labels", "names"), [(None, None), ({}, ["pod-security"]), ({ENFORCED[0]: "restricted"}, ["restricted"])]
)
def test_drift_finds_namespaces(
    cluster: SimulatedCluster, labels: dict[str, str] | None, names: list[str] | None
) -> None:
    if labels is not None:
        cluster.write(namespaces={"nvidia-device-plugin": labels})
    found = {each.what: each for each in _drift(cluster)}["namespace nvidia-device-plugin"]
    assert found.finding_class is (FindingClass.OK if names is None else FindingClass.DRIFT)
    assert all(each in (found.cause or "") for each in names or ())


def test_drift_tells_of_release_and_runtime_class_that_are_missing(cluster: SimulatedCluster) -> None:
    found = {each.what: each for each in _drift(cluster, containerd={"default_runtime": "runc"})}
    assert found["RuntimeClass"].finding_class is FindingClass.DRIFT and "nvidia" in (found["RuntimeClass"].cause or "")
    release = found["helm release nvidia-device-plugin/nvdp"]
    assert (release.finding_class, release.code) == (FindingClass.DRIFT, "device-plugin.helm-release") and release.cause
    assert cluster.called("helm upgrade") == cluster.called("kubectl create") == 0


def test_the_gate_takes_a_node_that_is_ready_and_tells_why_not(cluster: SimulatedCluster) -> None:
    hosts = {"gpu-1": _settings(cluster), "gpu-9": _settings(cluster), "cpu-1": settings_from({})}

    def against(*names: str) -> dict[str, str]:
        return drift_cluster.against(Path("none.py"), hosts, names)

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
    assert drift_cluster.findings(Path("none.py"), {"cpu-1": hosts["cpu-1"]}, {"cpu-1": GOOD}) == {}
    assert cluster.called("kubectl") == 1
