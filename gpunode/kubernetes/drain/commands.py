"""The command lines by which a node is cordoned, emptied and given back; all are kubectl's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.kubernetes.nodes.cordon import MANAGER
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name
from gpunode.settings.kubernetes import KubernetesSettings

# What a question takes at most; and what kubectl takes beyond the time that it is told to wait.
_SECONDS = 60
_SPARE = 60


@dataclass(frozen=True)
class Commands:
    """Make the commands for one node of a cluster.

    node: its name in the cluster; environment: kubectl's, for a proxy
    """

    kubernetes: KubernetesSettings
    node: str
    environment: Mapping[str, str]

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
        limit = ("--request-timeout", "30s")
        return Command(kubectl(self.kubernetes, *words, *limit), self.environment, _SECONDS)


@dataclass(frozen=True)
class Drain:
    """Hold how one node is emptied, and how many of a run may be so at the same time."""

    commands: Commands
    at_once: int


def drain_of(host: str, settings: Settings) -> Drain | None:
    """Return the drain of a host's node; None where it is none of a cluster's, or no drain is asked for."""
    if not settings.kubernetes.drains:
        return None
    commands = Commands(settings.kubernetes, node_name(host, settings), settings.proxy.environment)
    return Drain(commands, settings.disruption.max_parallel)
