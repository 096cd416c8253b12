"""The methods by which GPUs get into a cluster without a release: gpunode's own objects, and room made for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyinfra import host

from gpunode.base.reading import ParseError
from gpunode.kubernetes import gpu_operator
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_labels import desired_labels
from gpunode.kubernetes.device_plugin.methods import leaving
from gpunode.kubernetes.device_plugin.others import Plugin, asking, in_the_way, parse_plugins
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.errors import explained
from gpunode.kubernetes.helm.manifest import Identity
from gpunode.kubernetes.objects import own_objects
from gpunode.kubernetes.objects.own_objects import Document, ObjectsChange
from gpunode.operations.cluster_labels import relabelled
from gpunode.operations.control_plane import runner
from gpunode.operations.device_plugin import nodes, told
from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.shared_once import asked_once, once_per_run
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name
from gpunode.settings.cluster.gpu_operator import METHOD


def _cluster(cluster_of: Settings) -> Cluster:
    return Cluster(cluster_of.kubernetes, cluster_of.proxy, runner(cluster_of.kubernetes))


@node_operation
def right_cluster(everyone: Mapping[str, Settings], cluster_of: Settings) -> Iterator[Any]:
    """Refuse a cluster that has none of the inventory's nodes: a kubeconfig may name another one. It changes nothing.

    + everyone: host -> settings of the whole inventory
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    actual = nodes(_cluster(cluster_of))
    desired = [node_name(name, settings) for name, settings in everyone.items() if settings.kubernetes.enabled]
    if not any(name in actual for name in desired):
        few = ", ".join(desired[:5]) + (" …" if len(desired) > 5 else "")
        raise OperationRefused(
            f"the cluster has none of the inventory's nodes ({few}): set kubernetes.kubeconfig and kubernetes.context "
            "to the cluster that is meant, kubernetes.node_name to a node's name there, or let it join\n"
            "nothing was changed in the cluster"
        )
    host.noop("the cluster has nodes of the inventory")
    yield from ()


@node_operation
def alone(settings: Settings, everyone: Mapping[str, Settings], cluster_of: Settings) -> Iterator[Any]:
    """Refuse a node that another device plugin takes beside the one that it is to have. It changes nothing.

    + settings: the host's settings
    + everyone: host -> settings of the whole inventory
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    if not settings.kubernetes.enabled or settings.device_plugin.method == "none":
        host.noop("the node's device plugin is none of gpunode's")
        return
    cluster = _cluster(cluster_of)
    actual = nodes(cluster)
    node = actual.get(node_name(host.name, settings))
    if node is None:
        host.noop("no node of the cluster yet")
        return
    labels = desired_labels(node.name, settings).change(node).applied_to(node.labels)
    gone = leaving(everyone, actual, relabelled(everyone))
    found = [*in_the_way(settings, labels, _plugins(cluster), gone)]
    if settings.device_plugin.method == METHOD and settings.device_plugin.nfd == "present":
        found += [reason for reason in (gpu_operator.no_gpu_found(node.labels),) if reason is not None]
    if found:
        raise OperationRefused("\n".join([*found, f"nothing was changed for {node.name}"]))
    host.noop("no other device plugin takes the node")
    yield from ()


def _plugins(cluster: Cluster) -> tuple[Plugin, ...]:
    what = "the cluster's device plugins"
    try:
        return asked_once(what, partial(_asked, cluster))
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{what}: {error}") from None


def _asked(cluster: Cluster) -> tuple[Plugin, ...]:
    return parse_plugins(cluster.told("kubectl get daemonsets", asking(cluster.kubernetes)))


@node_operation
@once_per_run("gpunode's own objects in the cluster")
def objects(desired: Sequence[Document], cluster_of: Settings, everyone: Mapping[str, Settings]) -> Iterator[Any]:
    """Keep gpunode's own objects in the cluster as they are to be, and take away those that are no longer asked for.

    Those that nodes are labelled for which this run does not change stay, whatever inventory the nodes are of.

    + desired: the objects, in the order in which they are made; none: all of gpunode's go
    + cluster_of: settings of a node of the cluster, which say where it is
    + everyone: host -> settings of the whole inventory
    """
    cluster, kubernetes = _cluster(cluster_of), cluster_of.kubernetes
    try:
        changed = relabelled(everyone)
        known_nodes = nodes(cluster)
        staying = [node.labels for name, node in known_nodes.items() if name not in changed]
        not_ready = [node.labels for node in known_nodes.values() if not node.ready]
        change = cluster.objects_change(desired, staying, not_ready)
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    if change.conflicts:
        names = ", ".join(map(str, change.conflicts))
        raise OperationRefused(
            f"{names}: there already, and somebody else's (no label {own_objects.METHOD}); take it away, or set "
            "device_plugin.method to 'none'. Nothing was changed in the cluster"
        )
    if change.kept:
        names = ", ".join(f"{each.kind} {each.name}" for each in change.kept[:5])
        host.log(f"{names}: no longer asked for, and left: nodes that this run does not change are labelled for it")
    for identity in change.ill:
        host.log(f"{identity}: as desired, and does not run wherever it is to: {_look_at(identity)}")
    if change.is_none:
        host.noop(f"{len(desired)} objects in the cluster as desired" if desired else "no objects of gpunode's own")
        return
    for difference in change.differences[:5]:
        host.log(f"objects of gpunode's own: {difference}")
    # What goes makes room for what comes.
    for identity in change.remove:
        host.log(f"{identity}: no longer asked for")
        yield told(partial(_removed, cluster, identity))
    if change.apply:
        yield told(partial(cluster.told, "kubectl apply", *own_objects.applying(kubernetes, change.apply)))
    for identity in _waited_for(change, desired):
        yield told(partial(_ready, cluster, identity))


def _waited_for(change: ObjectsChange, desired: Sequence[Document]) -> Sequence[Identity]:
    return own_objects.workloads(desired) if change.apply else change.unready


def _removed(cluster: Cluster, identity: Identity) -> None:
    seconds = cluster.kubernetes.timeout
    _long(cluster, f"kubectl delete {identity}", own_objects.removing(cluster.kubernetes, identity, seconds))


def _ready(cluster: Cluster, identity: Identity) -> None:
    seconds = cluster.kubernetes.timeout
    try:
        _long(cluster, f"{identity}", own_objects.waiting(cluster.kubernetes, identity, seconds))
    except ClusterError as error:
        raise ClusterError(
            f"{error}\nit does not run within {seconds} s (kubernetes.timeout) wherever it is to: {_look_at(identity)}"
        ) from None


def _look_at(identity: Identity) -> str:
    return f"look at `kubectl -n {identity.namespace} describe {identity.kind.lower()} {identity.name}`"


def _long(cluster: Cluster, what: str, words: tuple[str, ...]) -> None:
    """Run a command of kubectl's that waits by itself: a limit of each request would end its watch."""
    output = cluster.run(Command(words, cluster.proxy.environment, cluster.kubernetes.timeout + 60))
    if output.status != 0:
        raise ClusterError(explained(what, output.err))
