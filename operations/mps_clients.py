"""The plugin's MPS daemons about to restart: their clients are left alone, or their nodes drained before it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.mps_clients import asking, decide_restart, parse_clients
from gpunode.kubernetes.drain.commands import drain_of
from gpunode.operations.cluster_labels import relabelled
from gpunode.operations.drain import drain_before
from gpunode.operations.failure import OperationRefused
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


def before_restart(
    cluster: Cluster, restarting: Collection[str], everyone: Mapping[str, Settings], what: str
) -> Iterator[Any]:
    """Yield what drains the nodes with GPU pods among those whose MPS daemon restarts.

    Raise OperationRefused where the settings of one forbid it, or this run does not bring it about: then nothing has
    been changed.

    + restarting: names in the cluster; of none of them, nothing is asked
    + everyone: host -> settings of the whole inventory
    + what: what restarts them, as `release gpu/nvdp`
    """
    if not restarting:
        return
    try:
        every = parse_clients(cluster.told("kubectl get pods", asking(cluster.kubernetes)))
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{what}: {error}\nnothing was changed in the cluster") from None
    clients = {node: pods for node, pods in every.items() if node in restarting}
    hosts = {node_name(name, settings): name for name, settings in everyone.items()}
    decision = decide_restart(clients, {node: everyone[name] for node, name in hosts.items()}, relabelled(everyone))
    if decision.refusal is not None:
        raise OperationRefused(f"{what}: {decision.refusal}\nnothing was changed in the cluster")
    for step in decision.steps:
        host.log(f"{what}: {step.action}")
        if (node := step.change) is not None:
            drain = drain_of(hosts[node], everyone[hosts[node]])
            yield from drain_before(drain, f"the MPS daemon of {node} is to restart")
