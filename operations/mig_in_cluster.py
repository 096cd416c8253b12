"""What a change of a node's MIG layout is to its cluster: the plugin's pods are away meanwhile, a label says so.

NVIDIA's plugin holds the GPUs that it offers, and so do the daemons beside it: nothing can be taken from a GPU while
they are there. Their DaemonSets take a node by labels of gpunode's, which go for the change, and come back with all
others at the end of the run (operations/device_plugin.py), or at once where it fails (operations/cluster_labels.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from time import monotonic, sleep
from typing import Any

from pyinfra import host
from pyinfra.api import Host, State, StringCommand
from pyinfra.connectors.util import CommandOutput

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.others import leaving, left, taking
from gpunode.kubernetes.nodes.labels import LabelChange, before_mig
from gpunode.operations.cluster_labels import is_taking_part, labels_changed, mig_at_work
from gpunode.operations.control_plane import cluster_for, told
from gpunode.operations.failure import OperationRefused
from gpunode.operations.phase import is_executing
from gpunode.operations.transaction import ENDED
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name

_PAUSE = 1.0


def set_aside(node_of: Settings | None, clears: bool) -> Iterator[Any]:
    """Yield what tells the cluster of a change of the node's MIG layout, and takes off the node what would hold it up.

    A cluster that does not answer, or has no such node, keeps nothing from the node: the change itself finds out who
    holds a GPU. Nothing is taken off by a run that does not set the node's labels again.

    + node_of: the host's settings; None where it is in no cluster
    + clears: whether anything is taken from a GPU
    """
    if node_of is None or (is_executing() and not is_taking_part()):
        return
    cluster = cluster_for(node_of)
    sets: frozenset[str] = frozenset()
    try:
        node = cluster.node(node_name(host.name, node_of))
        if node is None:
            return
        change = before_mig(node_of, node.labels, node.ours, clears)
        by = taking(node.labels, node.ours) if clears else {}
        if by:
            kept = {name: value for name, value in node.labels.items() if name not in by}
            sets = leaving(cluster.daemon_sets(), {**kept, **by}, kept)
    except (ClusterError, ParseError) as error:
        host.log(f"the cluster is told of no change of MIG, and no pod is taken off: {' '.join(str(error).split())}")
        return
    if sets:
        host.log(f"takes off node {node.name} until the run ends: {', '.join(sorted(sets))}")
    if sets or not change.is_none:
        yield told(partial(_carried_out, cluster, node.name, change, sets))


def refuse_held(node_of: Settings | None, containers: Collection[str], drains: bool) -> None:
    """Refuse a change before the node is drained for it where a pod that stays on it holds a GPU.

    + node_of: the host's settings; None where it is in no cluster
    + containers: the short IDs of the pods' containers that hold a GPU; drains: whether it is drained
    """
    if node_of is not None and containers:
        reason = cluster_for(node_of).why_pods_stay(node_name(host.name, node_of), containers, drains)
        if reason is not None:
            raise OperationRefused(f"mig: nothing was changed: {reason}")


def _carried_out(cluster: Cluster, name: str, change: LabelChange, sets: Collection[str]) -> None:
    labels_changed()
    if not change.is_none:
        cluster.label(name, change)
    seconds, began = cluster.kubernetes.timeout, monotonic()
    while sets and (pods := left(cluster.pods(f"spec.nodeName={name}"), sets)):
        if monotonic() - began >= seconds:
            raise ClusterError(
                f"{', '.join(pods)}: still on node {name} {seconds} s (kubernetes.timeout) after the labels went by "
                f"which it was there; MIG was not changed. Look at `kubectl describe node {name}` and at its kubelet"
            )
        sleep(_PAUSE)


def unsettled(node_of: Settings | None) -> Iterator[Any]:
    """Yield what goes before an earlier change of the layout is brought to its end: that takes free GPUs, too."""
    yield from set_aside(node_of, clears=True)
    mig_at_work(True)


class _Followed(StringCommand):
    """A change of the MIG layout; where it fails, it is known whether it has ended."""

    def execute(self, state: State, host: Host, connector_arguments: Any) -> tuple[bool, CommandOutput]:
        """Run the command on the host; return whether it succeeded, and its output."""
        succeeded, output = super().execute(state, host, connector_arguments)
        if any(ENDED in line.line for line in output):
            mig_at_work(False)
        return succeeded, output


def followed(command: StringCommand) -> Iterator[StringCommand]:
    """Yield the command of MIG's transaction: while nobody knows of its end, no pod is let to the node again."""
    mig_at_work(True)
    yield _Followed(*command.bits, _separator=command.separator, **command.connector_arguments)
    mig_at_work(False)
