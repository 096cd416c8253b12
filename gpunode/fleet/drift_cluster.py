"""Is the cluster still what the nodes' settings promise? One reading of it for all of them; nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpunode.base.comparison import compared
from gpunode.base.decision import Decision
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.reading import ParseError
from gpunode.base.subject import Subject
from gpunode.fleet.control_plane import reached
from gpunode.kubernetes import gpu_operator
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.desired_cluster import CHART, DesiredCluster, desired_cluster
from gpunode.kubernetes.device_plugin.methods import (
    by_operator,
    by_release,
    class_alone,
    members,
    nodes_by,
    operator_leaves,
    release_leaves,
    wanted_objects,
)
from gpunode.kubernetes.device_plugin.mig_state import mig_state
from gpunode.kubernetes.device_plugin.pod_security import asking, namespace_change, namespaces, parse_labels
from gpunode.kubernetes.device_plugin.verdict import judge_extender, judge_node
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.gpu_operator import operator
from gpunode.kubernetes.helm.change import ReleaseChange
from gpunode.kubernetes.helm.program import HelmError
from gpunode.kubernetes.helm.session import Session
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, labelled_for
from gpunode.kubernetes.nodes.component import COMPONENT, RUN_CLUSTER
from gpunode.kubernetes.objects.own_objects import Document
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.cluster import node_name

_FEW = 5
_GOOD = "as desired"


def findings(inventory: Path, hosts: Mapping[str, Settings], nodes: Mapping[str, Node]) -> dict[str, list[Finding]]:
    """Return host -> what the cluster says of it; nothing is asked where no host is in a cluster.

    What the cluster has one of is told with the first of the nodes.

    + hosts: settings of the whole inventory, which say what the release is to be
    + nodes: the hosts that are judged, as they were read
    """
    judged = {host: each for host, each in hosts.items() if each.kubernetes.enabled and host in nodes}
    first = next(iter(judged), None)
    if first is None:
        return {}
    of_first = next(iter(members(hosts).values()), judged[first])
    with reached(inventory, of_first.kubernetes) as run:
        cluster = Cluster(of_first.kubernetes, of_first.proxy, run)
        try:
            view = cluster.view(of_first.device_plugin.namespace, bool(nodes_by("gpushare", hosts)))
        except (ClusterError, ParseError) as error:
            # Nothing is known of any of them then.
            return {host: [_unknown(Subject.CLUSTER, str(error))] for host in judged}
        found = {host: _of_node(host, settings, nodes[host], view) for host, settings in judged.items()}
        found[first] += _of_cluster(hosts, cluster, view)
    return found


def against(inventory: Path, hosts: Mapping[str, Settings], names: Sequence[str]) -> dict[str, str]:
    """Return node -> why the cluster gives it no work, for the gate of a rollout; others' cordons are no reason.

    Whether it offers what it promises is among the findings. Nothing is asked where no host is in a cluster.
    """
    nodes = {name: hosts[name] for name in names if name in hosts and hosts[name].kubernetes.enabled}
    first = next(iter(nodes.values()), None)
    if first is None:
        return {}
    with reached(inventory, first.kubernetes) as run:
        try:
            found = Cluster(first.kubernetes, first.proxy, run).nodes()
        except (ClusterError, ParseError) as error:
            return dict.fromkeys(nodes, " ".join(str(error).split()))
    reasons = {name: _reason(found.get(node_name(name, settings))) for name, settings in nodes.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _reason(node: ClusterNode | None) -> str | None:
    if node is None:
        return "it has no such node"
    if not node.ready:
        return "the node is not Ready"
    return "the node is still cordoned, by gpunode" if node.is_held_back else None


def _of_node(host: str, settings: Settings, node: Node, view: View) -> list[Finding]:
    state = mig_state(settings, node.pci.gpus, node.mig)
    return list(judge_node(settings, node_name(host, settings), state, node.mig, view, node.gpus))


def _of_cluster(hosts: Mapping[str, Settings], cluster: Cluster, view: View) -> Iterator[Finding]:
    by_chart, of_first = desired_cluster(hosts), next(each for each in hosts.values() if each.kubernetes.enabled)
    now = datetime.now(UTC)
    # As a run of the whole inventory would label them.
    relabelled = [node_name(host, settings) for host, settings in hosts.items() if settings.kubernetes.enabled]
    if by_chart is not None:
        in_use, is_known = labelled_for(view.nodes), bool(by_release(view.nodes))
        yield _of_release(by_chart.plugin, cluster, lambda helm: helm.decide(by_chart.values, in_use, now, is_known)[2])
    elif release_leaves(hosts, view.nodes, relabelled):
        yield _of_release(of_first.device_plugin, cluster, lambda helm: helm.decide_absence(CHART, now))
    if (chosen := by_chart or class_alone(hosts)) is not None:
        yield from _of_class(chosen, cluster)
    for name, setting in namespaces(hosts).items():
        yield _of_namespace(name, setting, cluster)
    if (beside := operator(hosts)) is not None:
        is_known = bool(by_operator(view.nodes))
        yield _of_release(beside.settings, cluster, lambda helm: helm.decide(beside.values, (), now, is_known)[2])
    elif operator_leaves(hosts, view.nodes, relabelled):
        yield _of_release(of_first.gpu_operator, cluster, lambda helm: helm.decide_absence(gpu_operator.CHART, now))
    if desired := wanted_objects(hosts):
        yield _of_objects(desired, cluster, view)
    if nodes_by("gpushare", hosts):
        yield judge_extender(view)


def _of_objects(desired: Sequence[Document], cluster: Cluster, view: View) -> Finding:
    try:
        # None of the nodes is about to change its labels.
        change = cluster.objects_change(desired, [node.labels for node in view.nodes.values()])
    except (ClusterError, ParseError) as error:
        return _unknown(Subject.OWN_OBJECTS, str(error))
    foreign = [f"{each} is somebody else's" for each in change.conflicts]
    left = [f"{each} is no longer asked for" for each in change.remove]
    reason = "; ".join([*foreign, *map(str, change.differences), *left][:_FEW])
    remedy = f"take {change.conflicts[0]} away, or set device_plugin.method to 'none'" if foreign else RUN_CLUSTER
    return compared(COMPONENT, Subject.OWN_OBJECTS, "others" if reason else _GOOD, _GOOD, not reason, remedy, reason)


def _of_release(
    settings: ReleaseSettings, cluster: Cluster, decide: Callable[[Session], Decision[ReleaseChange]]
) -> Finding:
    try:
        (item,) = decide(Session.begun(cluster.kubernetes, settings, cluster.proxy, cluster.run)).findings
    except (HelmError, ParseError) as error:
        return _unknown(Subject.RELEASE.of(f"{settings.namespace}/{settings.release}"), str(error))
    return item


def _of_class(desired: DesiredCluster, cluster: Cluster) -> Iterator[Finding]:
    if desired.runtime_class is None:
        return
    try:
        actual = cluster.runtime_class_change(desired.runtime_class)
    except (ClusterError, ParseError) as error:
        yield _unknown(Subject.RUNTIME_CLASS, str(error))
        return
    good = actual.verb is None and not actual.refused
    yield compared(
        COMPONENT, Subject.RUNTIME_CLASS, _GOOD if good else "another", _GOOD, good, RUN_CLUSTER, actual.said
    )


def _of_namespace(name: str, setting: str, cluster: Cluster) -> Finding:
    what = Subject.NAMESPACE.of(name)
    try:
        labels = parse_labels(cluster.told(f"kubectl get namespace {name}", asking(cluster.kubernetes, name)))
    except (ClusterError, ParseError) as error:
        return _unknown(what, str(error))
    change = namespace_change(cluster.kubernetes, name, labels, setting)
    good = not (change.words or change.refused)
    return compared(
        COMPONENT, what, _GOOD if good else "another", _GOOD, good, RUN_CLUSTER, None if good else change.said
    )


def _unknown(what: str, words: str) -> Finding:
    """Return the finding that nothing is known; the last line of the words is the remedy, where there are several."""
    cause, _, remedy = words.partition("\n")
    return Finding(
        COMPONENT, FindingClass.ERROR, what, "unknown", "known", cause, remedy or "look at kubernetes.kubeconfig"
    )
