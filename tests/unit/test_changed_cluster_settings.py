"""Each setting of a cluster's components, changed: what the cluster is to get is another one, which drift, plan and run
all compare the cluster with. Taken from the model, so that a new setting is in it; METHODS say how, and not what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpunode.kubernetes.dcgm_exporter import exporter
from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
from gpunode.kubernetes.device_plugin.methods import extender, to_json, wanted_objects
from gpunode.kubernetes.device_plugin.pod_security import namespaces
from gpunode.kubernetes.gpu_operator import operator
from gpunode.settings import Settings, component_models, settings_from
from gpunode.settings.cluster import node_name
from tests.support.changed_settings import CLUSTER, fields, others

pytestmark = pytest.mark.pure

_WHERE = "where the chart is taken from: what it brings is compared as a whole"
METHODS: Mapping[str, str] = {
    "kubernetes.run_on": "from where the cluster is asked",
    "kubernetes.kubeconfig": "by which credentials",
    "kubernetes.context": "by which credentials",
    "kubernetes.version": "what preflight goes by (and a RuntimeClass's version)",
    "kubernetes.helm": "by which program",
    "kubernetes.kubectl": "by which program",
    "kubernetes.timeout": "how long is waited",
    "kubernetes.history": "how many revisions helm keeps",
    "kubernetes.drain": "how a node is emptied",
    "kubernetes.kubelet": "what a node's own kubelet goes by (tests/unit/test_kubelet_change.py)",
    "kubernetes.expected_resources": "what the verdict waits for",
    "device_plugin.repository": _WHERE,
    "device_plugin.ca_file": _WHERE,
    "device_plugin.take_over": "whether somebody else's release may be taken over",
    "gpu_operator.repository": _WHERE,
    "gpu_operator.ca_file": _WHERE,
    "gpu_operator.take_over": "whether somebody else's release may be taken over",
    "dcgm_exporter_chart.repository": _WHERE,
    "dcgm_exporter_chart.ca_file": _WHERE,
    "dcgm_exporter_chart.take_over": "whether somebody else's release may be taken over",
    "sharing.mig_strategy": "counts with MIG (tests/unit/test_mig_label.py, scenario cluster)",
    "gpushare.inspect_url": "where kubectl's plugin is taken from: its SHA-256 is pinned",
    "gpushare.inspect_path": "a file of the control plane (scenario cluster)",
    "gpushare.inspect_sha256": "a file of the control plane (scenario cluster)",
    "gpushare.schedulers": "a file of the control plane (scenario cluster)",
    "gpushare.manifest": "a file of the control plane (scenario cluster)",
    "gpushare.scheduler": "whose the scheduler's file is (scenario cluster)",
}
_OPERATOR = {"device_plugin": {"method": "gpu-operator", "nfd": "chart"}}
_SHARE = {"device_plugin": {"method": "gpushare"}}
_SLICED = {"sharing": {"strategy": "time-slicing", "replicas": 4}}
_RDMA = {
    "rdma_shared_device_plugin": {
        "enabled": True,
        "image": "registry.example/rdma:v1.5.3",
        "resources": {"rdma/a": {"vendors": ["15b3"]}},
    }
}
_FPGA = {"chart": "fpga", "repository": "https://charts.example", "version": "1.2.3", "namespace": "fpga"}
_NONE = {"strategy": "none", "replicas": None}
_DIGEST = f"sha256:{'a' * 64}"
# Component -> what it needs beside it.
BASES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "kubernetes": {},
    "device_plugin": {},
    "gpu_operator": _OPERATOR,
    "dcgm_exporter_chart": {"dcgm_exporter_chart": {"enabled": True}},
    "gpushare": _SHARE,
    "rdma_shared_device_plugin": _RDMA,
    "sharing": _SLICED,
}
EXAMPLES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "kubernetes.enabled": ({"kubernetes": {"enabled": False}},),
    "kubernetes.extended_resources": ({"kubernetes": {"extended_resources": {"example.com/dongle": 4}}},),
    "kubernetes.device_plugins": ({"kubernetes": {"device_plugins": {"fpga": _FPGA}}},),
    "kubernetes.node_labels": ({"kubernetes": {"node_labels": {"example.com/rack": "b7"}}},),
    "kubernetes.node_name": ({"kubernetes": {"node_name": "other"}},),
    "device_plugin.method": tuple(
        {"device_plugin": {"method": method, "nfd": "chart" if method == "gpu-operator" else "none"}}
        for method in others(component_models()["device_plugin"].model_fields["method"].annotation, "helm")
    ),
    "device_plugin.gfd": ({"device_plugin": {"gfd": True, "nfd": "chart"}},),
    "device_plugin.chart": ({"device_plugin": {"chart": "other"}},),
    "device_plugin.version": ({"device_plugin": {"version": "0.18.2"}},),
    "device_plugin.release": ({"device_plugin": {"release": "other"}},),
    "device_plugin.namespace": ({"device_plugin": {"namespace": "other"}},),
    "device_plugin.image": ({"device_plugin": {"image": "registry.example/plugin"}},),
    "device_plugin.image_tag": ({"device_plugin": {"image_tag": "v0.19.3"}},),
    "device_plugin.image_digest": ({"device_plugin": {"image_digest": _DIGEST}},),
    "device_plugin.config_name": ({"device_plugin": {"config_name": "theirs"}},),
    "device_plugin.device_list_strategy": ({"device_plugin": {"device_list_strategy": "cdi-cri"}},),
    "device_plugin.driver_root": ({"device_plugin": {"driver_root": "/run/nvidia/driver"}},),
    "device_plugin.nfd": ({"device_plugin": {"gfd": True, "nfd": "chart"}},),
    "device_plugin.values": ({"device_plugin": {"values": {"podLabels": {"team": "a"}}}},),
    "device_plugin.runtime_class": ({"device_plugin": {"runtime_class": "nvidia"}},),
    "gpu_operator.chart": ({"gpu_operator": {"chart": "other"}},),
    "gpu_operator.version": ({"gpu_operator": {"version": "v25.3.2"}},),
    "gpu_operator.release": ({"gpu_operator": {"release": "other"}},),
    "gpu_operator.namespace": ({"gpu_operator": {"namespace": "other"}},),
    "gpu_operator.image_digests": ({"gpu_operator": {"image_digests": {"dcgm": _DIGEST}}},),
    "gpu_operator.values": ({"gpu_operator": {"values": {"operator": {"cleanupCRD": True}}}},),
    "dcgm_exporter_chart.chart": ({"dcgm_exporter_chart": {"chart": "other"}},),
    "dcgm_exporter_chart.version": ({"dcgm_exporter_chart": {"version": "4.8.1"}},),
    "dcgm_exporter_chart.release": ({"dcgm_exporter_chart": {"release": "other"}},),
    "dcgm_exporter_chart.namespace": ({"dcgm_exporter_chart": {"namespace": "other"}},),
    "dcgm_exporter_chart.engine": ({"dcgm_exporter_chart": {"engine": "host"}, "dcgm": {"enabled": True}},),
    "dcgm_exporter_chart.port": ({"dcgm_exporter_chart": {"port": 9500}},),
    "dcgm_exporter_chart.interval": ({"dcgm_exporter_chart": {"interval": 5}},),
    "dcgm_exporter_chart.values": ({"dcgm_exporter_chart": {"values": {"podLabels": {"team": "a"}}}},),
    "gpushare.extender_image": ({"gpushare": {"extender_image": "registry.example/extender:1"}},),
    "gpushare.plugin_image": ({"gpushare": {"plugin_image": "registry.example/plugin:1"}},),
    "gpushare.node_port": ({"gpushare": {"node_port": 32000}},),
    "rdma_shared_device_plugin.image": ({"rdma_shared_device_plugin": {"image": "registry.example/rdma:v1"}},),
    "rdma_shared_device_plugin.namespace": ({"rdma_shared_device_plugin": {"namespace": "rdma"}},),
    "rdma_shared_device_plugin.resources": (
        {"rdma_shared_device_plugin": {"resources": {"rdma/a": {"vendors": ["15b3", "1002"]}}}},
    ),
    "rdma_shared_device_plugin.update_seconds": ({"rdma_shared_device_plugin": {"update_seconds": 300}},),
    "sharing.strategy": ({"sharing": {"strategy": "mps", "replicas": 4}},),
    "sharing.replicas": ({"sharing": {"replicas": 8}},),
    "sharing.resources": ({"sharing": {"resources": {"nvidia.com/gpu": 8}, "replicas": None}},),
    "sharing.config": ({"device_plugin": {"config_name": "theirs"}, "sharing": {"config": "small", **_NONE}},),
}
FIELDS = {
    setting: kind
    for name in CLUSTER
    for setting, kind in fields(name, component_models()[name])
    if not setting.startswith(("kubernetes.drain.", "kubernetes.kubelet."))
} | {"kubernetes.drain": None, "kubernetes.kubelet": None}


def _merged(one: Any, two: Any) -> Any:
    if not isinstance(one, Mapping) or not isinstance(two, Mapping):
        return two
    return {**one, **{key: _merged(one.get(key), value) for key, value in two.items()}}


def wanted(settings: Settings) -> str:
    """Return all that the cluster of one node is to get, as text."""
    hosts = {"gpu-1": settings}
    release, beside, by = desired_cluster(hosts), operator(hosts), extender(hosts)
    of_dcgm = exporter(hosts)
    return json.dumps(
        [
            None if release is None else release.to_json(),
            None if beside is None else beside.to_json(),
            None if of_dcgm is None else of_dcgm.to_json(),
            wanted_objects(hosts),
            repr(by),
            node_name("gpu-1", settings),
            repr(namespaces(hosts)),
            to_json(hosts).get("extended_resources"),
        ],
        sort_keys=True,
    )


def _changed(setting: str) -> list[Mapping[str, Any]]:
    component, _, key = setting.partition(".")
    if setting in EXAMPLES:
        return [*EXAMPLES[setting]]
    base = BASES[component].get(component, {})
    now = getattr(component_models()[component].model_validate(dict(base)), key, None)
    return [{component: {key: value}} for value in others(FIELDS[setting], now)]


@pytest.mark.parametrize("setting", sorted(FIELDS.keys() - METHODS.keys()))
def test_each_setting_of_a_cluster_changes_what_the_cluster_is_to_get(setting: str) -> None:
    base = _merged({"kubernetes": {"enabled": True}}, BASES[setting.partition(".")[0]])
    changed = _changed(setting)
    assert changed, f"name a value of {setting} in {__file__}"
    before = wanted(settings_from(base))
    same = [data for data in changed if wanted(settings_from(_merged(base, data))) == before]
    assert same == []


def test_no_setting_is_named_that_is_not_there() -> None:
    assert {*METHODS, *EXAMPLES} <= FIELDS.keys()
    assert not METHODS.keys() & EXAMPLES.keys()
