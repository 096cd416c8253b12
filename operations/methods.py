"""The methods by which GPUs get into a cluster without a release: gpunode's own objects, and their namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyinfra import host

from gpunode.base.findings import cluster_title
from gpunode.kubernetes.components import decide_alone, decide_right
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.methods import leaving
from gpunode.kubernetes.helm.commands import Command, explained
from gpunode.kubernetes.helm.manifest import Identity
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.kubernetes.objects import own_objects
from gpunode.kubernetes.objects.own_objects import Document
from gpunode.operations.cluster_labels import relabelled
from gpunode.operations.control_plane import asked, cluster_for, decided, told, unanswered
from gpunode.operations.device_plugin import nodes, ours
from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.shared_once import asked_once, once_per_run
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


@node_operation
@once_per_run("namespaces that admit the plugin's pods")
def admitted(namespaces: Mapping[str, str], cluster_of: Settings) -> Iterator[Any]:
    """Keep the label by which Pod Security admits pods that mount folders of the node; helm would set none.

    + namespaces: by name, with the setting that chooses each
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    cluster = cluster_for(cluster_of)
    decision = decided(partial(cluster.decide_namespaces, namespaces))
    for step in decision.steps:
        if step.change is not None:
            host.log(f"{step.settles[0].cause}: to admit pods that mount folders of the node")
            yield told(partial(cluster.told, f"kubectl {step.action}", *step.change))
    if not decision.steps:
        host.noop("; ".join(f"{item.what} as desired" for item in decision.findings) or "no namespace of gpunode's")


@node_operation
def answering(cluster_of: Settings) -> Iterator[Any]:
    """Fail where the cluster does not answer; the run's report of the cluster has cause and remedy, once.

    + cluster_of: settings of a node of the cluster, which say where it is
    """
    if (reason := unanswered(cluster_of)) is not None:
        name = cluster_of.kubernetes.cluster_name
        asked_once("the report of the cluster", partial(host.log, f"{cluster_title(name)}: {reason}"), again=False)
        raise OperationRefused(f"nothing was changed in {cluster_title(name)}: it does not answer")
    host.noop("the cluster answers")
    yield from ()


@node_operation
def right_cluster(everyone: Mapping[str, Settings], cluster_of: Settings) -> Iterator[Any]:
    """Refuse a cluster that has none of the inventory's nodes: a kubeconfig may name another one. It changes nothing.

    + everyone: host -> settings of the whole inventory
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    decision = decided(partial(decide_right, everyone, nodes(cluster_for(cluster_of))))
    host.noop(f"the cluster {decision.findings[0].actual}")
    yield from ()


@node_operation
def alone(settings: Settings, everyone: Mapping[str, Settings], cluster_of: Settings) -> Iterator[Any]:
    """Refuse a node that another device plugin takes beside the one that it is to have. It changes nothing.

    + everyone: host -> settings of the whole inventory
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    if not settings.kubernetes.enabled or settings.device_plugin.method == "none":
        host.noop("the node's device plugin is none of gpunode's")
        return
    cluster = cluster_for(cluster_of)
    actual = nodes(cluster)
    node = actual.get(node_name(host.name, settings))
    if node is None:
        host.noop("no node of the cluster yet")
        return
    plugins = asked("the cluster's device plugins", cluster.plugins)
    decision = decide_alone(settings, node, plugins, leaving(everyone, actual, relabelled(everyone)))
    if decision.refusal is not None:
        raise OperationRefused(f"{decision.refusal}\nnothing was changed for {node.name}")
    host.noop("no other device plugin takes the node")
    yield from ()


@node_operation
@once_per_run("gpunode's own objects in the cluster")
def objects(desired: Sequence[Document], cluster_of: Settings, everyone: Mapping[str, Settings]) -> Iterator[Any]:
    """Keep gpunode's own objects in the cluster as they are to be, and take away those that are no longer asked for.

    Those that nodes are labelled for which this run does not change stay, whatever inventory the nodes are of.

    + desired: the objects, in the order in which they are made; none: all of gpunode's go
    + cluster_of: settings of a node of the cluster, which say where it is
    + everyone: host -> settings of the whole inventory
    """
    cluster = cluster_for(cluster_of)
    decision = decided(partial(cluster.decide_objects, desired, nodes(cluster), relabelled(everyone), ours(cluster)))
    for item in decision.findings:
        if item.is_caution:
            host.log(": ".join(filter(None, (item.what, item.cause, item.remedy))))
    change = next((step.change for step in decision.steps), None)
    if change is None:
        host.noop(f"{len(desired)} objects in the cluster as desired" if desired else "no objects of gpunode's own")
        return
    for difference in change.differences[:5]:
        host.log(f"objects of gpunode's own: {difference}")
    # What goes makes room for what comes.
    for identity in change.remove:
        host.log(f"{identity}: no longer asked for")
        yield told(partial(_removed, cluster, identity))
    if change.apply:
        words = ("apply", "--server-side", "--force-conflicts", "--field-manager", "gpunode", "--filename", "-")
        yield told(partial(cluster.told, "kubectl apply", words, own_objects.text(change.apply)))
    for identity in own_objects.workloads(desired) if change.apply else change.unready:
        yield told(partial(_ready, cluster, identity))


def _removed(cluster: Cluster, identity: Identity) -> None:
    where = ("--namespace", identity.namespace) if identity.namespace else ()
    kind = f"{identity.kind.lower()}.{identity.group}" if identity.group else identity.kind.lower()
    words = ("delete", kind, identity.name, *where, "--ignore-not-found", "--wait")
    _long(cluster, f"kubectl delete {identity}", *words)


def _ready(cluster: Cluster, identity: Identity) -> None:
    what = f"{identity.kind.lower()}.{identity.group}/{identity.name}"
    try:
        _long(cluster, f"{identity}", "rollout", "status", what, "--namespace", identity.namespace)
    except ClusterError as error:
        raise ClusterError(
            f"{error}\nit does not run within {cluster.kubernetes.timeout} s (kubernetes.timeout) wherever it is to: "
            f"{own_objects.look_at(identity)}"
        ) from None


def _long(cluster: Cluster, what: str, *words: str) -> None:
    """Run a command of kubectl's that waits by itself: a limit of each request would end its watch."""
    seconds = cluster.kubernetes.timeout
    limited = kubectl(cluster.kubernetes, *words, "--timeout", f"{seconds}s")
    output = cluster.run(Command(limited, cluster.proxy.environment, seconds + 60))
    if output.status != 0:
        raise ClusterError(explained(what, output.err))
