"""A helm release in a cluster: read, compared, and changed by helm where helm runs.

Helm is the transaction here: it waits, goes back where it fails, and what it leaves behind when it is cut off the next
run recovers (gpunode/helm/change.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State

from gpunode.device_plugin.cluster import Cluster, ClusterError
from gpunode.device_plugin.nodes import labelled_for
from gpunode.device_plugin.rollout import Rollout
from gpunode.device_plugin.ways import by_release, release_leaves
from gpunode.helm.change import ReleaseChange, removal
from gpunode.helm.program import HelmError
from gpunode.helm.session import Session
from gpunode.reading import ParseError
from gpunode.settings import Settings
from gpunode.settings.proxy import ProxySettings
from operations.control_plane import runner
from operations.device_plugin import relabelled
from operations.failure import OperationRefused, node_operation
from operations.once import asked_once, is_executing, once_per_run

# The chart that a release must be of to be taken away.
CHART = "nvidia-device-plugin"


# Runs in which a configuration had to stay until its nodes are labelled for another one.
_outlived: WeakSet[State] = WeakSet()


@node_operation
@once_per_run("the release of the device plugin")
def release(rollout: Rollout, proxy: ProxySettings) -> Iterator[Any]:
    """Keep a release at its chart and values; a release that is as asked gets no new revision.

    Call it for every host, so that it is done whichever of them fails: the first that comes to it does it for all, and
    helm runs where `kubernetes.run_on` says. What nodes are still labelled for stays, until `leftovers`.

    + rollout: what the cluster is to get
    + proxy: for charts and registries; its no_proxy must name the API server
    """
    yield from _kept(rollout, proxy, "the cluster's nodes")


@node_operation
@once_per_run("configurations that no node is labelled for")
def leftovers(rollout: Rollout, proxy: ProxySettings) -> Iterator[Any]:
    """Take configurations away that the release had to keep until the nodes were labelled, as `release` does."""
    if host.state not in _outlived:
        host.noop("no configuration is left over")
        return
    yield from _kept(rollout, proxy, "the nodes as they are labelled now")


def _kept(rollout: Rollout, proxy: ProxySettings, nodes: str) -> Iterator[Any]:
    cluster = Cluster(rollout.kubernetes, proxy, runner(rollout.kubernetes))
    try:
        in_use = labelled_for(asked_once(nodes, cluster.nodes))
        session = Session.begun(rollout.kubernetes, rollout.plugin, proxy, runner(rollout.kubernetes))
        wanted, values, found = session.change(rollout.values, in_use, datetime.now(UTC))
    except (ClusterError, HelmError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    name = f"release {rollout.plugin.namespace}/{rollout.plugin.release}"
    if values != rollout.values and is_executing():
        _outlived.add(host.state)
    if not found.steps:
        if found.refused is not None:
            raise OperationRefused(f"{name}: {found.refused}")
        host.noop(f"{name}: {wanted.chart} {wanted.version} as asked")
        return
    for step in found.steps:
        host.log(f"{name}: {step.act}{f' to revision {step.revision}' if step.revision else ''}: {step.reason}")
    yield FunctionCommand(_carry_out, [session, found, values], {})


def _carry_out(state: State, host: Host, session: Session, found: ReleaseChange, values: Mapping[str, Any]) -> bool:
    try:
        session.carry_out(found, values)
    except HelmError as error:
        for line in str(error).splitlines():
            host.log_styled(line, fg="red")
        return False
    return True


@node_operation
@once_per_run("no release of the device plugin")
def absent(cluster_of: Settings, everyone: Mapping[str, Settings]) -> Iterator[Any]:
    """Take the release of the device plugin away where it is gpunode's and no node of the cluster needs it any more.

    + cluster_of: settings of a node of the cluster, which say where it is, and by which name
    + everyone: host -> settings of the whole inventory
    """
    kubernetes, plugin = cluster_of.kubernetes, cluster_of.device_plugin
    cluster = Cluster(kubernetes, cluster_of.proxy, runner(kubernetes))
    name = f"release {plugin.namespace}/{plugin.release}"
    try:
        there, changed = cluster.nodes(), relabelled(everyone)
        if not release_leaves(everyone, there, changed):
            others = sorted(by_release(there) - changed)
            if others:
                host.log(f"{name} stays: {', '.join(others[:5])} labelled for it, and not changed by this run")
            host.noop(f"{name} is none of gpunode's to take away")
            return
        session = Session.begun(kubernetes, plugin, cluster_of.proxy, runner(kubernetes))
        found = removal(session.reading().release, CHART, datetime.now(UTC), kubernetes.timeout)
    except (ClusterError, HelmError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    if found.refused is not None:
        raise OperationRefused(f"{name}: {found.refused}")
    if not found.steps:
        host.noop(f"there is no {name}")
        return
    host.log(f"{name}: {found.steps[0].act}: no node has device_plugin.way 'helm' any more")
    yield FunctionCommand(_carry_out, [session, found, {}], {})
