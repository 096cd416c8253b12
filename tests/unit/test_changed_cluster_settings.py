"""Each setting of a cluster's components, changed: what the cluster is to get is another one, which drift, plan and run
all compare the cluster with. Taken from the model, so that a new setting is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.kubernetes.dcgm_exporter import exporter
from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
from gpunode.kubernetes.device_plugin.methods import extender, to_json, wanted_objects
from gpunode.kubernetes.device_plugin.pod_security import namespaces
from gpunode.kubernetes.gpu_operator import operator
from gpunode.settings import Settings, component_models, settings_from
from gpunode.settings.chart import merged
from gpunode.settings.cluster import node_name
from tests.support.changed_settings import CLUSTER, fields, others

pytestmark = pytest.mark.pure

DATA = yaml.safe_load((Path(__file__).parent / "data" / "cluster-settings.yaml").read_text())
METHODS, BASES, EXAMPLES = DATA["methods"], DATA["bases"], DATA["examples"]
EXAMPLES["device_plugin.method"] = [
    {"device_plugin": {"method": method, "nfd": "chart" if method == "gpu-operator" else "none"}}
    for method in others(component_models()["device_plugin"].model_fields["method"].annotation, "helm")
]
FIELDS = {
    setting: kind
    for name in CLUSTER
    for setting, kind in fields(name, component_models()[name])
    if not setting.startswith(("kubernetes.drain.", "kubernetes.kubelet."))
} | {"kubernetes.drain": None, "kubernetes.kubelet": None}


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
    base = merged({"kubernetes": {"enabled": True}}, BASES[setting.partition(".")[0]])
    changed = _changed(setting)
    assert changed, f"name a value of {setting} in {__file__}"
    before = wanted(settings_from(base))
    same = [data for data in changed if wanted(settings_from(merged(base, data))) == before]
    assert same == []


def test_no_setting_is_named_that_is_not_there() -> None:
    assert {*METHODS, *EXAMPLES} <= FIELDS.keys()
    assert not METHODS.keys() & EXAMPLES.keys()
