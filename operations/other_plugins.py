"""Releases of other device plugins and of DCGM's exporter: kept, and taken away where no node has them any more.

Those of a manifest are objects of gpunode's own: operations/methods.py keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.helm.commands import HelmError
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.helm.session import Session
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import owned, plugin_label
from gpunode.kubernetes.other_plugins.desired import kept_releases, releases_left
from gpunode.operations.cluster_labels import relabelled
from gpunode.operations.control_plane import runner
from gpunode.operations.device_plugin import nodes, ours
from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.helm import carry_out, kept, to_carry_out
from gpunode.operations.shared_once import once_per_run
from gpunode.settings import Settings


def _cluster(cluster_of: Settings) -> Cluster:
    return Cluster(cluster_of.kubernetes, cluster_of.proxy, runner(cluster_of.kubernetes))


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
        yield from kept(each, cluster_of.proxy, partial(nodes, _cluster(cluster_of)), partial(_labelled, name))


def _labelled(name: str, actual: Mapping[str, ClusterNode]) -> set[str]:
    return {each for each, node in actual.items() if plugin_label(name) in owned(node.ours)}


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
    cluster, changes = _cluster(cluster_of), []
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
