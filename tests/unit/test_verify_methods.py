"""Verdict and drift of the methods beside NVIDIA's chart alone: what they promise, and each deviation by its name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import Finding, FindingClass
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.fleet import cluster as fleet_cluster
from gpunode.fleet import run_end
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.device_plugin.methods import wanted_objects
from gpunode.kubernetes.device_plugin.promise import promised_memory
from gpunode.kubernetes.device_plugin.verdict import comes_by_itself, judge_extender, judge_node
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT, SERVED_BY
from gpunode.kubernetes.objects.own_objects import OWN_OBJECTS
from gpunode.kubernetes.run_on import here
from gpunode.settings import Settings, settings_from
from gpunode.system.gpu import Gpus
from tests.support.messages import unnamed
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host
from tests.support.verify import GOOD, GPU
from tests.support.verify_cluster import DAEMON_SET, SHARED, TWO, _bad, _pod, _set, _verified, node

__all__ = ["node"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]

SMI = Gpus("ok", 0, None, (replace(GPU, memory_mib=81559), replace(GPU, index=1, memory_mib=81559)))
STATIC, SHARE = "gpunode-device-plugin-time-slicing-5-renamed", "gpushare-device-plugin"
EXTENDER = "Deployment kube-system/gpushare-schd-extender"
IN_PLUGIN_S, IN_GPUSHARE_S = "daemonsets.apps,pods", "daemonsets.apps,deployments.apps,pods"
METHODS: dict[str, dict[str, Any]] = {
    "manifest": {"device_plugin": {"method": "manifest"}, "sharing": SHARED},
    "gpu-operator": {"device_plugin": {"method": "gpu-operator", "nfd": "present"}, "sharing": SHARED},
    "gpushare": {"device_plugin": {"method": "gpushare"}, "gpushare": {"scheduler": "theirs"}},
}


def _own(kind: str, name: str, method: str, **status: int) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "gpunode", "gpunode/way": method}
    return {"kind": kind, "metadata": {"name": name, "labels": labels}, "spec": {"replicas": 1}, "status": status}


def _extender(ready: int = 1) -> dict[str, Any]:
    return _own("Deployment", "gpushare-schd-extender", "gpushare", updatedReplicas=1, availableReplicas=ready)


LABELS = {
    "manifest": {CONFIG: "time-slicing-5-renamed", SERVED_BY: "manifest"},
    "gpu-operator": {CONFIG: "time-slicing-5-renamed", SERVED_BY: "gpu-operator", PRESENT: "true"},
    "gpushare": {"gpushare": "true"},
}
THERE: dict[str, dict[str, list[Any]]] = {
    "manifest": {IN_PLUGIN_S: [_own("DaemonSet", STATIC, "manifest"), _pod(STATIC)]},
    "gpu-operator": {IN_PLUGIN_S: [_set(), _pod()]},
    "gpushare": {
        IN_PLUGIN_S: [], IN_GPUSHARE_S: [_own("DaemonSet", SHARE, "gpushare"), _pod(SHARE), _extender()],
    },
}  # fmt: skip
OFFERED = {
    "manifest": {"nvidia.com/gpu.shared": "10"},
    "gpu-operator": {"nvidia.com/gpu.shared": "10"},
    # As a node keeps it of the plugin that it had before.
    "gpushare": {"aliyun.com/gpu-mem": "158", "aliyun.com/gpu-count": "2", "nvidia.com/gpu": "0"},
}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def _cluster(folder: Path, method: str) -> SimulatedCluster:
    made = SimulatedCluster.of(folder, "gpu-1")
    _change(made, labels=LABELS[method], allocatable=OFFERED[method])
    made.write(objects=THERE[method])
    return made


@pytest.fixture
def cluster(tmp_path: Path, method: str) -> SimulatedCluster:
    """Return a cluster whose one node offers what its method promises."""
    return _cluster(tmp_path, method)


def _change(cluster: SimulatedCluster, **node: Any) -> None:
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["metadata"]["labels"] |= node.get("labels", {})
    for label in node.get("without", ()):
        del nodes["gpu-1"]["metadata"]["labels"][label]
    nodes["gpu-1"]["status"]["allocatable"] |= node.get("allocatable", {})
    cluster.write(nodes=nodes)


def _settings(cluster: SimulatedCluster, method: str) -> Settings:
    return settings_from({"kubernetes": cluster.settings(timeout=60), **METHODS[method]})


def _findings(cluster: SimulatedCluster, method: str, gpus: Gpus | None = SMI) -> tuple[Finding, ...]:
    settings = _settings(cluster, method)
    shared = method == "gpushare"
    view = Cluster(settings.kubernetes, settings.proxy, here).view(settings.device_plugin.namespace, shared)
    findings = judge_node(settings, "gpu-1", None, TWO, view, gpus)
    return (*findings, judge_extender(view)) if shared else findings


def test_a_node_that_offers_what_its_way_promises_is_as_desired(cluster: SimulatedCluster, method: str) -> None:
    findings = _findings(cluster, method)
    assert _bad(findings) == []
    subjects = {each.what for each in findings}
    labels = LABELS[method].keys() - ({PRESENT} if method == "gpu-operator" else set())
    resources = {name for name, count in OFFERED[method].items() if count != "0"}
    assert {f"label {name}" for name in labels} | {f"allocatable {name}" for name in resources} <= subjects
    pods = {"manifest": STATIC, "gpu-operator": DAEMON_SET, "gpushare": SHARE}
    assert f"pod of {pods[method]}" in subjects


_STATIC_SET, _SHARE_SET = _own("DaemonSet", STATIC, "manifest"), _own("DaemonSet", SHARE, "gpushare")


@pytest.mark.parametrize(
    ("method", "objects", "bad", "waits"),
    [
        ("manifest", [], (f"DaemonSet nvidia-device-plugin/{STATIC}", "none", "there"), False),
        # Somebody else's of the same name.
        ("manifest", [{"kind": "DaemonSet", "metadata": {"name": STATIC}}, _pod(STATIC)],
         (f"DaemonSet nvidia-device-plugin/{STATIC}", "none", "there"), False),
        ("manifest", [_STATIC_SET], (f"pod of {STATIC}", "none", "ready"), True),
        ("manifest", [_STATIC_SET, _pod(STATIC, ready=False)], (f"pod of {STATIC}", "Running", "ready"), True),
        ("gpushare", [_extender()], (f"DaemonSet kube-system/{SHARE}", "none", "there"), False),
        ("gpushare", [_SHARE_SET, _extender()], (f"pod of {SHARE}", "none", "ready"), True),
        ("gpushare", [_SHARE_SET, _pod(SHARE)], (EXTENDER, "none", "there"), False),
        ("gpushare", [_SHARE_SET, _pod(SHARE), _extender(0)], (EXTENDER, "not ready", "ready"), True),
        ("gpu-operator", [], ("helm release nvidia-device-plugin/nvdp", "none", "there"), False),
    ],
)  # fmt: skip
def test_each_workload_that_is_missing_or_does_not_run_is_found_by_name(
    tmp_path: Path, method: str, objects: list[Any], bad: tuple[str, str, str], waits: bool
) -> None:
    cluster = _cluster(tmp_path, method)
    cluster.write(objects={**THERE[method], IN_GPUSHARE_S if method == "gpushare" else IN_PLUGIN_S: objects})
    (wrong,) = (each for each in _findings(cluster, method) if each.finding_class is not FindingClass.OK)
    assert _bad([wrong]) == [bad] and wrong.finding_class is FindingClass.DRIFT
    assert wrong.remedy and comes_by_itself(wrong) is waits


@pytest.mark.parametrize(
    ("method", "change", "bad"),
    [
        ("manifest", {"without": [SERVED_BY]}, (f"label {SERVED_BY}", "none", "manifest")),
        ("gpu-operator", {"without": [SERVED_BY]}, (f"label {SERVED_BY}", "none", "gpu-operator")),
        ("gpushare", {"without": ["gpushare"]}, ("label gpushare", "none", "true")),
        ("manifest", {"allocatable": {"nvidia.com/gpu.shared": "5"}}, ("allocatable nvidia.com/gpu.shared", "5", "10")),
        ("gpushare", {"allocatable": {"aliyun.com/gpu-mem": "79"}}, ("allocatable aliyun.com/gpu-mem", "79", "158")),
        ("gpushare", {"allocatable": {"aliyun.com/gpu-count": "1"}}, ("allocatable aliyun.com/gpu-count", "1", "2")),
        # Two plugins give the same GPUs away.
        ("gpushare", {"allocatable": {"nvidia.com/gpu": "2"}}, ("allocatable nvidia.com/gpu", "2", "0")),
    ],
)
def test_what_a_node_has_otherwise_is_found(
    tmp_path: Path, method: str, change: dict[str, Any], bad: tuple[str, str, str]
) -> None:
    cluster = _cluster(tmp_path, method)
    _change(cluster, **change)
    assert _bad(_findings(cluster, method)) == [bad]


def test_gpushare_offers_the_memory_of_the_first_gpu_for_each_rounded_down() -> None:
    uneven = Gpus("ok", 0, None, (replace(GPU, index=1, memory_mib=24576), replace(GPU, index=0, memory_mib=40960)))
    assert promised_memory(uneven, "GiB") == {"aliyun.com/gpu-count": 2, "aliyun.com/gpu-mem": 80}
    assert promised_memory(SMI, "MiB") == {"aliyun.com/gpu-count": 2, "aliyun.com/gpu-mem": 163118}


@pytest.mark.parametrize(
    "gpus", [None, Gpus("hangs", 124, None, ()), Gpus("ok", 0, None, (replace(GPU, memory_mib=None),))],
    ids=["not asked", "hangs", "not told"],
)  # fmt: skip
def test_memory_that_nobody_knows_is_no_promise(tmp_path: Path, gpus: Gpus | None) -> None:
    cluster = _cluster(tmp_path, "gpushare")
    assert ("allocatable", "not known", "the node's devices") in _bad(_findings(cluster, "gpushare", gpus))


def _drift(cluster: SimulatedCluster, *methods: str) -> tuple[Finding, ...]:
    """Return what drift finds of the cluster."""
    hosts = {f"gpu-{number}": _settings(cluster, method) for number, method in enumerate(methods, 1)}
    nodes = dict.fromkeys(hosts, replace(GOOD, mig=TWO, gpus=SMI))
    of_nodes, report = fleet_cluster.findings(Path("none.py"), hosts, nodes)
    assert report is not None
    assert not any(item.what in (EXTENDER, OWN_OBJECTS.what) for each in of_nodes.values() for item in each)
    return report.findings


def _applied(cluster: SimulatedCluster, method: str) -> dict[str, Any]:
    objects = wanted_objects({"gpu-1": _settings(cluster, method)})
    return {f"{each['kind'].lower()}/{each['metadata']['name']}": each for each in objects}


@pytest.mark.parametrize("method", ["manifest", "gpushare"])
def test_drift_finds_gpunode_s_objects_as_asked_or_what_was_changed_by_hand(tmp_path: Path, method: str) -> None:
    cluster = _cluster(tmp_path, method)
    own = _applied(cluster, method)
    cluster.write(own=own)
    found = _drift(cluster, method)
    assert _bad(found) == []
    name = next(each for each in own if each.startswith("daemonset/"))
    own[name]["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.invalid/other:1"
    cluster.write(own=own)
    found = _drift(cluster, method)
    (wrong,) = (each for each in found if each.finding_class is not FindingClass.OK)
    assert wrong.what == OWN_OBJECTS.what and "image" in (wrong.cause or "") and wrong.remedy
    cluster.write(own={})
    found = _drift(cluster, method)
    assert [what for what, _, _ in _bad(found)] == [OWN_OBJECTS.what]
    assert cluster.called("kubectl apply") == 0


def test_drift_reports_the_extender_and_the_objects_of_the_cluster_and_of_no_node(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, "gpushare")
    cluster.write(objects={**THERE["gpushare"], IN_GPUSHARE_S: []}, own={})
    found = _drift(cluster, "gpushare", "gpushare")
    assert {EXTENDER, OWN_OBJECTS.what} <= {each.what for each in found}


def test_drift_tells_of_the_operator_s_release_beside_the_plugin_s(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, "gpu-operator")
    _change(cluster, labels={"feature.node.kubernetes.io/pci-10de.present": "true"})
    found = _drift(cluster, "gpu-operator")
    releases = {"helm release nvidia-device-plugin/nvdp", "helm release gpu-operator/gpu-operator"}
    assert {what for what, _, _ in _bad(found)} == releases


@pytest.fixture
def asked(node: Host) -> Host:
    """Return the host that operations see, on which nvidia-smi lists two GPUs."""
    node.readings[GpusFact] = SMI
    return node


def test_the_verdict_is_good_where_all_is_as_desired(cluster: SimulatedCluster, method: str, asked: Host) -> None:
    assert re.match(r"(\d+) of \1 ", _verified(asked, _settings(cluster, method))) and not asked.refusals


@pytest.mark.parametrize(
    ("method", "objects", "of_cluster"),
    [
        ("gpushare", [_SHARE_SET, _pod(SHARE), _extender(0)], [(EXTENDER, "not ready")]),
        ("manifest", [], [(f"DaemonSet nvidia-device-plugin/{STATIC}", "none")]),
        ("gpu-operator", [], [("helm release nvidia-device-plugin/nvdp", "none")]),
    ],
)
def test_a_run_reports_what_the_whole_cluster_lacks_of_the_cluster_and_not_of_the_node(
    tmp_path: Path,
    asked: Host,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    objects: list[Any],
    of_cluster: list[tuple[str, str]],
) -> None:
    noted: dict[str, list[Finding]] = {"node": [], "cluster": []}
    monkeypatch.setattr(run_end, "judged", lambda host, findings: noted["node"].extend(findings))
    monkeypatch.setattr(run_end, "cluster_judged", lambda state, name, findings: noted["cluster"].extend(findings))
    cluster = _cluster(tmp_path, method)
    cluster.write(objects={**THERE[method], IN_GPUSHARE_S if method == "gpushare" else IN_PLUGIN_S: objects})
    _verified(asked, _settings(cluster, method))
    assert [(item.what, item.actual) for item in noted["cluster"]] == of_cluster and asked.refusals
    assert noted["node"] and all(item.finding_class is FindingClass.OK for item in noted["node"])


def test_the_verdict_fails_with_what_the_plugin_said(cluster: SimulatedCluster, method: str, asked: Host) -> None:
    _change(cluster, allocatable=dict.fromkeys(OFFERED[method], "0"))
    said = _verified(asked, _settings(cluster, method))
    pod = {"manifest": STATIC, "gpu-operator": DAEMON_SET, "gpushare": SHARE}[method]
    assert unnamed(said, f"{pod}-x", *(name for name, count in OFFERED[method].items() if count != "0")) == []
