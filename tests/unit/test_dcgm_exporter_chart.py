"""DCGM's exporter by its chart: what settings come to, what it cannot stand beside, what a run does. SIMULATED helm."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError
from gpunode.kubernetes.components import Whole, decisions
from gpunode.kubernetes.dcgm_exporter import (
    parse_exporters,
)
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.methods import to_json
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.other_plugins.desired import objects, releases, releases_left
from gpunode.settings import check_hosts
from tests.support.cluster_verdict import NODE as OF_CLUSTER
from tests.support.device_plugin_deploy import cluster, data, run
from tests.support.messages import unnamed
from tests.support.simulated_cluster import SimulatedCluster

__all__ = ["cluster"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]

LABEL, IMAGE = "gpunode/dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"
NODE: dict[str, Any] = {
    "kubernetes": {"enabled": True},
    "device_plugin": {"method": "none"},
    "dcgm_exporter_chart": {"enabled": True},
}


def test_one_node_has_the_label_that_its_pods_go_by_and_one_has_the_host_s_exporter() -> None:
    host = {**NODE, "dcgm_exporter_chart": {}, "dcgm": {"enabled": True, "exporter": {"enabled": True}}}
    shown = to_json(check_hosts({"gpu-1": NODE, "gpu-2": host}))
    assert shown["dcgm_exporter_chart"]["version"] == "4.8.2" and "device_plugins" not in shown
    assert shown["labels"] == {"gpu-1": {LABEL: "true"}}


def _asked(**chart: Any) -> dict[str, Any]:
    return {**NODE, "dcgm_exporter_chart": {"enabled": True, **chart}}


@given(st.recursive(st.none() | st.text(max_size=8), lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
def test_an_answer_that_is_no_list_of_daemon_sets_is_an_error(content: Any) -> None:
    with suppress(ParseError):
        assert parse_exporters(json.dumps(content)) == ()
    with pytest.raises(ParseError):
        parse_exporters(json.dumps(content)[:-1] + "~")


@pytest.mark.parametrize("kind", ["servicemonitors.monitoring.coreos.com\n", ""])
def test_an_api_of_others_that_is_down_does_not_hide_the_kind(kind: str) -> None:
    """kubectl prints what it knows, and fails for metrics-server's group, say."""
    hosts = check_hosts({"gpu-1": _asked(service_monitor=True)})

    def decided(group: str) -> Decision[None]:
        words = f"error: unable to retrieve the complete list of server APIs: {group}: the server is down"
        kubernetes, proxy = hosts["gpu-1"].kubernetes, hosts["gpu-1"].proxy
        return Cluster(kubernetes, proxy, lambda _: Output(1, kind, words)).decide_monitor(hosts)

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
        cluster = Cluster(hosts["gpu-1"].kubernetes, hosts["gpu-1"].proxy, run)
        whole = Whole(hosts, cluster, View({"gpu-1": OF_CLUSTER}, (), ()), ())
        found = [
            item.actual or ""
            for each in decisions(whole, iter(()))
            for item in each.findings
            if item.what == "kind ServiceMonitor"
        ]
        return found, any("api-resources" in words for words in asked)

    assert told(service_monitor=True) == (["none"], True) and told() == ([], False)


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
    pod = {"containers": [{"image": IMAGE}], "nodeSelector": {"kubernetes.io/hostname": "gpu-1"}}
    theirs = {"metadata": {"name": "theirs", "namespace": "theirs"}, "spec": {"template": {"spec": pod}}}
    cluster.write(objects={"daemonsets.apps": [{"kind": "DaemonSet", **theirs}]})
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
