"""The RuntimeClass by which pods choose the nvidia runtime where a node's default is another one."""

from __future__ import annotations

from typing import Any

from gpunode.device_plugin.features import of_kubernetes
from gpunode.settings import Settings

NAME = "nvidia"
# Ours carries it; one without it is somebody else's, and stays.
MANAGED_BY = ("app.kubernetes.io/managed-by", "gpunode")


def default_runtime(settings: Settings) -> str | None:
    """Return the runtime of pods that choose none, by the settings; None where gpunode has no say in it."""
    if settings.containerd.enabled:
        return settings.containerd.default_runtime
    return settings.docker.default_runtime if settings.docker.enabled else None


def needs_runtime_class(settings: Settings) -> bool:
    """Say whether, for this node, the plugin's pods have to choose the runtime by a RuntimeClass."""
    asked = settings.device_plugin.runtime_class
    return asked == "nvidia" or (asked == "auto" and default_runtime(settings) == "runc")


def runtime_class(kubernetes: str | None = None) -> dict[str, Any]:
    """Return the object; `kubernetes` is the cluster's version, None where it is not known (1.20 or newer then)."""
    newest = kubernetes is None or of_kubernetes()["runtime-class-v1"].are_met_by(kubernetes)
    return {
        "apiVersion": "node.k8s.io/v1" if newest else "node.k8s.io/v1beta1",
        "kind": "RuntimeClass",
        "metadata": {"name": NAME, "labels": dict([MANAGED_BY])},
        "handler": NAME,
    }
