"""What a cluster is to get, from the settings of all nodes of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.nodes.labels import DEFAULT, configuration, wanted_labels
from gpunode.kubernetes.objects.runtime_class import NAME, runtime_class
from gpunode.settings import Settings
from gpunode.settings.chart import merged
from gpunode.settings.cluster import BY_CHART, needs_runtime_class, node_name
from gpunode.settings.device_plugin import METHOD, DevicePluginSettings, GpuOperatorSettings
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.sharing import SharingSettings

# How a release's change comes to its pods: all DaemonSets of NVIDIA's chart have this one value, from 0.15.0 to 0.20.0,
# which is every version that knows MPS; its default is RollingUpdate.
# source: NVIDIA/k8s-device-plugin, deployments/helm/nvidia-device-plugin, values.yaml and templates/daemonset-*.yml at
# v0.15.0, v0.16.2, v0.17.4, v0.18.0, v0.19.0 and v0.20.0; templates/_helpers.tpl for `checksum/config`
STRATEGY, ON_DELETE = "updateStrategy", "OnDelete"
_CHECKSUM = "checksum/config"
# One of each kind: what an entry consists of shows in them.
_SAMPLES: tuple[dict[str, Any], ...] = (
    {},
    {"mig_strategy": "mixed"},
    {"strategy": "mps", "replicas": 2},
    {"strategy": "time-slicing", "replicas": 2, "fail_requests_greater_than_one": True},
)


def node_by_node(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chart's values by which no change of the release begins a pod anew; a person's own strategy stays.

    The chart has a digest of all entries in its pods, so that an entry of one node would make the pods of all nodes
    old ones. Here it is a digest of how gpunode writes entries: one of the same name says the same, and a node that
    gets another entry gets other pods with it.
    """
    if STRATEGY in values:
        return dict(values)
    found = merged(values, {STRATEGY: {"type": ON_DELETE}})
    if (found.get("config") or {}).get("map") is None or _CHECKSUM in (found.get("podAnnotations") or {}):
        return found
    texts = (configuration(SharingSettings.model_validate(each)).text for each in _SAMPLES)
    form = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return merged(found, {"podAnnotations": {_CHECKSUM: form}})


def is_node_by_node(values: Mapping[str, Any]) -> bool:
    """Say whether a change of the release leaves its pods as they are, by these values."""
    found = values.get(STRATEGY)
    return isinstance(found, Mapping) and found.get("type") == ON_DELETE


# The chart that a release must be of to be taken away.
CHART = "nvidia-device-plugin"
# The operator gives every GPU node this label, and its MIG manager takes it away while it divides the node's GPUs: what
# is selected by it leaves before, and begins anew with the new devices. It waits for its own plugin alone.
# source: NVIDIA/mig-parted, deployments/container/reconfigure-mig.sh; NVIDIA/gpu-operator, controllers/state_manager.go
PAUSED_BY = "nvidia.com/gpu.deploy.device-plugin"


@dataclass(frozen=True)
class DesiredCluster:
    """Hold what a cluster is to get: the chart with its values, a RuntimeClass or none, and node's name -> labels."""

    kubernetes: KubernetesSettings
    plugin: DevicePluginSettings
    values: Mapping[str, Any]
    runtime_class: Mapping[str, Any] | None
    labels: Mapping[str, Mapping[str, str]]

    @property
    def release(self) -> AskedRelease:
        """Return the plugin's release."""
        return AskedRelease(self.kubernetes, self.plugin, self.values)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {**self.release.to_json(), "runtime_class": self.runtime_class, "labels": self.labels}


def hosts_by(methods: Collection[str], hosts: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the hosts that get their GPUs into the cluster by one of these methods."""
    return {
        host: settings
        for host, settings in hosts.items()
        if settings.kubernetes.enabled and settings.device_plugin.method in methods
    }


def nodes_of(hosts: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the hosts that get their GPUs into the cluster by NVIDIA's chart."""
    return hosts_by(BY_CHART, hosts)


def desired_cluster(hosts: Mapping[str, Settings]) -> DesiredCluster | None:
    """Return what the cluster of these hosts is to get, None where none of them is a node of one.

    The settings have been judged: all nodes have the same, as far as they must.
    """
    nodes = nodes_of(hosts)
    if not nodes:
        return None
    first = next(iter(nodes.values()))
    by_class = any(map(needs_runtime_class, nodes.values()))
    return DesiredCluster(
        kubernetes=first.kubernetes,
        plugin=first.device_plugin,
        values=chart_values(
            first.device_plugin,
            [settings.sharing for settings in nodes.values()],
            by_class,
            next((each.gpu_operator for each in nodes.values() if each.device_plugin.method == METHOD), None),
        ),
        runtime_class=runtime_class(first.kubernetes.version) if by_class else None,
        labels={node_name(host, settings): wanted_labels(settings) for host, settings in nodes.items()},
    )


def chart_values(
    plugin: DevicePluginSettings,
    sharings: list[SharingSettings],
    by_class: bool,
    operator: GpuOperatorSettings | None = None,
) -> dict[str, Any]:
    """Return the chart's values: a person's own, and over them what settings stand for.

    operator: the GPU Operator beside the plugin; None where there is none
    """
    ours: dict[str, Any] = {"config": _config(plugin, sharings)}
    for name, value in (
        ("deviceListStrategy", plugin.device_list_strategy),
        ("deviceIDStrategy", plugin.device_id_strategy),
        ("failOnInitError", plugin.fail_on_init_error),
        ("compatWithCPUManager", plugin.pass_device_specs),
        ("nvidiaDriverRoot", plugin.driver_root),
        # On all three DaemonSets: without it none of them sees the driver.
        ("runtimeClassName", NAME if by_class else None),
    ):
        if value is not None:
            ours[name] = value
    image = {"repository": plugin.image, "tag": plugin.tag}
    if any(image.values()):
        ours["image"] = {name: value for name, value in image.items() if value is not None}
    ours["gfd"] = {"enabled": plugin.gfd}
    # Without it the chart would bring node feature discovery along with gfd; an operator's chart brings its own.
    ours["nfd"] = {"enabled": plugin.nfd == "chart" and operator is None}
    if operator is not None and operator.mig_manager:
        ours["nodeSelector"] = {PAUSED_BY: "true"}
    values = merged(plugin.values, ours)
    # Each restart of an MPS daemon ends the programs of its clients.
    return node_by_node(values) if any(each.strategy == "mps" for each in sharings) else values


def _config(plugin: DevicePluginSettings, sharings: list[SharingSettings]) -> dict[str, Any]:
    if plugin.config_name is not None:
        return {"name": plugin.config_name}
    default = SharingSettings.model_validate({})
    entries = {each.name: each.text for each in map(configuration, [default, *sharings])}
    return {"map": dict(sorted(entries.items())), "default": DEFAULT}
