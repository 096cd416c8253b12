"""The RuntimeClass by which pods choose the nvidia runtime where a node's default is another one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from gpunode.base.comparison import by_hand
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.messages import Scope
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import TextError, load_json
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.settings.chart import of_kubernetes

NAME = "nvidia"
_OBJECT = f"RuntimeClass {NAME}"
# Ours carries it; one without it is somebody else's, and stays.
MANAGED_BY = ("app.kubernetes.io/managed-by", "gpunode")

_MISSING, _OTHER_HANDLER = f"{_OBJECT}: there is none", f"{_OBJECT} has the handler {{handler!r}}"
RUNTIME_CLASS = cluster_finding(
    "RuntimeClass",
    "The RuntimeClass nvidia is missing or names another handler.",
    "Pods that ask for this class are started by its handler. They do not start, or see no GPU.",
    scope=Scope.CLUSTER,
    causes=(_MISSING, _OTHER_HANDLER),
)


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


def decide(desired: Mapping[str, Any], actual: Mapping[str, Any] | None) -> Decision[Verb]:
    """Return what is to be done about the RuntimeClass; `actual` is the cluster's, None where it has none of that name.

    One of somebody else's does as well where it names the same handler, and is his where it names another one. What
    others added to ours (a scheduling rule, say) stays.
    """
    label, value = MANAGED_BY
    handler = None if actual is None else actual.get("handler")
    ours = actual is None or ((actual.get("metadata") or {}).get("labels") or {}).get(label) == value
    good = actual is not None and handler == desired["handler"]
    shown = None if actual is None else f"handler {str(handler)[:80]}" + ("" if ours else ", not gpunode's")
    cause = _MISSING if actual is None else _OTHER_HANDLER.format(handler=handler)
    item = RUNTIME_CLASS.compared(shown, f"handler {desired['handler']}", good, cause=cause)
    if good:
        return Decision((item,))
    if ours:
        verb = Verb.CREATE if actual is None else Verb.REPLACE
        return Decision((item,), (Step(f"{verb} the {_OBJECT}", (item,), Disruption.nothing, change=verb),))
    refusal = (
        f"{_OBJECT} is somebody else's, and has the handler {str(handler)[:80]!r} in the place of "
        f"{desired['handler']!r}. Remedy: remove it, or set device_plugin.runtime_class to 'none'"
    )
    return Decision((by_hand(item, refusal),), (), refusal)


def written(desired: Mapping[str, Any], apis: Collection[str]) -> str:
    """Return the object for kubectl, in the newest API version that the cluster has (`apis`)."""
    known = [version for version in ("node.k8s.io/v1", "node.k8s.io/v1beta1") if version in apis]
    return json.dumps({**desired, **({"apiVersion": known[0]} if known else {})})


def parse_runtime_class(text: str) -> Mapping[str, Any] | None:
    """Parse the RuntimeClass as kubectl prints it, empty where there is none; raise ParseError."""
    if not text.strip():
        return None
    try:
        found = load_json(text)
    except TextError:
        found = None
    if not isinstance(found, dict) or found.get("kind") != "RuntimeClass":
        raise ParseError("kubectl's answer is no RuntimeClass")
    return found
