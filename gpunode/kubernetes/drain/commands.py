"""kubectl's commands by which a node is cordoned, emptied and given back, and the pods that hold it up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.nodes.cluster_nodes import MANAGER, kubectl, told
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name
from gpunode.settings.kubernetes import DrainSettings, KubernetesSettings

_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")
_SHOWN = 8


@dataclass(frozen=True)
class Pod:
    """Hold what decides whether a pod can be evicted."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    controller: str | None
    emptydir: bool
    finished: bool
    ending: bool
    static: bool

    @property
    def stays(self) -> bool:
        """Say whether a drain leaves it where it is: it belongs to the node, or has ended."""
        return self.static or self.controller == "DaemonSet" or self.finished

    def forbids(self, desired: DrainSettings) -> bool:
        """Say whether kubectl evicts nothing of the node as long as the pod is there, also where it ends already.

        source: kubernetes/kubectl, pkg/drain/filters.go (unreplicatedFilter, localStorageFilter)
        """
        keeps = self.emptydir and not desired.delete_emptydir_data
        return not self.stays and ((self.controller is None and not desired.force) or keeps)

    def __str__(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Budget:
    """Hold a PodDisruptionBudget: which pods it is for, and how many of them may go now."""

    namespace: str
    name: str
    selector: Mapping[str, Any] | None
    allowed: int
    empty_selects_all: bool

    def covers(self, pod: Pod) -> bool:
        """Say whether it is for this pod."""
        if pod.namespace != self.namespace or self.selector is None:
            return False
        labels = self.selector.get("matchLabels") or {}
        expressions = self.selector.get("matchExpressions") or []
        if not labels and not expressions:
            return self.empty_selects_all
        return all(pod.labels.get(key) == value for key, value in labels.items()) and all(
            _holds(expression, pod.labels) for expression in expressions
        )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    found: bool = {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]
    return found


def parse_pods(text: str) -> tuple[Pod, ...]:
    """Parse a list of Pods; raise ParseError."""
    return told(text, "list of Pods", lambda found: tuple(map(_pod, found["items"])))


def parse_budgets(text: str) -> tuple[Budget, ...]:
    """Parse a list of PodDisruptionBudgets, of policy/v1 or v1beta1; raise ParseError."""
    return told(text, "list of disruption budgets", lambda found: tuple(map(_budget, found["items"])))


def _pod(item: Mapping[str, Any]) -> Pod:
    metadata = item["metadata"]
    owners = [each["kind"] for each in metadata.get("ownerReferences") or [] if each.get("controller")]
    return Pod(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        labels=dict(metadata.get("labels") or {}),
        controller=str(owners[0]) if owners else None,
        emptydir=any("emptyDir" in volume for volume in (item.get("spec") or {}).get("volumes") or []),
        finished=(item.get("status") or {}).get("phase") in _FINISHED,
        ending=metadata.get("deletionTimestamp") is not None,
        static=_MIRROR in (metadata.get("annotations") or {}),
    )


def _budget(item: Mapping[str, Any]) -> Budget:
    metadata, selector = item["metadata"], (item.get("spec") or {}).get("selector")
    for expression in (selector or {}).get("matchExpressions") or []:
        _holds(expression, {})
    return Budget(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        selector=None if selector is None else dict(selector),
        allowed=int((item.get("status") or {}).get("disruptionsAllowed") or 0),
        # policy/v1beta1 takes an empty selector for one that selects nothing.
        empty_selects_all=item.get("apiVersion") != "policy/v1beta1",
    )


def blocking(pods: tuple[Pod, ...], budgets: tuple[Budget, ...], desired: DrainSettings) -> tuple[str, ...]:
    """Return why each pod that should have gone is still there; none where the node is empty."""
    left = (pod for pod in pods if not pod.stays)
    found = [f"{pod}: {'; '.join(_obstacles(pod, budgets, desired)) or 'it is still there'}" for pod in left]
    more = len(found) - _SHOWN
    return tuple([*found[:_SHOWN], f"{more} pods more"] if more > 0 else found)


def _obstacles(pod: Pod, budgets: tuple[Budget, ...], desired: DrainSettings) -> Iterator[str]:
    if pod.ending:
        yield "it was told to end, and has not ended"
        return
    if pod.controller is None and not desired.force:
        yield "no controller makes it anew elsewhere (kubernetes.drain.force)"
    if pod.emptydir and not desired.delete_emptydir_data:
        yield "it has an emptyDir, whose data would be lost (kubernetes.drain.delete_emptydir_data)"
    covering = [each for each in budgets if each.covers(pod)]
    spent = [each.name for each in covering if each.allowed < 1]
    if spent:
        yield f"the disruption budget {', '.join(spent)} allows no disruption now"
    if len(covering) > 1:
        # The API server refuses each eviction of such a pod.
        yield f"several disruption budgets are for it: {', '.join(each.name for each in covering)}"


# What a question takes at most; and what kubectl takes beyond the time that it is told to wait.
_SECONDS = 60
_SPARE = 60


@dataclass(frozen=True)
class Drain:
    """Make the commands that empty one node of a cluster.

    node: its name in the cluster; environment: kubectl's, for a proxy; at_once: how many nodes a run may hold empty
    """

    kubernetes: KubernetesSettings
    node: str
    environment: Mapping[str, str]
    at_once: int

    def reading(self) -> Command:
        """Return the question for the node, whole: kubectl's own `get` leaves out who set what."""
        return self._asked("get", "--raw", f"/api/v1/nodes/{self.node}")

    def every_node(self) -> Command:
        """Return the question for all nodes of the cluster."""
        return self._asked("get", "--raw", "/api/v1/nodes")

    def patch(self, patch: Mapping[str, Any]) -> Command:
        """Return the request that changes the node, under gpunode's name."""
        text = json.dumps(patch, sort_keys=True)
        return self._asked("patch", "node", self.node, "--type", "merge", "--field-manager", MANAGER, "--patch", text)

    def drain(self) -> Command:
        """Return the eviction of all pods but DaemonSets'; kubectl asks by eviction alone, which budgets may refuse."""
        desired = self.kubernetes.drain
        words = ["drain", self.node, "--ignore-daemonsets", "--timeout", f"{desired.timeout}s"]
        if desired.grace is not None:
            words += ["--grace-period", str(desired.grace)]
        if desired.delete_emptydir_data:
            words.append("--delete-emptydir-data")
        if desired.force:
            words.append("--force")
        return Command(kubectl(self.kubernetes, *words), self.environment, desired.timeout + _SPARE)

    def pods(self) -> Command:
        """Return the question for the pods on the node."""
        here = f"spec.nodeName={self.node}"
        return self._asked("get", "pods", "--all-namespaces", "--field-selector", here, "--output", "json")

    def budgets(self) -> Command:
        """Return the question for all disruption budgets, of whichever version of policy the cluster has."""
        return self._asked("get", "poddisruptionbudgets.policy", "--all-namespaces", "--output", "json")

    def _asked(self, *words: str) -> Command:
        return Command(kubectl(self.kubernetes, *words, "--request-timeout", "30s"), self.environment, _SECONDS)


def drain_of(host: str, settings: Settings) -> Drain | None:
    """Return the drain of a host's node; None where it is none of a cluster's, or no drain is asked for."""
    if not settings.kubernetes.drains:
        return None
    node, most = node_name(host, settings), settings.disruption.max_parallel
    return Drain(settings.kubernetes, node, settings.proxy.environment, most)
