"""Helpers and data for the tests of other methods."""

from __future__ import annotations

import json
from typing import Any

from gpunode.base.decision import bad
from gpunode.kubernetes.device_plugin.others import Plugin, decide
from gpunode.settings import Settings

NODE: dict[str, Any] = {"kubernetes": {"enabled": True}}


def _listed(*documents: Any) -> str:
    return json.dumps({"kind": "List", "items": list(documents)})


def in_the_way(settings: Settings, labels: dict[str, str], plugins: tuple[Plugin, ...], **leaving: Any) -> list[str]:
    """Return why plugins may not take a node beside its own: a run is refused by it, drift tells of each."""
    decision = decide(settings, labels, plugins, **leaving)
    told = [str(item.cause) for item in bad(*decision.findings)]
    assert (decision.refusal or "") == "\n".join(told) and not decision.steps
    return told


def _daemon_set(name: str, image: str, pod: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": image, **(pod or {}).pop("container", {})}
    return {
        "metadata": {"name": name, "namespace": "kube-system", **metadata},
        "spec": {"template": {"spec": {"containers": [container], **(pod or {})}}},
    }


NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"


OF_HELM = {"annotations": {"meta.helm.sh/release-name": "nvdp"}}
