"""What gpushare consists of in a cluster: the scheduler extender, the device plugin, and their rights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpunode.kubernetes.nodes.labels import GPUSHARE
from gpunode.kubernetes.objects.own_objects import marked
from gpunode.settings.device_plugin import GpushareSettings

NAMESPACE = "kube-system"
EXTENDER, PLUGIN = "gpushare-schd-extender", "gpushare-device-plugin"
# All workloads and pods of gpushare have it, so that one question finds them among the rest of the namespace.
APP = {"app": GPUSHARE}
# Its own port; the scheduler, which is in no pod network, asks by the node's.
_PORT = 12345
_RBAC = "rbac.authorization.k8s.io"
# Both programs read nodes and pods, and note on a pod which GPU it has.
_COMMON = (
    ("", ["nodes"], ["get", "list", "watch"]),
    ("", ["events"], ["create", "patch"]),
    ("", ["pods"], ["get", "list", "watch", "patch", "update"]),
)
_RULES = {
    EXTENDER: (
        *_COMMON,
        ("", ["bindings", "pods/binding"], ["create"]),
        # They name the GPUs that are not healthy; its cache waits for them.
        ("", ["configmaps"], ["get", "list", "watch"]),
    ),
    PLUGIN: (*_COMMON, ("", ["nodes/proxy"], ["get"]), ("", ["nodes/status"], ["patch", "update"])),
}


def gpushare_objects(desired: GpushareSettings, runtime_class: str | None = None) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are made; `runtime_class` is for the plugin's pods."""
    found = [
        *(each for name in (EXTENDER, PLUGIN) for each in _rights(name)),
        _extender(desired),
        _service(desired),
        _device_plugin(desired, runtime_class),
    ]
    return [marked(each, "gpushare") for each in found]


def _rights(name: str) -> list[dict[str, Any]]:
    rules = [{"apiGroups": [group], "resources": names, "verbs": verbs} for group, names, verbs in _RULES[name]]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(name)}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    return [account, role, binding]


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE}


def _pods(name: str) -> dict[str, str]:
    return {**APP, "component": name}


def _extender(desired: GpushareSettings) -> dict[str, Any]:
    # Of one name until Kubernetes 1.24, of the other since 1.20.
    roles = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
    terms = [{"matchExpressions": [{"key": role, "operator": "Exists"}]} for role in roles]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = {
        "serviceAccountName": EXTENDER,
        "hostNetwork": True,
        "priorityClassName": "system-cluster-critical",
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"key": role, "operator": "Exists", "effect": "NoSchedule"} for role in roles],
        "containers": [
            {
                "name": EXTENDER,
                "image": desired.extender_image,
                "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "PORT", "value": str(_PORT)}],
            }
        ],
    }
    # One that answers at the host's port at a time: two would promise one GPU's memory twice.
    spec = {"replicas": 1, "strategy": {"type": "Recreate"}}
    return _workload("Deployment", EXTENDER, pod, spec)


def _service(desired: GpushareSettings) -> dict[str, Any]:
    # Server-side apply tells ports apart by it, and takes no default (Kubernetes before 1.23).
    port = {
        "name": "http",
        "protocol": "TCP",
        "port": _PORT,
        "targetPort": _PORT,
        "nodePort": desired.node_port,
    }
    spec = {"type": "NodePort", "selector": _pods(EXTENDER), "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(EXTENDER), "spec": spec}


def _device_plugin(desired: GpushareSettings, runtime_class: str | None) -> dict[str, Any]:
    folder = "/var/lib/kubelet/device-plugins"
    amount = {"cpu": "1", "memory": "300Mi"}
    pod = {
        "serviceAccountName": PLUGIN,
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {GPUSHARE: "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            {
                "name": GPUSHARE,
                "image": desired.plugin_image,
                "command": [
                    "gpushare-device-plugin-v2",
                    "-logtostderr",
                    "--v=2",
                    f"--memory-unit={desired.memory_unit}",
                ],
                "env": [
                    # By its service account; a kubelet's own file would give it a node's rights.
                    {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                ],
                # Guaranteed, so that a full node does not evict it.
                "resources": {"limits": amount, "requests": amount},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "device-plugin", "mountPath": folder}],
            }
        ],
        "volumes": [{"name": "device-plugin", "hostPath": {"path": folder}}],
    }
    return _workload("DaemonSet", PLUGIN, pod | ({"runtimeClassName": runtime_class} if runtime_class else {}), {})


def _workload(kind: str, name: str, pod: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": _pods(name)}, "spec": dict(pod)}
    content = {**spec, "selector": {"matchLabels": _pods(name)}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {**_metadata(name), "labels": dict(APP)},
        "spec": content,
    }
