"""What a cluster gets by the methods without a helm release, from the settings of all hosts of an inventory.

The static manifest is NVIDIA's device plugin without its chart: a ConfigMap, and a DaemonSet for each configuration,
which takes the nodes whose label names it. No program watches the labels, and the pods have no right in the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpunode.kubernetes.dcgm_exporter import nodes_with_exporter
from gpunode.kubernetes.device_plugin.desired_cluster import DesiredCluster, hosts_by, nodes_of
from gpunode.kubernetes.gpushare.configuration import Extender
from gpunode.kubernetes.gpushare.decide import gpushare_objects
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT, SERVED_BY, configuration, owned, wanted_labels
from gpunode.kubernetes.objects.own_objects import SELECTED_BY, from_template, marked
from gpunode.kubernetes.objects.runtime_class import NAME, runtime_class
from gpunode.kubernetes.other_plugins import desired as other_plugins
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART, needs_runtime_class, node_name
from gpunode.settings.cluster import other_plugins as named
from gpunode.settings.device_plugin import DevicePluginSettings
from gpunode.settings.kubernetes import LOCAL
from gpunode.settings.other_plugins import EXPORTER
from gpunode.settings.sharing import SharingSettings

_NAME = "gpunode-device-plugin"
IMAGE = "nvcr.io/nvidia/k8s-device-plugin"


def static_manifest(
    plugin: DevicePluginSettings, sharings: Sequence[SharingSettings], by_class: bool
) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are made; `by_class`: its pods choose the nvidia runtime."""
    entries = {each.name: each.text for each in map(configuration, sharings)}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plugin.namespace}}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _NAME, "namespace": plugin.namespace},
        "data": dict(sorted(entries.items())),
    }
    with_mig = {configuration(each).name for each in sharings if each.mig_strategy != "none"}
    plugins = [_daemon_set(plugin, name, by_class, name in with_mig) for name in sorted(entries)]
    return [space, *(marked(each, "manifest") for each in (config, *plugins))]


def _daemon_set(plugin: DevicePluginSettings, entry: str, by_class: bool, with_mig: bool) -> dict[str, Any]:
    options = {
        "DEVICE_LIST_STRATEGY": plugin.device_list_strategy,
        "DEVICE_ID_STRATEGY": plugin.device_id_strategy,
        "FAIL_ON_INIT_ERROR": plugin.fail_on_init_error,
        "PASS_DEVICE_SPECS": plugin.pass_device_specs,
        "NVIDIA_DRIVER_ROOT": plugin.driver_root,
        "NVIDIA_MIG_MONITOR_DEVICES": "all" if with_mig else None,
    }
    given = ((name, value) for name, value in options.items() if value is not None)
    (found,) = from_template(
        "device-plugin.yaml",
        name=_NAME,
        set_name=daemon_set_name(entry),
        namespace=plugin.namespace,
        entry=entry,
        config_label=CONFIG,
        served_by=SERVED_BY,
        image=f"{plugin.image or IMAGE}:{plugin.tag or f'v{plugin.version}'}",
        environment={name: str(value).lower() if isinstance(value, bool) else value for name, value in given},
        security=_security(plugin, with_mig),
        runtime_class=NAME if by_class else None,
    )
    return found


def daemon_set_name(entry: str) -> str:
    """Return the name of an entry's DaemonSet: those of `configuration` are made of what a name may hold."""
    return f"{_NAME}-{entry.lower()}"


def _security(plugin: DevicePluginSettings, with_mig: bool) -> dict[str, Any]:
    """Return what the plugin may do on the node: as much as the chart gives it for the same."""
    if plugin.pass_device_specs:
        return {"privileged": True}
    if with_mig or "volume-mounts" in plugin.strategies:
        return {"capabilities": {"add": ["SYS_ADMIN"]}}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


# Those by which somebody's pods get their GPUs; what a person calls `none` is his own.
WITH_OBJECTS = ("manifest", "gpushare")


def nodes_by(method: str, hosts: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the hosts that get their GPUs into the cluster by one method."""
    return hosts_by((method,), hosts)


def members(hosts: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the hosts whose GPUs get into the cluster by gpunode, by whichever method."""
    return hosts_by((*BY_CHART, *WITH_OBJECTS), hosts)


def wanted_objects(hosts: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """Return the objects of gpunode's own that the cluster is to have, in the order in which they are made."""
    found: list[dict[str, Any]] = []
    if nodes := nodes_by("manifest", hosts):
        first, each = next(iter(nodes.values())), list(nodes.values())
        by_class = any(map(needs_runtime_class, each))
        found += static_manifest(first.device_plugin, [settings.sharing for settings in each], by_class)
    if nodes := nodes_by("gpushare", hosts):
        first = next(iter(nodes.values()))
        by_class = any(map(needs_runtime_class, nodes.values()))
        found += gpushare_objects(first.gpushare, NAME if by_class else None)
    others = other_plugins.objects(hosts)
    # A namespace may be that of several.
    return found + [each for each in others if each not in found]


def extender(hosts: Mapping[str, Settings]) -> Extender | None:
    """Return the extender that the cluster's schedulers are to ask; None where they are to ask none of gpunode's."""
    first = next(iter(nodes_by("gpushare", hosts).values()), None)
    if first is None or first.gpushare.scheduler == "theirs":
        return None
    return Extender(first.gpushare.address, first.gpushare.ignorable)


def schedulers(hosts: Mapping[str, Settings]) -> tuple[str, ...]:
    """Return the control-plane hosts whose scheduler is gpunode's to change, also back; none where nobody names any."""
    first = next((settings for settings in hosts.values() if settings.kubernetes.enabled), None)
    if first is None or first.gpushare.scheduler == "theirs":
        return ()
    if first.gpushare.schedulers:
        return tuple(first.gpushare.schedulers)
    return () if first.kubernetes.run_on == LOCAL else (first.kubernetes.run_on,)


def class_alone(hosts: Mapping[str, Settings]) -> DesiredCluster | None:
    """Return what brings the RuntimeClass about where no release does and other pods of gpunode's choose it."""
    nodes = [settings for method in WITH_OBJECTS for settings in nodes_by(method, hosts).values()]
    nodes += nodes_with_exporter(hosts).values()
    if nodes_of(hosts) or not any(map(needs_runtime_class, nodes)):
        return None
    first = nodes[0]
    desired = runtime_class(first.kubernetes.version)
    return DesiredCluster(first.kubernetes, first.device_plugin, values={}, runtime_class=desired, labels={})


def release_leaves(
    hosts: Mapping[str, Settings], nodes: Mapping[str, ClusterNode], relabelled: Collection[str]
) -> bool:
    """Say whether the release of the device plugin is gpunode's, and no node needs it any more.

    It is gpunode's where a host of the inventory that now has another method was labelled for it.

    + relabelled: names in the cluster of the nodes whose labels this run brings about; all others keep theirs
    """
    return not nodes_of(hosts) and _leaves(hosts, by_release(nodes), relabelled)


def operator_leaves(
    hosts: Mapping[str, Settings], nodes: Mapping[str, ClusterNode], relabelled: Collection[str]
) -> bool:
    """Say of the GPU Operator's release what `release_leaves` says of the device plugin's."""
    return not nodes_by("gpu-operator", hosts) and _leaves(hosts, by_operator(nodes), relabelled)


def _leaves(hosts: Mapping[str, Settings], labelled: set[str], relabelled: Collection[str]) -> bool:
    return bool(members(hosts)) and bool(labelled) and labelled <= set(relabelled)


def by_release(nodes: Mapping[str, ClusterNode]) -> set[str]:
    """Return the names of the nodes that gpunode labelled for the device plugin's release."""
    return {name for name, node in nodes.items() if PRESENT in owned(node.ours) or _by_chart(node)}


def by_operator(nodes: Mapping[str, ClusterNode]) -> set[str]:
    """Return the names of the nodes that gpunode labelled as the GPU Operator's."""
    return {name for name, node in nodes.items() if _way(node) == "gpu-operator"}


def _by_chart(node: ClusterNode) -> bool:
    return _way(node) == "gpu-operator" or (CONFIG in owned(node.ours) and SERVED_BY not in owned(node.ours))


def _way(node: ClusterNode) -> str | None:
    return node.labels.get(SERVED_BY) if SERVED_BY in owned(node.ours) else None


def leaving(
    hosts: Mapping[str, Settings], nodes: Mapping[str, ClusterNode], relabelled: Collection[str]
) -> frozenset[str]:
    """Return the methods whose plugin of gpunode's goes in this run; `relabelled` as `release_leaves` has it."""
    staying = [node.labels.items() for name, node in nodes.items() if name not in relabelled]
    needed = {method for method, labels in SELECTED_BY.items() if any(labels.items() <= each for each in staying)}
    gone = {method for method in WITH_OBJECTS if method not in needed and not nodes_by(method, hosts)}
    return frozenset(gone | ({"helm"} if release_leaves(hosts, nodes, relabelled) else set()))


def to_json(hosts: Mapping[str, Settings]) -> dict[str, Any]:
    """Return what the cluster gets by these methods as plain JSON types; nothing where no host has one."""
    found = _by_methods(hosts)
    nodes = {node_name(host, each): each.kubernetes for host, each in hosts.items() if each.kubernetes.enabled}
    labelled = {node: each.node_labels for node, each in nodes.items() if each.node_labels}
    counted = {node: each.extended_resources for node, each in nodes.items() if each.extended_resources}
    by_chart = {name: each.to_json() for name, each in other_plugins.releases(hosts).items()}
    of_dcgm = by_chart.pop(EXPORTER, {})
    more = {
        "node_labels": labelled,
        "extended_resources": counted,
        "device_plugins": by_chart,
        "dcgm_exporter_chart": of_dcgm,
    }
    return {**found, **{name: each for name, each in more.items() if each}}


def _by_methods(hosts: Mapping[str, Settings]) -> dict[str, Any]:
    objects = wanted_objects(hosts)
    if not objects:
        return {}
    desired = extender(hosts)
    labels = {
        node_name(host, settings): wanted_labels(settings)
        for host, settings in hosts.items()
        if settings.device_plugin.method in WITH_OBJECTS or named(settings)
    }
    found: dict[str, Any] = {"objects": objects, "labels": labels}
    if desired is not None:
        found["scheduler"] = {"hosts": list(schedulers(hosts)), "asks": desired.address}
    return found
