"""What a cluster gets: for each component, what is to be done about it. Drift is a loop over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

from gpunode.base.comparison import AS_DESIRED, BY_HAND, FindingMessage
from gpunode.base.decision import Decision, behind, marked
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.folding import in_one_line
from gpunode.base.messages import Scope
from gpunode.base.reading import ParseError
from gpunode.kubernetes import dcgm_exporter, gpu_operator
from gpunode.kubernetes.device_plugin import others
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_labels import desired_labels
from gpunode.kubernetes.device_plugin.decide_restart import with_daemon
from gpunode.kubernetes.device_plugin.desired_cluster import CHART, desired_cluster, node_by_node
from gpunode.kubernetes.device_plugin.methods import (
    by_operator,
    by_release,
    class_alone,
    nodes_by,
    operator_leaves,
    release_leaves,
    wanted_objects,
)
from gpunode.kubernetes.device_plugin.others import Plugin
from gpunode.kubernetes.device_plugin.pod_security import NAMESPACE, namespaces
from gpunode.kubernetes.device_plugin.verdict import DEPLOYMENT, judge_extender
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.helm.change import RELEASE
from gpunode.kubernetes.helm.commands import HelmError
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.helm.session import Session
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, labelled_for
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.objects.own_objects import OWN_OBJECTS
from gpunode.kubernetes.objects.runtime_class import RUNTIME_CLASS
from gpunode.kubernetes.other_plugins import desired as other_plugins
from gpunode.settings import Settings
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.cluster import node_name

# The finding that a decision makes and the name of the one of several, and how it is decided: nothing is read before.
Deciding = Iterator[tuple[tuple[FindingMessage, str | None], Callable[[], Decision[Any]]]]

_ANOTHER = (
    "the cluster has none of the inventory's nodes ({nodes}): set kubernetes.kubeconfig and kubernetes.context to the "
    "cluster that is meant, kubernetes.node_name to a node's name there, or let it join"
)
LOOK = "look at kubernetes.kubeconfig, and whether its user may read that: `kubectl auth can-i --list`"
CLUSTER = cluster_finding(
    "cluster",
    "The cluster is not the one of these nodes, or does not answer.",
    "Nothing is changed in a cluster that has none of the nodes; of one that does not answer nothing is known.",
    remedies=(BY_HAND, LOOK),
    scope=Scope.CLUSTER,
    causes=(_ANOTHER,),
    classes=(FindingClass.DRIFT, FindingClass.ERROR),
)


@dataclass(frozen=True)
class Whole:
    """Hold what decisions on a whole cluster are made from.

    hosts: settings of the whole inventory
    relabelled: names in the cluster of the nodes whose labels a run brings about
    """

    hosts: Mapping[str, Settings]
    cluster: Cluster
    view: View
    relabelled: Collection[str]

    @cached_property
    def ours(self) -> str:
        """Return gpunode's own objects as kubectl prints them; raise ClusterError."""
        return self.cluster.own_objects()

    @property
    def first(self) -> Settings:
        """Return the settings of a node of the cluster."""
        return next(each for each in self.hosts.values() if each.kubernetes.enabled)

    def release(self, settings: ReleaseSettings, decide: Callable[[Session], Decision[Any]]) -> Deciding:
        """Yield what is to be done about a release."""
        cluster = self.cluster
        of = f"{settings.namespace}/{settings.release}"
        yield (RELEASE, of), lambda: decide(Session.begun(cluster.kubernetes, settings, cluster.proxy, cluster.run))


def _namespaces(whole: Whole) -> Deciding:
    if spaces := namespaces(whole.hosts):
        yield (NAMESPACE, ", ".join(spaces)), lambda: whole.cluster.decide_namespaces(spaces)


def _operator(whole: Whole) -> Deciding:
    nodes, now = whole.view.nodes, datetime.now(UTC)
    if (desired := gpu_operator.operator(whole.hosts)) is not None:
        is_known = bool(by_operator(nodes))
        yield from whole.release(desired.settings, lambda helm: helm.decide(desired.values, (), now, is_known)[2])
    elif operator_leaves(whole.hosts, nodes, whole.relabelled):
        yield from whole.release(whole.first.gpu_operator, lambda helm: helm.decide_absence(gpu_operator.CHART, now))


def _runtime_class(whole: Whole) -> Deciding:
    chosen = desired_cluster(whole.hosts) or class_alone(whole.hosts)
    if chosen is not None and (desired := chosen.runtime_class) is not None:
        yield (RUNTIME_CLASS, None), lambda: whole.cluster.decide_runtime_class(desired)


def plugin_release(whole: Whole) -> Deciding:
    """Yield what is to be done about the release of the device plugin, without what its MPS daemons' clients say."""
    nodes, now = whole.view.nodes, datetime.now(UTC)
    if (desired := desired_cluster(whole.hosts)) is not None:
        in_use, is_known = labelled_for(nodes), bool(by_release(nodes))
        values = node_by_node(desired.values) if with_daemon(nodes) else desired.values
        yield from whole.release(desired.plugin, lambda helm: helm.decide(values, in_use, now, is_known)[2])
    elif release_leaves(whole.hosts, nodes, whole.relabelled):
        yield from whole.release(whole.first.device_plugin, lambda helm: helm.decide_absence(CHART, now))


def _objects(whole: Whole) -> Deciding:
    desired, nodes = wanted_objects(whole.hosts), whole.view.nodes
    yield (OWN_OBJECTS, None), lambda: whole.cluster.decide_objects(desired, nodes, whole.relabelled, whole.ours)


def _other_releases(whole: Whole) -> Deciding:
    nodes, now = whole.view.nodes, datetime.now(UTC)
    desired = other_plugins.releases(whole.hosts)
    for name, each in desired.items():
        is_known = bool(other_plugins.labelled(name, nodes))
        yield from whole.release(each.settings, partial(_other_release, each, now, is_known))
    yield (RELEASE, "of former device plugins"), partial(_left, whole, desired, now)


def _other_release(desired: AskedRelease, now: datetime, is_known: bool, helm: Session) -> Decision[Any]:
    return helm.decide(desired.values, (), now, is_known)[2]


def _monitor(whole: Whole) -> Deciding:
    if dcgm_exporter.asks_for_monitor(whole.hosts):
        yield (dcgm_exporter.SERVICE_MONITOR, None), lambda: whole.cluster.decide_monitor(whole.hosts)


def _left(whole: Whole, desired: Mapping[str, AskedRelease], now: datetime) -> Decision[Any]:
    cluster = whole.cluster
    staying = [node.labels for name, node in whole.view.nodes.items() if name not in whole.relabelled]
    left = other_plugins.releases_left(desired, whole.ours, staying, other_plugins.kept_releases(whole.hosts))
    decided = [
        Session.begun(cluster.kubernetes, each, cluster.proxy, cluster.run).decide_absence_of_ours(now)
        for each in left.values()
    ]
    return Decision(
        tuple(item for each in decided for item in each.findings),
        tuple(step for each in decided for step in each.steps),
    )


def _extender(whole: Whole) -> Deciding:
    if nodes_by("gpushare", whole.hosts):
        yield (DEPLOYMENT, None), lambda: Decision((judge_extender(whole.view),))


# In the order of a run, before and after the device plugin's release. The scheduler is a host's; labels and pods are a
# node's.
BEFORE, AFTER = (_monitor, _namespaces, _operator, _runtime_class), (_other_releases, _objects, _extender)


def decisions(whole: Whole, release: Deciding) -> Iterator[Decision[Any]]:
    """Yield what is to be done about all that the cluster has one of; what cannot be decided on is not known.

    release: the one of the device plugin, which is decided on together with the nodes' labels (mps_restarts.py)
    """
    right = marked(decide_right(whole.hosts, whole.view.nodes))
    yield right
    before, after = ((each for component in some for each in component(whole)) for some in (BEFORE, AFTER))
    for what, decide in (*before, *release, *after):
        try:
            decision = decide()
            # A run refuses all of it in another cluster.
            if right.refusal is not None:
                decision = replace(behind(decision, right.refusal), steps=(), refusal=None)
            yield marked(decision)
        except (ClusterError, HelmError, ParseError) as error:
            item = unknown(*what, words=str(error))
            yield Decision((item,), refusal=item.cause)


def decide_right(hosts: Mapping[str, Settings], nodes: Collection[str]) -> Decision[None]:
    """Return whether a cluster of these nodes is the one that is meant: a kubeconfig may name another one."""
    desired = [node_name(name, settings) for name, settings in hosts.items() if settings.kubernetes.enabled]
    good, few = any(name in nodes for name in desired), ", ".join(desired[:5]) + (" …" if len(desired) > 5 else "")
    reason = _ANOTHER.format(nodes=few)
    said = "has nodes of the inventory"
    item = CLUSTER.compared(said if good else "another one", said, good, cause=reason)
    return Decision((item,), (), None if good else reason)


def decide_alone(
    settings: Settings, node: ClusterNode, plugins: tuple[Plugin, ...], leaving: frozenset[str]
) -> Decision[None]:
    """Return whether a node has its own plugin alone, and one that finds its GPUs; arguments as of `others.decide`."""
    labels = desired_labels(node.name, settings).change(node).applied_to(node.labels)
    decided = (others.decide(settings, labels, plugins, leaving), gpu_operator.decide_found(settings, node.labels))
    refusal = "\n".join(each.refusal for each in decided if each.refusal is not None)
    return Decision(tuple(item for each in decided for item in each.findings), (), refusal or None)


def decide_exporter_alone(
    settings: Settings, node: ClusterNode, exporters: tuple[dcgm_exporter.Exporter, ...]
) -> Decision[None]:
    """Return whether DCGM's exporter is alone on a node, with the labels that the node is going to have."""
    labels = desired_labels(node.name, settings).change(node).applied_to(node.labels)
    return dcgm_exporter.decide_alone(settings, node, labels, exporters)


def unreached(words: str) -> Finding:
    """Return the finding that the cluster does not answer; words: as of `unknown`."""
    return replace(unknown(CLUSTER, words=words), finding_class=FindingClass.ERROR)


def unknown(message: FindingMessage, of: str | None = None, *, words: str, desired: str | None = AS_DESIRED) -> Finding:
    """Return the finding that one thing of a cluster is not known.

    words: why; the last line is the remedy, where there are several. desired: None where no setting asks for it
    """
    cause, _, remedy = words.rpartition("\n")
    return message.not_known(desired, in_one_line(cause or remedy), remedy if cause else LOOK, of=of)
