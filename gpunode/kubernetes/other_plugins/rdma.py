"""What Mellanox's RDMA shared device plugin consists of in a cluster: its configuration, and its DaemonSet.

source: Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, deployment/k8s/base and pkg/types/types.go
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gpunode.kubernetes.nodes.labels import plugin_label
from gpunode.settings.other_plugins import RDMA
from gpunode.settings.rdma import RdmaSharedDevicePluginSettings

NAME = "gpunode-rdma-shared-device-plugin"
CONFIGURATION = "gpunode/configuration"
_FILE = "config.json"
_FOLDERS = {
    "device-plugin": "/var/lib/kubelet/device-plugins",
    "plugins-registry": "/var/lib/kubelet/plugins_registry",
    "devices": "/dev",
}


def configuration(desired: RdmaSharedDevicePluginSettings) -> str:
    """Return the plugin's config.json."""
    resources = [
        {
            "resourcePrefix": name.partition("/")[0],
            "resourceName": name.partition("/")[2],
            "rdmaHcaMax": each.count,
            "selectors": each.selectors,
        }
        for name, each in sorted(desired.resources.items())
    ]
    return json.dumps({"periodicUpdateInterval": desired.update_seconds, "configList": resources}, indent=2) + "\n"


def rdma_objects(desired: RdmaSharedDevicePluginSettings) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are made."""
    text, where = configuration(desired), {"name": NAME, "namespace": desired.namespace}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {_FILE: text}}
    return [config, _daemon_set(desired, hashlib.sha256(text.encode()).hexdigest()[:16])]


def _daemon_set(desired: RdmaSharedDevicePluginSettings, digest: str) -> dict[str, Any]:
    pods = {"app.kubernetes.io/name": NAME}
    mounts = [{"name": name, "mountPath": path} for name, path in _FOLDERS.items()]
    pod = {
        # It looks for the interfaces of the host, and brings them up.
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {plugin_label(RDMA): "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        # It asks nothing of the cluster.
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "rdma-shared-device-plugin",
                "image": desired.image,
                "securityContext": {"privileged": True},
                "volumeMounts": [
                    *mounts,
                    {"name": "configuration", "mountPath": "/k8s-rdma-shared-dev-plugin", "readOnly": True},
                ],
            }
        ],
        "volumes": [
            *({"name": name, "hostPath": {"path": path}} for name, path in _FOLDERS.items()),
            {"name": "configuration", "configMap": {"name": NAME, "items": [{"key": _FILE, "path": _FILE}]}},
        ],
    }
    # It reads its file once: another text has the pods begin anew.
    template = {"metadata": {"labels": pods, "annotations": {CONFIGURATION: digest}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": desired.namespace},
        "spec": {"selector": {"matchLabels": pods}, "updateStrategy": {"type": "RollingUpdate"}, "template": template},
    }
