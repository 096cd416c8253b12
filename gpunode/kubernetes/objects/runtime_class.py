"""The RuntimeClass by which pods choose the nvidia runtime where a node's default is another one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpunode.base.reading import ParseError
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.settings.cluster.features import of_kubernetes
from gpunode.settings.kubernetes import KubernetesSettings

NAME = "nvidia"
# Ours carries it; one without it is somebody else's, and stays.
MANAGED_BY = ("app.kubernetes.io/managed-by", "gpunode")


def runtime_class(kubernetes: str | None = None) -> dict[str, Any]:
    """Return the object; `kubernetes` is the cluster's version, None where it is not known (1.20 or newer then)."""
    newest = kubernetes is None or of_kubernetes()["runtime-class-v1"].are_met_by(kubernetes)
    return {
        "apiVersion": "node.k8s.io/v1" if newest else "node.k8s.io/v1beta1",
        "kind": "RuntimeClass",
        "metadata": {"name": NAME, "labels": dict([MANAGED_BY])},
        "handler": NAME,
    }


class Verb(StrEnum):
    """Name what kubectl does to the object."""

    CREATE = "create"
    REPLACE = "replace"


@dataclass(frozen=True)
class RuntimeClassChange:
    """Hold what is to be done about the RuntimeClass, and what is said of it; or why it may not be (`refused`)."""

    said: str
    verb: Verb | None = None
    refused: bool = False


def runtime_class_change(desired: Mapping[str, Any], actual: Mapping[str, Any] | None) -> RuntimeClassChange:
    """Return what brings the RuntimeClass about; `actual` is the cluster's, None where it has none of that name.

    One of somebody else's does as well where it names the same handler, and is his where it names another one. What
    others added to ours (a scheduling rule, say) stays.
    """
    name = f"RuntimeClass {NAME}"
    if actual is None:
        return RuntimeClassChange(f"{name}: there is none", Verb.CREATE)
    label, value = MANAGED_BY
    ours = ((actual.get("metadata") or {}).get("labels") or {}).get(label) == value
    handler = actual.get("handler")
    if handler == desired["handler"]:
        return RuntimeClassChange(f"{name} as desired" if ours else f"{name} is there already, somebody else's")
    if ours:
        return RuntimeClassChange(f"{name} has the handler {handler!r}", Verb.REPLACE)
    said = (
        f"{name} is somebody else's, and has the handler {str(handler)[:80]!r} in the place of {desired['handler']!r}: "
        "remove it, or set device_plugin.runtime_class to 'none'"
    )
    return RuntimeClassChange(said, refused=True)


def asking(kubernetes: KubernetesSettings) -> tuple[str, ...]:
    """Return the command that asks for the RuntimeClass; it prints nothing where there is none."""
    return kubectl(kubernetes, "get", "runtimeclasses.node.k8s.io", NAME, "--ignore-not-found", "--output", "json")


def changing(kubernetes: KubernetesSettings, verb: Verb) -> tuple[str, ...]:
    """Return the command that takes the object on its standard input; a handler can only be changed by a new object."""
    words = ("create",) if verb is Verb.CREATE else ("replace", "--force")
    return kubectl(kubernetes, *words, "--filename", "-")


def written(desired: Mapping[str, Any], apis: Collection[str]) -> str:
    """Return the object for kubectl, in the newest API version that the cluster has (`apis`)."""
    known = [version for version in ("node.k8s.io/v1", "node.k8s.io/v1beta1") if version in apis]
    return json.dumps({**desired, **({"apiVersion": known[0]} if known else {})})


def parse_runtime_class(text: str) -> Mapping[str, Any] | None:
    """Parse what `asking` printed; raise ParseError."""
    if not text.strip():
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != "RuntimeClass":
        raise ParseError("kubectl's answer is no RuntimeClass")
    return found
