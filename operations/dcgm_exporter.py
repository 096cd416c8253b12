"""DCGM's exporter by its chart: what its release would fail on, or not stand beside, is told before helm runs.

The release itself is kept, and taken away, as those of other charts: operations/other_plugins.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pyinfra import host

from gpunode.kubernetes.components import decide_exporter_alone
from gpunode.operations.control_plane import asked, cluster_for, decided
from gpunode.operations.device_plugin import nodes
from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


@node_operation
def monitored(everyone: Mapping[str, Settings], cluster_of: Settings) -> Iterator[Any]:
    """Refuse a ServiceMonitor in a cluster that knows no such kind, on every host alike. It changes nothing.

    + everyone: host -> settings of the whole inventory, one of which asks for a ServiceMonitor
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    ask = partial(cluster_for(cluster_of).decide_monitor, everyone)
    decided(partial(asked, "the kinds of the Prometheus Operator", ask))
    host.noop("the cluster knows the kind ServiceMonitor")
    yield from ()


@node_operation
def alone(settings: Settings, cluster_of: Settings) -> Iterator[Any]:
    """Refuse a node that another exporter or host engine takes beside the one that it is to have. It changes nothing.

    + cluster_of: settings of a node of the cluster, which say where it is
    """
    if not (settings.kubernetes.enabled and settings.dcgm_exporter_chart.enabled):
        host.noop("the node has no exporter by gpunode")
        return
    cluster = cluster_for(cluster_of)
    node = nodes(cluster).get(node_name(host.name, settings))
    if node is None:
        host.noop("no node of the cluster yet")
        return
    decision = decide_exporter_alone(settings, node, asked("DCGM's DaemonSets in the cluster", cluster.exporters))
    if decision.refusal is not None:
        raise OperationRefused(f"{decision.refusal}\nnothing was changed for {node.name}")
    host.noop("no other exporter takes the node")
    yield from ()
