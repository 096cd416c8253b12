"""DCGM's exporter by its chart: what settings come to, what it cannot stand beside, what a run does. SIMULATED helm."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import Decision, bad, marked
from gpunode.base.reading import ParseError
from gpunode.components.dcgm.decide import Desired, decide
from gpunode.components.dcgm.drop_ins import ENGINE_FILE
from gpunode.components.dcgm.state import Dcgm, DcgmUnit
from gpunode.components.mig.state import Mig
from gpunode.kubernetes.components import Whole, findings
from gpunode.kubernetes.dcgm_exporter import (
    decide_alone,
    decide_monitor,
    parse_exporters,
)
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.evict_daemonsets import taking
from gpunode.kubernetes.device_plugin.methods import class_alone, to_json
from gpunode.kubernetes.device_plugin.pod_security import namespaces
from gpunode.kubernetes.device_plugin.verdict import judge_node
from gpunode.kubernetes.device_plugin.view import DaemonSet, Pod, View
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import before_mig
from gpunode.kubernetes.other_plugins.desired import objects, releases, releases_left
from gpunode.node.preflight import refusals
from gpunode.settings import check_hosts, settings_from
from gpunode.system.service import ServiceState
from tests.support.device_plugin_deploy import cluster, data, run
from tests.support.messages import unnamed
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.verify import DATA, GOOD

__all__ = ["cluster"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]

LABEL, IMAGE = "gpunode/dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"
NODE: dict[str, Any] = {
    "kubernetes": {"enabled": True},
    "device_plugin": {"method": "none"},
    "dcgm_exporter_chart": {"enabled": True},
}
OF_OPERATOR: dict[str, Any] = {
    "namespace": "gpu-operator",
    "labels": {},
    "ownerReferences": [{"kind": "ClusterPolicy", "name": "cluster-policy"}],
}
_BARE = ClusterNode("gpu-1", {}, None, {}, unschedulable=False, ready=True)
UP = DcgmUnit(active=True, enabled=True, service=ServiceState("running"))


def _asked(**chart: Any) -> dict[str, Any]:
    return {**NODE, "dcgm_exporter_chart": {"enabled": True, **chart}}


def test_one_node_has_the_label_that_its_pods_go_by_and_one_has_the_host_s_exporter() -> None:
    host = {"dcgm": {"enabled": True, "exporter": {"enabled": True}}, "kubernetes": {"enabled": True}}
    hosts = check_hosts({"gpu-1": NODE, "gpu-2": {**host, "device_plugin": {"method": "none"}}})
    assert namespaces(hosts) == {"dcgm-exporter": "dcgm_exporter_chart.namespace"}
    shown = to_json(hosts)
    assert shown["dcgm_exporter_chart"]["version"] == "4.8.2" and "device_plugins" not in shown
    assert shown["labels"] == {"gpu-1": {LABEL: "true"}}
    # Nothing else brings the RuntimeClass about there.
    alone = class_alone(check_hosts({"gpu-1": {**NODE, "containerd": {"default_runtime": "runc"}}}))
    assert alone is not None and alone.runtime_class is not None and class_alone(hosts) is None


def _set(name: str, image: str = IMAGE, selector: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    container = {"name": "exporter", "image": image}
    pod = {"containers": [container], "nodeSelector": selector or {}}
    meta = {"name": name, "namespace": "theirs", "labels": {}, **metadata}
    return {"kind": "DaemonSet", "metadata": meta, "spec": {"template": {"spec": pod}}}


def _listed(*sets: dict[str, Any]) -> str:
    return json.dumps({"kind": "List", "items": list(sets)})


def _alone(text: str, labels: dict[str, str] | None = None, **chart: Any) -> str:
    settings = settings_from({**_asked(**chart)})
    return decide_alone(settings, _BARE, {LABEL: "true", **(labels or {})}, parse_exporters(text)).refusal or ""


_DEPLOYS = {"nvidia.com/gpu.deploy.dcgm-exporter": "true"}
_DIGEST = "registry.example:5000/mirror/dcgm-exporter@sha256:" + "a" * 64
_ENGINE = "nvcr.io/nvidia/cloud-native/dcgm:4.5.3-1-ubuntu22.04"


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (_set("dcgm-exporter"), ["theirs", "dcgm-exporter"]),
        (_set("dcgm-exporter", annotations={"meta.helm.sh/release-name": "dcgm"}), ["helm", "dcgm"]),
        (_set("metrics", _DIGEST), ["theirs/metrics", "gpu-1"]),
        (
            _set("nvidia-dcgm-exporter", selector=_DEPLOYS, **OF_OPERATOR),
            ["dcgmExporter.enabled", "gpu-operator/nvidia-dcgm-exporter"],
        ),
        (_set("nvidia-dcgm", _ENGINE, **OF_OPERATOR), ["DCGM", "dcgm.enabled"]),
    ],
    ids=["a DaemonSet", "a release", "by a mirror and a digest", "an operator's", "an operator's engine"],
)
def test_another_exporter_that_takes_the_node_is_refused(found: dict[str, Any], names: list[str]) -> None:
    assert unnamed(_alone(_listed(found), _DEPLOYS), *names) == []


def test_an_exporter_of_gpunode_s_own_release_or_elsewhere_is_none_in_the_way() -> None:
    own = _set("dcgm-exporter", namespace="dcgm-exporter", annotations={"meta.helm.sh/release-name": "dcgm-exporter"})
    assert _alone(_listed(own)) == "" and _alone(_listed(own), release="other") != ""
    assert _alone(_listed(_set("dcgm-exporter", selector={"rack": "b"}), _set("web", "nginx:1"))) == ""
    # It goes with this run, which switches it off.
    operator = {"device_plugin": {"method": "gpu-operator", "nfd": "present"}, "gpu_operator": {"dcgm_exporter": False}}
    of_operator = parse_exporters(_listed(_set("nvidia-dcgm-exporter", **OF_OPERATOR)))
    assert decide_alone(settings_from({**NODE, **operator}), _BARE, {}, of_operator).refusal is None
    assert decide_alone(settings_from({}), _BARE, {}, of_operator).findings == ()


@given(st.recursive(st.none() | st.text(max_size=8), lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
def test_an_answer_that_is_no_list_of_daemon_sets_is_an_error(content: Any) -> None:
    with suppress(ParseError):
        assert parse_exporters(json.dumps(content)) == ()
    with pytest.raises(ParseError):
        parse_exporters(json.dumps(content)[:-1] + "~")


def test_a_service_monitor_without_its_kind_is_told_with_its_setting() -> None:
    hosts = check_hosts({"gpu-1": _asked(service_monitor=True)})
    # Another kind of the same group does not do.
    refused = decide_monitor(hosts, "prometheusrules.monitoring.coreos.com\n")
    assert unnamed(refused.refusal, "dcgm_exporter_chart.service_monitor") == []
    known = decide_monitor(hosts, "prometheusrules.monitoring.coreos.com\nservicemonitors.monitoring.coreos.com\n")
    assert known.refusal is None and not bad(*known.findings)
    assert decide_monitor(check_hosts({"gpu-1": NODE}), "").findings == ()


@pytest.mark.parametrize("kind", ["servicemonitors.monitoring.coreos.com\n", ""])
def test_an_api_of_others_that_is_down_does_not_hide_the_kind(kind: str) -> None:
    """kubectl prints what it knows, and fails for metrics-server's group, say."""
    hosts = check_hosts({"gpu-1": _asked(service_monitor=True)})
    first = hosts["gpu-1"]

    def decided(group: str) -> Decision[None]:
        words = f"error: unable to retrieve the complete list of server APIs: {group}: the server is down"
        return Cluster(first.kubernetes, first.proxy, lambda _: Output(1, kind, words)).decide_monitor(hosts)

    assert (decided("metrics.k8s.io/v1beta1").refusal is None) is bool(kind)
    with pytest.raises(ClusterError, match=r"monitoring\.coreos\.com"):
        decided("monitoring.coreos.com/v1")


def test_drift_asks_for_the_kind_only_where_a_service_monitor_is_asked_for() -> None:
    def told(**chart: Any) -> tuple[list[str], bool]:
        asked: list[tuple[str, ...]] = []

        def run(command: Command) -> Output:
            asked.append(command.words)
            return Output(0 if "api-resources" in command.words else 1, "", "Error: nobody answers")

        hosts = check_hosts({"gpu-1": _asked(**chart)})
        first = hosts["gpu-1"]
        whole = Whole(hosts, Cluster(first.kubernetes, first.proxy, run), _view(), ())
        found = [item.actual or "" for item in findings(whole, iter(())) if item.what == "kind ServiceMonitor"]
        return found, any("api-resources" in words for words in asked)

    assert told(service_monitor=True) == (["none"], True) and told() == ([], False)


def test_a_host_engine_that_gpunode_did_not_bring_is_told_by_drift_and_refused_by_preflight() -> None:
    settings = settings_from({**DATA, **NODE})
    to_be = Desired(settings.dcgm, pods=settings.dcgm_exporter_chart.pods)

    def refused(dcgm: Dcgm) -> list[str]:
        return [str(each) for each in refusals(settings, replace(GOOD, dcgm=dcgm)) if each.component == "dcgm"]

    (item,) = bad(*marked(decide(to_be, Dcgm(engine=UP))).findings)
    assert (item.what, item.actual, item.by_person) == ("DCGM of the host", "nvidia-dcgm.service", True)
    (told,) = refused(Dcgm(engine=UP))
    assert unnamed(told, "dcgm_exporter_chart.engine") == [] == unnamed(item.cause, "nvidia-dcgm.service")
    # What gpunode ran it stops in this run, and says so in the words for that.
    ours = Dcgm(engine=UP, files=(ENGINE_FILE,))
    assert [each.what for each in bad(*decide(to_be, ours).findings)] == ["service nvidia-dcgm.service"]
    assert refused(ours) == []
    # Nobody asks for the chart: the host's DCGM is nobody's business.
    assert decide(Desired(settings.dcgm), Dcgm(engine=UP)).findings == ()


def test_pods_that_ask_the_host_s_engine_are_no_second_dcgm_on_the_node() -> None:
    settings = settings_from({**DATA, **_asked(engine="host"), "dcgm": {"enabled": True, "health": False}})
    own, others = "dcgm-exporter/dcgm-exporter-x7k2p", "gpu-operator/nvidia-dcgm-exporter-abcde"

    def told(*pods: str) -> list[str]:
        return [str(each) for each in refusals(settings, replace(GOOD, dcgm=Dcgm(pods=pods))) if "pods" in str(each)]

    assert told(own) == [] and len(told(own, others)) == 1 and own not in told(own, others)[0]


def _view(**own: Any) -> View:
    node = ClusterNode("gpu-1", {LABEL: "true"}, json.dumps([LABEL]), {}, unschedulable=False, ready=True)
    pod = Pod("dcgm-exporter-a", {}, "dcgm-exporter", "gpu-1", True, "Running", None)
    of_chart = View({}, (DaemonSet("dcgm-exporter", "dcgm-exporter"),), (replace(pod, **own),))
    return View({"gpu-1": node}, (), (), exporter=of_chart)


def test_the_verdict_waits_for_the_exporter_s_pod_on_each_node_that_is_to_have_it() -> None:
    settings = settings_from(NODE)

    def told(view: View) -> dict[str, str | None]:
        return {item.what: item.actual for item in bad(*judge_node(settings, "gpu-1", None, Mig("absent"), view))}

    assert told(_view()) == {}
    assert told(_view(ready=False, phase="Pending", waits="ErrImagePull")) == {"pod of dcgm-exporter": "Pending"}
    assert told(_view(node="gpu-2")) == {"pod of dcgm-exporter": "none"}
    nothing = replace(_view(), exporter=View({}, (), ()))
    assert told(nothing) == {"helm release dcgm-exporter/dcgm-exporter": "none"}


def test_its_pods_leave_a_node_whose_mig_layout_changes_for_they_hold_the_gpus_open() -> None:
    settings, annotation = settings_from(NODE), json.dumps([LABEL])
    assert before_mig(settings, {LABEL: "true"}, annotation, clears=True).to_remove == (LABEL,)
    assert taking({LABEL: "true"}, annotation) == {LABEL: "true"}


def test_the_record_of_the_release_is_what_a_run_without_it_goes_by() -> None:
    hosts = check_hosts({"gpu-1": NODE})
    owned = json.dumps({"kind": "List", "items": objects(hosts)})
    assert not releases_left(releases(hosts), owned, ()) and not releases_left({}, owned, ({LABEL: "true"},))
    (left,) = releases_left({}, owned, ({"gpunode/device-plugin.dcgm-exporter": "true"},)).values()
    assert (left.namespace, left.release) == ("dcgm-exporter", "dcgm-exporter")
    moved = releases(check_hosts({"gpu-1": _asked(namespace="metrics")}))
    assert [each.namespace for each in releases_left(moved, owned, ({LABEL: "true"},)).values()] == ["dcgm-exporter"]


def _hosts(cluster: SimulatedCluster, *names: str, **chart: Any) -> dict[str, dict[str, Any]]:
    more: dict[str, Any] = {"device_plugin": {"method": "none"}}
    asked = {"dcgm_exporter_chart": {"enabled": True, **chart}}
    return {name: data(cluster, name, **more, **(asked if name in names else {})) for name in ("gpu-1", "gpu-2")}


def test_it_comes_once_and_goes_with_its_label_and_its_record(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(namespaces={})
    first = run(tmp_path, _hosts(cluster, "gpu-1"))
    assert first.code == 0, first.said
    assert cluster.labels("gpu-1") == {LABEL: "true"} and cluster.labels("gpu-2") == {}
    state = cluster.state()
    assert len(state["exporter"]) == 1 and set(state["own"]) == {"configmap/gpunode-release-dcgm-exporter"}
    assert state["namespaces"] == {"dcgm-exporter": {"pod-security.kubernetes.io/enforce": "privileged"}}
    second = run(tmp_path, _hosts(cluster, "gpu-1"))
    assert second.code == 0 and "Success" not in second.said and len(cluster.state()["exporter"]) == 1
    # Another wish is another revision, and a label of another node.
    assert run(tmp_path, _hosts(cluster, "gpu-1", "gpu-2", interval=5)).code == 0
    assert len(cluster.state()["exporter"]) == 2 and cluster.labels("gpu-2") == {LABEL: "true"}
    # A node outside the run has it still.
    assert run(tmp_path, _hosts(cluster), "--limit", "@fake/gpu-1", "-y").code == 0
    assert len(cluster.state()["exporter"]) == 2 and cluster.labels("gpu-1") == {}
    assert run(tmp_path, _hosts(cluster)).code == 0
    assert cluster.state()["exporter"] == [] and cluster.state()["own"] == {} and cluster.labels("gpu-2") == {}
    again = run(tmp_path, _hosts(cluster))
    assert again.code == 0 and "Success" not in again.said


def test_a_cluster_without_service_monitors_ends_the_run(cluster: SimulatedCluster, tmp_path: Path) -> None:
    hosts = _hosts(cluster, "gpu-1", service_monitor=True)
    cluster.write(namespaces={})
    refused = run(tmp_path, hosts)
    # Of each host: another one would bring the cluster what it asks.
    assert refused.code == 1 and refused.said.count("kind ServiceMonitor") == 2, refused.said
    state = cluster.state()
    assert state["exporter"] == state["revisions"] == [] and state["own"] == state["namespaces"] == {}
    assert cluster.called("helm") == 0
    cluster.write(kinds="servicemonitors.monitoring.coreos.com\n")
    assert run(tmp_path, hosts).code == 0 and len(cluster.state()["exporter"]) == 1


def test_a_second_exporter_ends_the_run_on_its_node_alone(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(objects={"daemonsets.apps": [_set("theirs", selector={"kubernetes.io/hostname": "gpu-1"})]})
    refused = run(tmp_path, _hosts(cluster, "gpu-1", "gpu-2"))
    assert refused.failed == ["gpu-1"] and unnamed(refused.said, "theirs/theirs") == []
    assert cluster.labels("gpu-1") == {} and cluster.labels("gpu-2") == {LABEL: "true"}


def test_a_release_of_somebody_else_s_is_not_changed(cluster: SimulatedCluster, tmp_path: Path) -> None:
    assert run(tmp_path, _hosts(cluster, "gpu-1")).code == 0
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["metadata"] = {"name": "gpu-1", "labels": {"kubernetes.io/hostname": "gpu-1"}}
    cluster.write(nodes=nodes, described={})
    refused = run(tmp_path, _hosts(cluster, "gpu-1", interval=5))
    assert refused.code == 1 and unnamed(refused.said, "dcgm_exporter_chart.take_over") == []
    assert len(cluster.state()["exporter"]) == 1
