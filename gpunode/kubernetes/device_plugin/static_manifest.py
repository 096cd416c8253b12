"""NVIDIA's device plugin without its chart: a ConfigMap, and one DaemonSet for each configuration.

A node belongs to the DaemonSet whose configuration its label names. So no program has to watch the labels, and none of
the pods has any right in the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpunode.kubernetes.nodes.configuration import configuration
from gpunode.kubernetes.nodes.labels import CONFIG, SERVED_BY
from gpunode.kubernetes.objects.own_objects import marked
from gpunode.kubernetes.objects.runtime_class import NAME as NVIDIA
from gpunode.settings.device_plugin import DevicePluginSettings
from gpunode.settings.sharing import SharingSettings

_NAME = "gpunode-device-plugin"
IMAGE = "nvcr.io/nvidia/k8s-device-plugin"
_FOLDER = "/var/lib/kubelet/device-plugins"


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
    pods = {"app.kubernetes.io/name": _NAME, CONFIG: entry}
    pod: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {SERVED_BY: "manifest", CONFIG: entry},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        # It asks nothing of the cluster.
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "nvidia-device-plugin",
                "image": f"{plugin.image or IMAGE}:{plugin.tag or f'v{plugin.version}'}",
                "args": [f"--config-file=/config/{entry}"],
                "env": [{"name": name, "value": value} for name, value in _environment(plugin, with_mig)],
                "securityContext": _security(plugin, with_mig),
                "volumeMounts": [
                    {"name": "device-plugin", "mountPath": _FOLDER},
                    {"name": "config", "mountPath": "/config", "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "device-plugin", "hostPath": {"path": _FOLDER}},
            {"name": "config", "configMap": {"name": _NAME, "items": [{"key": entry, "path": entry}]}},
        ],
    }
    if by_class:
        pod["runtimeClassName"] = NVIDIA
    template = {"metadata": {"labels": pods}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": daemon_set_name(entry), "namespace": plugin.namespace},
        "spec": {"selector": {"matchLabels": pods}, "updateStrategy": {"type": "RollingUpdate"}, "template": template},
    }


def daemon_set_name(entry: str) -> str:
    """Return the name of an entry's DaemonSet: those of `configuration` are made of what a name may hold."""
    return f"{_NAME}-{entry.lower()}"


def _environment(plugin: DevicePluginSettings, with_mig: bool) -> list[tuple[str, str]]:
    found = [
        # The driver's programs, by which the plugin finds the GPUs.
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    ]
    for name, value in (
        ("DEVICE_LIST_STRATEGY", plugin.device_list_strategy),
        ("DEVICE_ID_STRATEGY", plugin.device_id_strategy),
        ("FAIL_ON_INIT_ERROR", plugin.fail_on_init_error),
        ("PASS_DEVICE_SPECS", plugin.pass_device_specs),
        ("NVIDIA_DRIVER_ROOT", plugin.driver_root),
        ("NVIDIA_MIG_MONITOR_DEVICES", "all" if with_mig else None),
    ):
        if value is not None:
            found.append((name, str(value).lower() if isinstance(value, bool) else value))
    return found


def _security(plugin: DevicePluginSettings, with_mig: bool) -> dict[str, Any]:
    """Return what the plugin may do on the node: as much as the chart gives it for the same."""
    if plugin.pass_device_specs:
        return {"privileged": True}
    if with_mig or "volume-mounts" in plugin.strategies:
        return {"capabilities": {"add": ["SYS_ADMIN"]}}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
