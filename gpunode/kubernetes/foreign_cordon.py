"""Which nodes a run leaves alone because somebody else has cordoned them: `kubernetes.drain.foreign_cordon`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gpunode.base.reading import Unknown
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


def asks(settings: Settings) -> bool:
    """Say whether the cluster has to be asked for the node's cordon before anything is done to the host."""
    return settings.kubernetes.drains and settings.kubernetes.drain.foreign_cordon == "skip"


FOREIGN_CORDON = RefusalMessage(
    "foreign-cordon",
    "The node was cordoned, but not by gpunode, and kubernetes.drain.foreign_cordon is 'skip'.",
    component="kubernetes",
    reason="node {name} was cordoned, not by gpunode, and kubernetes.drain.foreign_cordon is 'skip': it is not changed",
    source="kubectl get nodes",
    remedy="run again when it takes pods: `kubectl uncordon {name}`",
)


def left_alone(host: str, settings: Settings, nodes: Mapping[str, ClusterNode] | Unknown) -> Refusal | Unknown | None:
    """Return why nothing is done to a host; None where the cordon of its node, if there is one, does not keep it.

    nodes: name -> node, of the whole cluster; Unknown where it did not answer: nothing may be done then, either
    """
    if not asks(settings):
        return None
    if isinstance(nodes, Unknown):
        reason = (
            f"kubernetes.drain.foreign_cordon is 'skip', and nobody knows who has cordoned the node: {nodes.reason}"
        )
        return Unknown(f"{reason}; look at kubernetes.kubeconfig and kubernetes.run_on, or set it to 'drain'")
    node = nodes.get(node_name(host, settings))
    if node is None or not node.unschedulable or node.is_held_back:
        return None
    return FOREIGN_CORDON(name=node.name)
