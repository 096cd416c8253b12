"""What a run does to the cluster: pyinfra itself on its @fake hosts, helm and kubectl SIMULATED."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.device_plugin_deploy import CONFIG, PRESENT, cluster, data, run
from tests.support.messages import unnamed
from tests.support.simulated_cluster import ENFORCED, SimulatedCluster, node

__all__ = ["cluster"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]

SPACE = "nvidia-device-plugin"
MIG_CONFIG, MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"


def two(cluster: SimulatedCluster) -> dict[str, dict[str, Any]]:
    """Return two nodes that share their GPUs in two methods."""
    shared = {"strategy": "time-slicing", "replicas": 5, "rename": True}
    runc = {"default_runtime": "runc"}
    return {
        "gpu-1": data(cluster, "gpu-1", sharing=shared, containerd=runc),
        "gpu-2": data(cluster, "gpu-2", containerd=runc),
    }


def test_a_cluster_gets_all_once_for_all_nodes(cluster: SimulatedCluster, tmp_path: Path) -> None:
    assert run(tmp_path, two(cluster)).code == 0
    assert cluster.labels("gpu-1") == {CONFIG: "time-slicing-5-renamed", PRESENT: "true"}
    assert cluster.labels("gpu-2") == {CONFIG: "none", PRESENT: "true"}
    assert cluster.labels("gpu-3") == {}
    state = cluster.state()
    assert state["runtime_class"]["handler"] == "nvidia" and state["runtime_class"]["apiVersion"] == "node.k8s.io/v1"
    (revision,) = state["revisions"]
    assert set(json.loads(json.loads(revision)["data"]["values"])["config"]["map"]) == {
        "none",
        "time-slicing-5-renamed",
    }
    # However many nodes there are.
    assert [cluster.called(words) for words in ("helm upgrade", "kubectl get nodes", "kubectl patch")] == [1, 2, 2]


def test_the_second_run_and_a_dry_one_change_nothing(cluster: SimulatedCluster, tmp_path: Path) -> None:
    first = run(tmp_path, two(cluster), "--dry")
    assert first.code == 0 and len(first.changes) == 3 and not cluster.state()["revisions"]
    run(tmp_path, two(cluster))
    before = cluster.state()
    second = run(tmp_path, two(cluster))
    assert second.code == 0 and "Success" not in second.said
    assert run(tmp_path, two(cluster), "--dry").changes == []
    for part in ("nodes", "runtime_class", "revisions"):
        assert cluster.state()[part] == before[part]


def labelled(cluster: SimulatedCluster, name: str, labels: dict[str, str], ours: bool = True) -> None:
    """Give a node labels, which are gpunode's by its annotation or somebody else's."""
    nodes = cluster.state()["nodes"]
    nodes[name]["metadata"]["labels"] |= labels
    if ours:
        nodes[name]["metadata"]["annotations"] = {"gpunode/labels": json.dumps(sorted(labels))}
    cluster.write(nodes=nodes)


@pytest.mark.parametrize("failing", ["gpu-1", "gpu-2"])
def test_only_the_node_that_fails_gets_no_labels(cluster: SimulatedCluster, tmp_path: Path, failing: str) -> None:
    hosts = two(cluster)
    hosts[failing]["x_fails"] = True
    done = run(tmp_path, hosts)
    assert done.code == 1 and done.failed == [failing]
    # Its configuration is there all the same, for when it is well.
    (revision,) = cluster.state()["revisions"]
    (well,) = {"gpu-1", "gpu-2"} - {failing}
    assert "time-slicing-5-renamed" in revision
    assert cluster.labels(failing) == {} and PRESENT in cluster.labels(well)


SLICED = {"mig": {"config": "all-1g.10gb"}, "sharing": {"mig_strategy": "mixed"}}


def test_a_node_that_fails_keeps_its_labels(cluster: SimulatedCluster, tmp_path: Path) -> None:
    labelled(cluster, "gpu-1", {CONFIG: "mig-mixed", PRESENT: "true", MIG_CONFIG: "old", MIG_STATE: "success"})
    hosts = two(cluster) | {"gpu-1": data(cluster, "gpu-1", **SLICED, x_fails=True)}
    assert run(tmp_path, hosts).failed == ["gpu-1"]
    failed = {MIG_CONFIG: "all-1g.10gb", MIG_STATE: "failed"}
    assert cluster.labels("gpu-1") == {CONFIG: "mig-mixed", PRESENT: "true", **failed}


def test_a_mig_label_of_people_s_stays_theirs(cluster: SimulatedCluster, tmp_path: Path) -> None:
    # gpunode set it, until the settings left it to people.
    labelled(cluster, "gpu-1", {MIG_CONFIG: "all-balanced"})
    by_label = SLICED | {"mig": {"config_from_label": True}}
    hosts = two(cluster) | {"gpu-1": data(cluster, "gpu-1", **by_label, x_fails=True)}
    assert run(tmp_path, hosts).failed == ["gpu-1"]
    assert cluster.labels("gpu-1") == {MIG_CONFIG: "all-balanced", MIG_STATE: "failed"}
    annotations = cluster.state()["nodes"]["gpu-1"]["metadata"]["annotations"]
    assert json.loads(annotations["gpunode/labels"]) == [MIG_STATE]


def test_where_all_nodes_fail_the_mig_state_of_each_says_so(cluster: SimulatedCluster, tmp_path: Path) -> None:
    hosts = {name: data(cluster, name, **SLICED, x_fails=True) for name in ("gpu-1", "gpu-2")}
    for name in hosts:
        labelled(cluster, name, {PRESENT: "true", MIG_STATE: "success"})
    # pyinfra ends such a run: nothing that comes behind is carried out by anybody.
    assert run(tmp_path, hosts).code == 1
    for name in hosts:
        assert cluster.labels(name) == {PRESENT: "true", MIG_CONFIG: "all-1g.10gb", MIG_STATE: "failed"}
    assert not cluster.state()["revisions"]


@pytest.mark.parametrize("method", ["helm", "manifest"])
def test_each_method_s_plugin_is_to_know_mig_devices(cluster: SimulatedCluster, tmp_path: Path, method: str) -> None:
    plugin = {"device_plugin": {"method": method}}
    sliced = {"mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"}, **plugin}
    hosts = {"gpu-1": data(cluster, "gpu-1", **sliced), "gpu-2": data(cluster, "gpu-2", **plugin)}
    names = [row["name"] for row in run(tmp_path, hosts, "--dry").actual["plan"]]
    assert sum("MIG devices" in name for name in names) == 1, names


def test_a_later_run_leaves_alone_what_it_is_not_for(cluster: SimulatedCluster, tmp_path: Path) -> None:
    run(tmp_path, two(cluster))
    before = cluster.labels("gpu-1")
    assert run(tmp_path, two(cluster), "-y", "--limit", "@fake/gpu-2").code == 0
    assert len(cluster.state()["revisions"]) == 1 and cluster.labels("gpu-1") == before
    # A refused node keeps what it has.
    hosts = two(cluster)
    hosts["gpu-1"] |= {"x_refused": True, "sharing": {}}
    run(tmp_path, hosts)
    assert cluster.labels("gpu-1")[CONFIG] == "time-slicing-5-renamed"
    # As node feature discovery's own defaults name a GPU: by class and vendor, for which the chart does not look.
    labelled(cluster, "gpu-1", {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, ours=False)
    present = {name: {**each, "device_plugin": {"nfd": "present"}} for name, each in two(cluster).items()}
    assert run(tmp_path, present).code == 0
    assert cluster.labels("gpu-1")[PRESENT] == cluster.labels("gpu-2")[PRESENT] == "true"


def test_a_host_of_no_cluster_asks_none(cluster: SimulatedCluster, tmp_path: Path) -> None:
    hosts = {**two(cluster), "bare-1": {}}
    assert run(tmp_path, hosts, "-y", "--limit", "@fake/bare-1").code == 0
    assert run(tmp_path, {"gpu-1": {}, "gpu-2": {}}).code == 0
    assert cluster.state()["calls"] == []


def test_a_node_without_plugin_loses_our_labels_alone(cluster: SimulatedCluster, tmp_path: Path) -> None:
    run(tmp_path, two(cluster))
    labelled(cluster, "gpu-1", {"zone": "a"}, ours=False)
    hosts = two(cluster) | {"gpu-1": data(cluster, "gpu-1", device_plugin={"method": "none"})}
    assert run(tmp_path, hosts).code == 0
    assert cluster.labels("gpu-1") == {"zone": "a"}
    assert not cluster.state()["nodes"]["gpu-1"]["metadata"].get("annotations")


@pytest.mark.parametrize("method", ["helm", "manifest", "gpu-operator"])
@pytest.mark.parametrize("there", [True, False])
def test_the_namespaces_admit_the_plugin_s_pods(
    cluster: SimulatedCluster, tmp_path: Path, method: str, there: bool
) -> None:
    theirs = {"team": "gpu"}
    names = [SPACE, *(["gpu-operator"] if method == "gpu-operator" else [])]
    cluster.write(namespaces={name: theirs for name in names} if there else {})
    nfd = {"nfd": "chart"} if method == "gpu-operator" else {}
    asked = {"gpu-1": data(cluster, "gpu-1", device_plugin={"method": method, **nfd})}
    assert run(tmp_path, asked).code == 0
    wanted = {**(theirs if there else {}), **dict([ENFORCED])}
    assert cluster.state()["namespaces"] == dict.fromkeys(names, wanted)
    assert run(tmp_path, asked, "--dry").changes == []


def test_the_cluster_s_own_namespace_is_not_labelled(cluster: SimulatedCluster, tmp_path: Path) -> None:
    plugin = {"namespace": "kube-system"}
    assert run(tmp_path, {"gpu-1": data(cluster, "gpu-1", device_plugin=plugin)}).code == 0
    assert cluster.called("kubectl get namespace") == 0


def test_a_misspelt_value_of_the_chart_is_told_and_the_run_goes_on(cluster: SimulatedCluster, tmp_path: Path) -> None:
    plugin = {"values": {"tolerationz": [], "image": {"pullPolicy": "Never"}}}
    done = run(tmp_path, {"gpu-1": data(cluster, "gpu-1", device_plugin=plugin)})
    assert done.code == 0 and cluster.state()["revisions"]
    assert unnamed(done.said, "device_plugin.values", "tolerationz", "tolerations") == []
    assert "pullPolicy" not in done.said


def test_a_label_of_somebody_else_s_stays_and_is_told(cluster: SimulatedCluster, tmp_path: Path) -> None:
    labelled(cluster, "gpu-1", {CONFIG: "theirs"}, ours=False)
    done = run(tmp_path, two(cluster))
    assert unnamed(done.said, CONFIG, "theirs") == []
    assert cluster.labels("gpu-1") == {CONFIG: "theirs", PRESENT: "true"}


@pytest.mark.parametrize(
    ("state", "names", "handler"),
    [
        ({"failures": {"helm upgrade": "context deadline exceeded"}}, ["kubernetes.timeout"], "nvidia"),
        ({"failures": dict.fromkeys(("kubectl", "helm list"), "connection refused")}, ["kubernetes.kubeconfig"], None),
        ({"runtime_class": {"kind": "RuntimeClass", "handler": "other"}}, ["other"], "other"),
        ({"namespaces": {SPACE: {ENFORCED[0]: "baseline"}}}, ["baseline", "device_plugin.namespace"], None),
    ],
    ids=["a release that fails", "no answer", "another handler", "a namespace that admits no such pods"],
)
def test_what_ends_the_run_for_all(
    cluster: SimulatedCluster, tmp_path: Path, state: dict[str, Any], names: list[str], handler: str | None
) -> None:
    cluster.write(**state)
    done = run(tmp_path, two(cluster))
    assert done.code == 1 and unnamed(done.said, *names) == []
    assert all(done.said.count(words) == 1 for words in state.get("failures", {}).values())
    assert cluster.labels("gpu-1") == cluster.labels("gpu-2") == {} and not cluster.state()["revisions"]
    assert (cluster.state()["runtime_class"] or {}).get("handler") == handler


def test_a_dry_run_shows_one_thing_of_a_cluster_that_does_not_answer(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(failures={"kubectl": "connection refused"})
    done = run(tmp_path, two(cluster), "--dry")
    assert done.changes == ["Device plugin | Ask the cluster for its nodes"]
    assert done.said.count("connection refused") == 1 and cluster.called("kubectl") == 1


@pytest.mark.parametrize(("answers", "reached"), [(False, 1), (True, 0)], ids=["no answer", "no report"])
def test_what_waits_for_the_cluster_stops_a_node_only_where_no_later_operation_reports_it(
    cluster: SimulatedCluster, tmp_path: Path, answers: bool, reached: int
) -> None:
    cluster.write(failures={} if answers else {"kubectl": "connection refused"})
    done = run(tmp_path, {"gpu-1": data(cluster, "gpu-1", x_waits=True)})
    assert done.code == 1 and unnamed(done.said, "a drain waits for the cluster") == []
    assert done.said.count("it does not answer") == reached


def test_a_host_that_never_joined_the_cluster_fails_alone(cluster: SimulatedCluster, tmp_path: Path) -> None:
    done = run(tmp_path, {**two(cluster), "gpu-9": data(cluster, "gpu-9")})
    assert done.code == 1 and done.failed == ["gpu-9"]
    assert unnamed(done.said, "gpu-9") == []
    assert PRESENT in cluster.labels("gpu-1")


def test_a_cluster_without_any_of_the_nodes_is_not_changed(cluster: SimulatedCluster, tmp_path: Path) -> None:
    hosts = {"gpu-8": data(cluster, "gpu-8", containerd={"default_runtime": "runc"}), "gpu-9": data(cluster, "gpu-9")}
    before = cluster.state()
    done = run(tmp_path, hosts)
    assert done.code == 1
    assert unnamed(done.said, "gpu-8", "gpu-9", "kubernetes.kubeconfig", "kubernetes.context") == []
    after = cluster.state()
    assert {**after, "calls": []} == {**before, "calls": []}
    assert {tuple(call[:3]) for call in after["calls"]} == {("kubectl", "get", "nodes")}
    # One that has joined is enough.
    assert run(tmp_path, {**hosts, "gpu-1": data(cluster, "gpu-1")}).failed == ["gpu-8", "gpu-9"]
    assert cluster.state()["revisions"] and PRESENT in cluster.labels("gpu-1")


def test_a_release_is_taken_over_where_a_setting_says_so(cluster: SimulatedCluster, tmp_path: Path) -> None:
    theirs = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "all"}})
    cluster.write(revisions=[theirs], live=json.loads(theirs))
    done = run(tmp_path, two(cluster))
    assert done.code == 1 and "device_plugin.take_over = True" in done.said
    assert cluster.state()["revisions"] == [theirs] and cluster.labels("gpu-1") == {}
    asked = {name: {**each, "device_plugin": {"take_over": True}} for name, each in two(cluster).items()}
    assert run(tmp_path, asked).code == 0 and len(cluster.state()["revisions"]) == 2
    # From then on it is gpunode's by its own description, whatever became of the labels, or by those.
    for count, lost in (
        (3, {"nodes": {name: node(name) for name in ("gpu-1", "gpu-2", "gpu-3")}}),
        (4, {"described": {}}),
    ):
        cluster.write(**lost)
        sharing = {"strategy": "time-slicing", "replicas": count}
        assert run(tmp_path, {name: {**each, "sharing": sharing} for name, each in two(cluster).items()}).code == 0
        assert len(cluster.state()["revisions"]) == count


def test_contradictions_are_refused_before_any_contact(cluster: SimulatedCluster, tmp_path: Path) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "sharing.strategy": {"sharing": {"strategy": "mps", "replicas": 4}, "mig": {"config": "all-balanced"}},
        "device_plugin.namespace": {"device_plugin": {"namespace": "default"}},
        "mps.enabled": {"mps": {"enabled": True}},
    }
    hosts = {f"gpu-{number}": data(cluster, f"gpu-{number}", **each) for number, each in enumerate(wrong.values())}
    done = run(tmp_path, hosts)
    assert done.code == 1 and "Connecting to hosts" not in done.said
    for number, key in enumerate(wrong):
        assert any(unnamed(line, f"gpu-{number}", key) == [] for line in done.said.splitlines()), done.said
    assert cluster.state()["calls"] == []
