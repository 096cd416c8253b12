"""Releases of other device plugins and of DCGM's exporter: kept, and taken away where no node has them any more.

What the exporter's release would fail on is refused before helm runs. Those of a manifest are objects of gpunode's own:
operations/methods.py keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand

from gpunode.base.reading import ParseError
from gpunode.kubernetes.components import decide_exporter_alone
from gpunode.kubernetes.device_plugin.cluster import ClusterError
from gpunode.kubernetes.helm.commands import HelmError
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.helm.session import Session
from gpunode.kubernetes.other_plugins.desired import kept_releases, labelled, releases_left
from gpunode.operations.cluster_labels import relabelled
from gpunode.operations.control_plane import asked, cluster_for, decided
from gpunode.operations.device_plugin import nodes, ours
from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.helm import carry_out, kept, to_carry_out
from gpunode.operations.shared_once import once_per_run
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


@node_operation
@once_per_run("the releases of other device plugins")
def releases(desired: Mapping[str, AskedRelease], cluster_of: Settings) -> Iterator[Any]:
    """Keep the releases of other device plugins at their charts and values; one that is as desired is left as it is.

    + desired: plugin -> the release that it is to be
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    if not desired:
        host.noop("no other release is asked for")
    for name, each in desired.items():
        yield from kept(each, cluster_of.proxy, partial(nodes, cluster_for(cluster_of)), partial(labelled, name))


@node_operation
@once_per_run("no release of a device plugin that is no longer asked for")
def releases_absent(
    desired: Mapping[str, AskedRelease], cluster_of: Settings, everyone: Mapping[str, Settings]
) -> Iterator[Any]:
    """Take the releases of other device plugins away that gpunode brought, and no node needs any more.

    + desired: plugin -> the release that it is to be
    + cluster_of: settings of a node of the cluster, which say where it is
    + everyone: host -> settings of the whole inventory
    """
    cluster, changes = cluster_for(cluster_of), []
    try:
        changed = relabelled(everyone)
        staying = [node.labels for name, node in nodes(cluster).items() if name not in changed]
        left = releases_left(desired, ours(cluster), staying, kept_releases(everyone))
        for name, release in left.items():
            session = Session.begun(cluster.kubernetes, release, cluster.proxy, cluster.run)
            changes.append((name, session, session.decide_absence_of_ours(datetime.now(UTC))))
    except (ClusterError, HelmError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    if not changes:
        host.noop("no release is left of what is no longer asked for")
    for name, session, decision in changes:
        found = to_carry_out(session, decision, f"release {session.name} is none of gpunode's to take away")
        if found is not None:
            host.log(f"release {session.name}: {found.steps[0].act}: {name} is no longer asked for")
            yield FunctionCommand(carry_out, [session, found, {}], {})
