"""The methods without NVIDIA's chart: what a cluster gets, what is refused, which plugins are in each other's way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.methods import wanted_objects
from gpunode.kubernetes.device_plugin.others import parse_plugins
from gpunode.kubernetes.nodes.labels import PRESENT, wanted_labels
from gpunode.kubernetes.objects.own_objects import DIGEST, METHOD, marked, objects_change
from gpunode.settings import check_hosts, settings_from
from tests.support.messages import unnamed
from tests.support.other_methods import NODE, NVIDIA, OF_HELM, _daemon_set, _listed, in_the_way

pytestmark = pytest.mark.pure
GPUSHARE = {
    **NODE, "device_plugin": {"method": "gpushare"}, "containerd": {"default_runtime": "nvidia"},
    "gpushare": {"schedulers": ["gpu-1"]},
}  # fmt: skip
MANIFEST = {
    **NODE, "device_plugin": {"method": "manifest"},
    "sharing": {"strategy": "time-slicing", "replicas": 5, "rename": True},
}  # fmt: skip
SLICED = {**NODE, "device_plugin": {"method": "manifest"}, "mig": {"config": "all-balanced"}, "sharing": {
    "mig_strategy": "mixed"}}  # fmt: skip


def _objects(**hosts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in wanted_objects(check_hosts(hosts))}


def test_gpushare_s_pods_choose_the_runtime_where_the_node_s_default_is_another_one() -> None:
    found = _objects(**{"gpu-1": {**GPUSHARE, "containerd": {"default_runtime": "runc"}}})
    assert found["DaemonSet/gpushare-device-plugin"]["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"


_OURS = [*_objects(**{"gpu-1": GPUSHARE}).values()]


def test_what_an_api_server_fills_in_is_no_change_and_what_a_hand_changes_is_one() -> None:
    change = objects_change(_OURS, _listed(*_OURS), _listed(*_OURS))
    assert not change.apply and not change.remove and not change.conflicts and not change.differences
    live = json.loads(json.dumps(_OURS))
    for each in live:
        each["metadata"] |= {"uid": "1", "managedFields": [{"manager": "gpunode"}]}
    plugin = next(each for each in live if each["kind"] == "DaemonSet")
    plugin["spec"] |= {"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate"}}
    plugin["spec"]["template"]["spec"] |= {"restartPolicy": "Always", "schedulerName": "default-scheduler"}
    assert not objects_change(_OURS, _listed(*live), _listed(*live)).apply
    plugin["spec"]["template"]["spec"]["containers"][0]["image"] = "debug"
    change = objects_change(_OURS, _listed(*live), _listed(*live))
    assert list(change.apply) == _OURS and "debug" in str(change.differences[0])


def test_a_field_that_is_no_longer_asked_for_is_a_change() -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    before, after = (marked({**document, "data": each}, "manifest") for each in ({"x": "1", "y": "2"}, {"x": "1"}))
    change = objects_change([after], _listed(before), _listed(before))
    assert change.apply and any(DIGEST in str(each) for each in change.differences)


def test_what_is_no_longer_asked_for_goes_workloads_first_and_what_is_another_s_stays() -> None:
    foreign = json.loads(json.dumps(_OURS[0]))
    foreign["metadata"]["labels"].pop(METHOD)
    foreign["metadata"]["name"] = "foreign"
    change = objects_change([], "", _listed(*_OURS, foreign))
    kinds = [each.kind for each in change.remove]
    assert kinds[:3] == ["DaemonSet", "Deployment", "Service"] and len(kinds) == len(_OURS)
    assert "foreign" not in [each.name for each in change.remove]


def test_an_object_of_somebody_else_s_is_not_written_over() -> None:
    live = json.loads(json.dumps(_OURS))
    for each in live:
        each["metadata"].pop("labels")
    change = objects_change(_OURS, _listed(*live), _listed())
    assert not change.apply and len(change.conflicts) == len(_OURS)


def test_a_namespace_that_is_there_is_nobody_s_to_change() -> None:
    wanted = list(_objects(**{"gpu-1": MANIFEST}).values())
    assert wanted[0]["kind"] == "Namespace"
    space = {**wanted[0], "metadata": {**wanted[0]["metadata"], "labels": {"team": "a"}}}
    change = objects_change(wanted, _listed(space, *wanted[1:]), _listed(*wanted[1:]))
    assert change.is_none and not change.conflicts
    assert objects_change(wanted, _listed(*wanted[1:]), _listed(*wanted[1:])).apply


@pytest.mark.parametrize(
    ("updated", "down", "waits"),
    [(2, 1, False), (2, 0, False), (1, 1, False), (1, 0, True)],
    ids=["a node is down", "a pod does not run", "the update waits for the node that is down", "the update goes on"],
)
def test_a_workload_is_waited_for_while_an_update_goes_on(updated: int, down: int, waits: bool) -> None:
    wanted = list(_objects(**{"gpu-1": MANIFEST}).values())
    counts = {"desiredNumberScheduled": 2, "updatedNumberScheduled": updated, "numberAvailable": 1}
    live = [{**each, "status": counts} if each["kind"] == "DaemonSet" else each for each in wanted]
    labels = wanted_labels(settings_from(MANIFEST))
    change = objects_change(wanted, _listed(*live), _listed(*live[1:]), not_ready=[labels] * down)
    assert (len(change.unready), len(change.ill), change.is_none) == (int(waits), int(not waits), not waits)


def test_device_plugins_are_known_by_what_runs_in_them() -> None:
    found = parse_plugins(
        _listed(
            _daemon_set("a", NVIDIA),
            _daemon_set("b", "registry:5000/mirror/k8s-device-plugin@sha256:01", **OF_HELM),
            _daemon_set("c", NVIDIA, {"container": {"command": ["gpu-feature-discovery"]}}, **OF_HELM),
            _daemon_set("d", "acs/k8s-gpushare-plugin:v2"),
            _daemon_set("e", NVIDIA, ownerReferences=[{"kind": "ClusterPolicy"}]),
            _daemon_set("f", "own/build", {"container": {"command": ["/usr/bin/nvidia-device-plugin"]}}),
            _daemon_set("g", "registry.k8s.io/kube-proxy:v1.31.0"),
            _daemon_set("h", NVIDIA, {"container": {"command": ["mps-control-daemon"]}}),
        )
    )
    assert {each.name: each.method for each in found} == {
        "a": "manifest", "b": "helm", "d": "gpushare", "e": "gpu-operator", "f": "manifest",
    }  # fmt: skip
    with pytest.raises(ParseError):
        parse_plugins('{"items": [{}]}')


def test_a_plugin_that_takes_the_node_beside_its_own_is_told_with_the_remedy() -> None:
    settings = settings_from(GPUSHARE)
    plugins = parse_plugins(_listed(_daemon_set("nvidia-device-plugin-daemonset", NVIDIA)))
    (told,) = in_the_way(settings, {"gpushare": "true"}, plugins)
    assert unnamed(told, "kube-system", "daemonset", "nvidia-device-plugin-daemonset") == []
    assert not list(in_the_way(settings_from({**NODE, "device_plugin": {"method": "none"}}), {}, plugins))
    # A static manifest beside the chart is two plugins as well.
    assert list(in_the_way(settings_from(NODE), {}, plugins))


def test_gpunode_s_own_plugins_are_in_nobody_s_way_once_the_labels_are_changed() -> None:
    chart = _daemon_set(
        "nvdp", NVIDIA,
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "feature.node.kubernetes.io/pci-10de.present", "operator": "In",
                                   "values": ["true"]}]},
            {"matchExpressions": [{"key": PRESENT, "operator": "In", "values": ["true"]}]},
        ]}}}}, **{**OF_HELM, "namespace": "nvidia-device-plugin"},
    )  # fmt: skip
    plugins = parse_plugins(_listed(chart, *(each for each in wanted_objects(check_hosts({"gpu-1": GPUSHARE})) if each[
        "kind"] == "DaemonSet")))  # fmt: skip
    helm, shared = settings_from(NODE), settings_from(GPUSHARE)
    assert len(plugins) == 2
    assert not list(in_the_way(helm, wanted_labels(helm), plugins))
    assert not list(in_the_way(shared, wanted_labels(shared), plugins))
    # Node feature discovery labels a node whatever is asked for it: the chart's pods go there.
    found = {**wanted_labels(shared), "feature.node.kubernetes.io/pci-10de.present": "true"}
    (told,) = in_the_way(shared, found, plugins)
    assert "helm -n nvidia-device-plugin uninstall nvdp" in told
    assert not list(in_the_way(shared, found, plugins, leaving=frozenset({"helm"})))


expressions = st.fixed_dictionaries(
    {"key": st.sampled_from(["a", "b"]), "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"])},
    optional={"values": st.lists(st.sampled_from(["1", "2", "x"]), max_size=2)},
)


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])), expressions)
def test_a_daemon_set_takes_nodes_by_its_conditions(labels: dict[str, str], expression: dict[str, Any]) -> None:
    def takes(*given: dict[str, Any]) -> bool:
        required = {"nodeSelectorTerms": [{"matchExpressions": list(given)}]}
        pod = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
        return parse_plugins(_listed(_daemon_set("a", NVIDIA, pod)))[0].takes(labels)

    (free,) = parse_plugins(_listed(_daemon_set("a", NVIDIA)))
    assert free.takes(labels)
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    if expression["operator"] in opposite:
        other = {**expression, "operator": opposite[expression["operator"]]}
        assert takes(expression) != takes(other) and not takes(expression, other)
