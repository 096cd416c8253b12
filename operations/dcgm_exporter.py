"""DCGM's exporter by its chart: what its release would fail on, or not stand beside, is told before helm runs.

The release itself is kept, and taken away, as those of other charts: operations/other_plugins.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pyinfra import host

from gpunode.kubernetes.components import decide_exporter_alone
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.operations.cluster_command import answered
from gpunode.operations.control_plane import runner
from gpunode.operations.device_plugin import nodes
from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.shared_once import asked_once
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


def _cluster(cluster_of: Settings) -> Cluster:
    return Cluster(cluster_of.kubernetes, cluster_of.proxy, runner(cluster_of.kubernetes))


@node_operation
def monitored(everyone: Mapping[str, Settings], cluster_of: Settings) -> Iterator[Any]:
    """Refuse a ServiceMonitor in a cluster that knows no such kind, on every host alike. It changes nothing.

    + everyone: host -> settings of the whole inventory, one of which asks for a ServiceMonitor
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    what = "the kinds of the Prometheus Operator"
    ask = partial(_cluster(cluster_of).decide_monitor, everyone)
    decision = answered(what, partial(asked_once, what, ask))
    if decision.refusal is not None:
        raise OperationRefused(f"{decision.refusal}\nnothing was changed in the cluster")
    host.noop("the cluster knows the kind ServiceMonitor")
    yield from ()


@node_operation
def alone(settings: Settings, cluster_of: Settings) -> Iterator[Any]:
    """Refuse a node that another exporter or host engine takes beside the one that it is to have. It changes nothing.

    + settings: the host's settings
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    if not (settings.kubernetes.enabled and settings.dcgm_exporter_chart.enabled):
        host.noop("the node has no exporter by gpunode")
        return
    cluster = _cluster(cluster_of)
    node = nodes(cluster).get(node_name(host.name, settings))
    if node is None:
        host.noop("no node of the cluster yet")
        return
    what = "DCGM's DaemonSets in the cluster"
    decision = decide_exporter_alone(settings, node, answered(what, partial(asked_once, what, cluster.exporters)))
    if decision.refusal is not None:
        raise OperationRefused(f"{decision.refusal}\nnothing was changed for {node.name}")
    host.noop("no other exporter takes the node")
    yield from ()
