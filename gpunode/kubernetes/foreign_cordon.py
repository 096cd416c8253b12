"""Which nodes a run leaves out because something else cordoned them: `kubernetes.drain.foreign_cordon`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gpunode.base.reading import Unknown
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


def asks(settings: Settings) -> bool:
    """Return whether the node's cordon must be read from the cluster before the host is changed."""
    return settings.kubernetes.drains and settings.kubernetes.drain.foreign_cordon == "skip"


FOREIGN_CORDON = RefusalMessage(
    "foreign-cordon",
    "The node was cordoned, but not by gpunode, and kubernetes.drain.foreign_cordon is 'skip'.",
    component="kubernetes",
    reason="node {name} was cordoned, not by gpunode, and kubernetes.drain.foreign_cordon is 'skip': it is not changed",
    source="kubectl get nodes",
    remedy="run again when it takes pods: `kubectl uncordon {name}`",
)


CORDON_NOT_KNOWN = RefusalMessage(
    "cordon-not-known",
    "The cluster does not answer, and kubernetes.drain.foreign_cordon is 'skip'.",
    component="kubernetes",
    reason="kubernetes.drain.foreign_cordon is 'skip', and the cluster does not report whether the node is cordoned",
    source="kubectl get nodes",
    remedy="let the cluster answer (`gpunode drift` reports why it does not), or set it to 'drain'",
)


def left_alone(host: str, settings: Settings, nodes: Mapping[str, ClusterNode] | Unknown) -> Refusal | None:
    """Return why a host is not changed; None where its node has no cordon, or one that does not keep it.

    nodes: name -> node, of the whole cluster; Unknown where it did not answer: nothing may be done then, either
    """
    if not asks(settings):
        return None
    if isinstance(nodes, Unknown):
        return CORDON_NOT_KNOWN()
    node = nodes.get(node_name(host, settings))
    if node is None or not node.unschedulable or node.is_held_back:
        return None
    return FOREIGN_CORDON(name=node.name)
