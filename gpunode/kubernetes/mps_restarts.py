"""Which changes of a cluster restart the plugin's MPS daemons under clients, and what becomes of these changes.

What a run asks in its operations (gpunode/operations/mps_clients.py) is asked here for drift and the plan; both decide
by gpunode/kubernetes/device_plugin/decide_restart.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gpunode.base.comparison import FindingMessage
from gpunode.base.decision import Decision
from gpunode.base.findings import FindingClass
from gpunode.base.reading import ParseError, Unknown
from gpunode.kubernetes.components import Deciding, Whole, plugin_release
from gpunode.kubernetes.device_plugin.cluster import ClusterError
from gpunode.kubernetes.device_plugin.decide_labels import decide_labels, desired_labels
from gpunode.kubernetes.device_plugin.decide_pods import decide_outdated, restarts_daemon
from gpunode.kubernetes.device_plugin.decide_restart import (
    NONE,
    Bounds,
    decide_label,
    decide_restart,
    followed_by,
    label_restarts,
    release_outdates,
    release_restarts,
    with_daemon,
    with_restart,
)
from gpunode.kubernetes.helm.change import ReleaseChange
from gpunode.kubernetes.helm.commands import HelmError
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.labels import LabelChange
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name

_LOOK = "look at kubernetes.kubeconfig: its user needs to list pods of all namespaces"
GPU_PODS = cluster_finding(
    "pods with a GPU",
    "It is not known which pods have a GPU of this node.",
    "They are listed before an MPS daemon restarts under them: the cluster did not answer, or forbids the list.",
    classes=(FindingClass.ERROR,),
    remedies=(_LOOK,),
)


@dataclass(frozen=True)
class Restarts:
    """Decide on them for one cluster; it is asked for each thing once, and for pods where a daemon restarts alone."""

    whole: Whole

    @cached_property
    def clients(self) -> dict[str, tuple[str, ...]]:
        """Return node -> its GPU pods; raise ClusterError or ParseError."""
        return self.whole.cluster.clients()

    @cached_property
    def releases(self) -> dict[tuple[FindingMessage, str | None], Decision[ReleaseChange] | Exception]:
        """Return what is to be done about the plugin's release, by its name; why nobody can say."""
        found: dict[tuple[FindingMessage, str | None], Decision[ReleaseChange] | Exception] = {}
        for name, decide in plugin_release(self.whole):
            try:
                found[name] = decide()
            except (ClusterError, HelmError, ParseError) as error:
                found[name] = error
        return found

    @cached_property
    def of_release(self) -> Decision[str]:
        """Return what comes before the release changes; without a step where it restarts nothing that anybody feels."""
        for decision in self.releases.values():
            change = next((step.change for step in decision.steps), None) if isinstance(decision, Decision) else None
            if change is not None and release_restarts(change):
                return self._restart(with_daemon(self.whole.view.nodes))
        return NONE

    @cached_property
    def outdates(self) -> bool:
        """Say whether the release changes in a way that has every MPS daemon begin anew by its node's turn."""
        changes = (step.change for each in self.releases.values() if isinstance(each, Decision) for step in each.steps)
        return any(change is not None and release_outdates(change) for change in changes)

    def labels(self, host: str, settings: Settings, state: str | Unknown | None) -> Decision[LabelChange]:
        """Return what is to be done about the labels of a host's node; state: as `desired_labels` has it."""
        name = node_name(host, settings)
        return decide_labels(desired_labels(name, settings, state), self.whole.view.nodes.get(name))

    def of_node(self, host: str, settings: Settings, state: str | Unknown | None) -> Decision[str]:
        """Return what comes before the labels of a host's node change, or its pods begin anew.

        + state: as `desired_labels` has it
        """
        name, view = node_name(host, settings), self.whole.view
        node = view.nodes.get(name)
        if node is None:
            return NONE
        label = next((step.change for step in self.labels(host, settings, state).steps), None)
        pods = next((step.change or () for step in decide_outdated(settings, node, view, label).steps), ())
        outdated = bool(with_daemon({name: node})) and self.outdates
        restarts = outdated or restarts_daemon(pods, view) or (label is not None and label_restarts(label, node))
        own = self._restart((name,) if restarts else ())
        return own if label is None else decide_label(own, self.of_release, label)

    def deciding(self) -> Deciding:
        """Yield what is to be done about the release, with what it disturbs."""
        for name, decision in self.releases.items():
            yield name, partial(self._decided, decision)

    def _decided(self, decision: Decision[Any] | Exception) -> Decision[Any]:
        if isinstance(decision, Exception):
            raise decision
        return followed_by(decision, self._turns()) if self.outdates else with_restart(decision, self.of_release)

    def _turns(self) -> Decision[str]:
        """Return what comes before the daemons begin anew, each in the turn of its node."""
        each = [self._restart((name,)) for name in sorted(with_daemon(self.whole.view.nodes))]
        findings = {item: None for one in each for item in one.findings}
        return Decision(tuple(findings), tuple(step for one in each for step in one.steps))

    def _restart(self, nodes: Collection[str]) -> Decision[str]:
        """Return what comes before the daemons of these nodes restart; a finding where the cluster does not tell."""
        if not nodes:
            return NONE
        try:
            clients = {node: pods for node, pods in self.clients.items() if node in nodes}
        except (ClusterError, ParseError) as error:
            cause = " ".join(str(error).split())
            return Decision((GPU_PODS.not_known("known", cause, _LOOK),))
        return decide_restart(clients, self.bounds)

    @cached_property
    def bounds(self) -> Bounds:
        """Return what bounds a run of the hosts whose labels are looked at."""
        whole = self.whole
        settings = {node_name(host, each): each for host, each in whole.hosts.items()}
        held = {name for name, node in whole.view.nodes.items() if node.is_held_back}
        return Bounds(settings, whole.relabelled, held)


def named(restart: Decision[str], node: str) -> Iterator[Any]:
    """Yield the steps of a restart that are a node's."""
    yield from (step for step in restart.steps if step.change == node)
