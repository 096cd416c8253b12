"""The settings by which gpunode can ask something of NVIDIA's charts, and what it asks by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
from gpunode.kubernetes.gpu_operator import operator
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.settings import check_hosts
from gpunode.settings.model import Settings
from tests.real.charts import OPERATOR, Chart, Choice, combinations

# The oldest chart of the plugin that gpunode takes.
OLDEST = "0.15.0"
_MIRROR = {"image": "registry.example.org/nvidia/k8s-device-plugin", "image_tag": "v0.0.0-ubi9"}
# Option -> the data of a host, by component; several that belong together are one option.
PLUGIN_OPTIONS: dict[str, list[dict[str, dict[str, Any]]]] = {
    "configurations": [
        {},
        {"sharing": {"strategy": "time-slicing", "replicas": 5, "rename": True}},
        {"sharing": {"strategy": "mps", "replicas": 4}},
        {"sharing": {"mig_strategy": "mixed"}},
        {"device_plugin": {"config_name": "own"}, "sharing": {"config": "one"}},
    ],
    "list": [{}, *({"device_plugin": {"device_list_strategy": each}} for each in (
        "envvar", "volume-mounts", "volume-mounts,cdi-annotations", "cdi-cri"))],
    "id": [{}, *({"device_plugin": {"device_id_strategy": each}} for each in ("uuid", "index"))],
    "fails": [{}, *({"device_plugin": {"fail_on_init_error": each}} for each in (True, False))],
    "specs": [{}, *({"device_plugin": {"pass_device_specs": each}} for each in (True, False))],
    "root": [{}, {"device_plugin": {"driver_root": "/run/nvidia/driver"}}],
    "discovery": [{}, *({"device_plugin": {"gfd": gfd, "nfd": nfd}} for gfd, nfd in (
        (False, "present"), (False, "chart"), (True, "present"), (True, "chart")))],
    "class": [{}, {"device_plugin": {"runtime_class": "nvidia"}}, {"containerd": {"default_runtime": "runc"}}],
    "image": [{}, {"device_plugin": _MIRROR}],
    "release": [{}, {"device_plugin": {"release": "plugin-of-twenty-aaa", "namespace": "gpu"}}],
}  # fmt: skip
OPERATOR_OPTIONS: dict[str, list[dict[str, dict[str, Any]]]] = {
    "exporter": [{"gpu_operator": {"dcgm_exporter": each}} for each in (True, False)],
    "manager": [{"gpu_operator": {"mig_manager": each}} for each in (True, False)],
    "discovery": [{"device_plugin": {"nfd": each}} for each in ("chart", "present")],
    "gfd": [{"device_plugin": {"gfd": each}} for each in (True, False)],
}
# Charts that write it without quotes: no API server takes what they make of it, and gpunode refuses it.
UNQUOTED = ("fails", ("0.16.0", "0.16.1", "0.16.2", "0.17.0"))
# Every three of the plugin's options in each of their values together; of the operator's few, all.
PLUGIN_CHOICES = list(combinations(PLUGIN_OPTIONS, 3))
OPERATOR_CHOICES = list(combinations(OPERATOR_OPTIONS, len(OPERATOR_OPTIONS)))


def plugin_choices(chart: Chart, choices: Sequence[Choice] = PLUGIN_CHOICES) -> list[Choice]:
    """Return the choices that a chart of the plugin has; by it, what gpunode refuses is not asked."""
    option, versions = UNQUOTED
    return [{**each, option: {}} if chart.version in versions else each for each in choices]


def settings_of(chart: Chart, choice: Choice, **more: Any) -> Settings:
    """Return the settings of a node by that chart; raise SettingsError. `more` is component -> settings."""
    data: dict[str, Any] = {
        "kubernetes": {"enabled": True},
        # So that each strategy is one that the node takes.
        "toolkit": {"accept_nvidia_visible_devices_as_volume_mounts": True},
    }
    of_chart = {"chart": str(chart.path), "version": chart.version}
    data["gpu_operator" if chart.name == OPERATOR else "device_plugin"] = of_chart
    for part in (*choice.values(), more):
        for component, settings in part.items():
            data[component] = {**data.get(component, {}), **settings}
    return check_hosts({"gpu-1": data})["gpu-1"]


def plugin_release(choice: Choice, chart: Chart) -> tuple[Settings, AskedRelease]:
    """Return a node's settings, and the plugin's release that they ask for."""
    settings = settings_of(chart, choice)
    found = desired_cluster({"gpu-1": settings})
    assert found is not None
    return settings, found.release


def operator_release(choice: Choice, chart: Chart) -> tuple[Settings, AskedRelease]:
    """Return a node's settings, and the operator's release that they ask for."""
    settings = settings_of(chart, choice, device_plugin={"method": OPERATOR})
    found = operator({"gpu-1": settings})
    assert found is not None
    return settings, found
