"""A helm release in a cluster: read, compared, and changed by helm where helm runs.

Helm is the transaction here: it waits, goes back where it fails, and what it leaves behind when it is cut off the next
run recovers (gpunode/kubernetes/helm/change.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError
from gpunode.base.run_context import Slot
from gpunode.kubernetes import gpu_operator
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_restart import release_restarts, with_daemon
from gpunode.kubernetes.device_plugin.desired_cluster import CHART, node_by_node
from gpunode.kubernetes.device_plugin.methods import by_operator, by_release, operator_leaves, release_leaves
from gpunode.kubernetes.helm.change import ReleaseChange
from gpunode.kubernetes.helm.commands import HelmError
from gpunode.kubernetes.helm.manifest import Identity, is_custom, objects
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.helm.session import Session
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, labelled_for
from gpunode.operations.cluster_labels import relabelled
from gpunode.operations.control_plane import cluster_for, runner
from gpunode.operations.failure import OperationRefused, failed, node_operation
from gpunode.operations.mps_clients import drained, may_restart, release_waits, restart_of
from gpunode.operations.phase import is_executing
from gpunode.operations.shared_once import asked_once, once_per_run
from gpunode.settings import Settings
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.repositories import ProxySettings

# source: helm v3, pkg/kube/ready.go; helm v4 takes all kinds (kstatus), of which these and custom resources take time.
_TAKE_TIME = {
    "CustomResourceDefinition", "DaemonSet", "Deployment", "PersistentVolumeClaim", "Pod", "ReplicaSet",
    "ReplicationController", "StatefulSet",
}  # fmt: skip
_FEW = 6
_POLICY = "ClusterPolicy"


def waited_for(objects: Iterable[Identity], major: int) -> tuple[Identity, ...]:
    """Return the objects of a release that a helm of this major version waits for."""
    return tuple(sorted(each for each in objects if each.kind in _TAKE_TIME or (major >= 4 and is_custom(each))))


def waiting(objects: Iterable[Identity], version: str, timeout: int) -> str:
    """Return what helm of this version waits for and how many seconds at most, for people; empty: for nothing."""
    found = waited_for(objects, int(version.partition(".")[0]))
    if not found:
        return ""
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    text = (
        f"helm {version} now waits until {', '.join(map(str, found[:_FEW]))}{more} "
        f"{'are' if len(found) > 1 else 'is'} ready, for {timeout} s at most (kubernetes.timeout), and as long again "
        "where it goes back"
    )
    if any(each.kind == _POLICY for each in found):
        text += f"; the {_POLICY} is ready when the operator's own pods run on every GPU node"
    return text


_NODES = "the cluster's nodes"
# Whether a configuration had to stay until its nodes are labelled for another one.
_outlived = Slot(bool)


@node_operation
@once_per_run("the release of the device plugin")
def release(desired: AskedRelease, proxy: ProxySettings, everyone: Mapping[str, Settings]) -> Iterator[Any]:
    """Keep the device plugin's release at its chart and values; one that is as desired gets no new revision.

    Call it for every host, so that it is done whichever of them fails: the first that comes to it does it for all, and
    helm runs where `kubernetes.run_on` says. What nodes are still labelled for stays, until `leftovers`. Nodes with
    clients of the plugin's MPS daemons are drained before a change that restarts these, or it waits.

    + proxy: for charts and registries; its no_proxy must name the API server
    + everyone: host -> settings of the whole inventory
    """
    yield from kept(desired, proxy, partial(_nodes, desired, proxy, _NODES), by_release, labelled_for, everyone)


@node_operation
@once_per_run("configurations that no node is labelled for")
def leftovers(desired: AskedRelease, proxy: ProxySettings, everyone: Mapping[str, Settings]) -> Iterator[Any]:
    """Take configurations away that the release had to keep until the nodes were labelled, as `release` does."""
    if not _outlived.of(host.state) or release_waits().steps:
        host.noop("no configuration is left over")
        return
    actual = partial(_nodes, desired, proxy, "the nodes as they are labelled now")
    yield from kept(desired, proxy, actual, by_release, labelled_for, everyone)


@node_operation
@once_per_run("the release of the GPU Operator")
def operator(desired: AskedRelease, proxy: ProxySettings) -> Iterator[Any]:
    """Keep the GPU Operator's release at its chart and values, as `release` keeps the device plugin's."""
    yield from kept(desired, proxy, partial(_nodes, desired, proxy, _NODES), by_operator)


_Nodes = Mapping[str, ClusterNode]


def _nodes(desired: AskedRelease, proxy: ProxySettings, name: str) -> _Nodes:
    return asked_once(name, Cluster(desired.kubernetes, proxy, runner(desired.kubernetes)).nodes)


def kept(
    settings: AskedRelease,
    proxy: ProxySettings,
    nodes: Callable[[], _Nodes],
    labelled: Callable[[_Nodes], Collection[str]],
    in_use: Callable[[_Nodes], Collection[str]] = lambda _: (),
    everyone: Mapping[str, Settings] | None = None,
) -> Iterator[Any]:
    """Yield what keeps a release at its chart and values; raise OperationRefused.

    + labelled: which of them gpunode has labelled for the release
    + in_use: the plugin's configurations that nodes are labelled for, which stay
    + everyone: host -> settings, where a change may restart MPS daemons, whose nodes are drained before
    """
    try:
        actual = nodes()
        session = Session.begun(settings.kubernetes, settings.settings, proxy, runner(settings.kubernetes))
        # As long as a node has an MPS daemon, the release begins none anew by itself.
        by_turns = everyone is not None and bool(with_daemon(actual))
        to_be = node_by_node(settings.values) if by_turns else settings.values
        desired, values, decision = session.decide(to_be, in_use(actual), datetime.now(UTC), bool(labelled(actual)))
        strange = session.unknown_values(desired)
    except (ClusterError, HelmError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    for sentence in strange:
        host.log(f"caution: {settings.settings.component}.values: {sentence}")
    if values != settings.values and is_executing():
        _outlived.set(host.state, True)
    name = f"release {session.name}"
    found = to_carry_out(session, decision, f"{name}: {desired.chart} {desired.version} as desired")
    if found is None:
        return
    for step in found.steps:
        host.log(f"{name}: {step.act}{f' to revision {step.revision}' if step.revision else ''}: {step.reason}")
    there_is = objects(desired.manifest, desired.namespace)
    if told := waiting(there_is, session.commands.helm.version, settings.kubernetes.timeout):
        host.log(f"{name}: {told}")
    if everyone is not None and release_restarts(found):
        cluster = Cluster(settings.kubernetes, proxy, runner(settings.kubernetes))
        if not (yield from _before_restart(cluster, actual, everyone, name)):
            return
    yield FunctionCommand(carry_out, [session, found, values], {})


def _before_restart(
    cluster: Cluster, nodes: Mapping[str, ClusterNode], everyone: Mapping[str, Settings], name: str
) -> Generator[Any, None, bool]:
    """Yield what drains the clients of MPS daemons that a release restarts; return whether it is changed now."""
    restart = restart_of(cluster, with_daemon(nodes), nodes, everyone, name)
    if not may_restart(restart, name):
        return False
    yield from drained(restart, everyone, name)
    return True


def to_carry_out(session: Session, decision: Decision[ReleaseChange], as_desired: str) -> ReleaseChange | None:
    """Return what helm is told; None where all is as desired, which is told. Raise OperationRefused."""
    found = next((step.change for step in decision.steps), None)
    if found is None and decision.refusal is not None:
        raise OperationRefused(f"release {session.name}: {decision.refusal}")
    if found is None:
        host.noop(as_desired)
    return found


def carry_out(state: State, host: Host, session: Session, found: ReleaseChange, values: Mapping[str, Any]) -> bool:
    """Do what is to be done about a release, and tell why it fails."""
    try:
        session.carry_out(found, values)
    except HelmError as error:
        return failed(host, str(error))
    return True


_Leaves = Callable[[Mapping[str, Settings], Mapping[str, ClusterNode], Collection[str]], bool]


@node_operation
@once_per_run("no release of the device plugin")
def absent(cluster_of: Settings, everyone: Mapping[str, Settings]) -> Iterator[Any]:
    """Take the release of the device plugin away where it is gpunode's and no node of the cluster needs it any more.

    + cluster_of: settings of a node of the cluster, which say where it is, and by which name
    + everyone: host -> settings of the whole inventory
    """
    yield from _taken_away(cluster_of, cluster_of.device_plugin, CHART, everyone, release_leaves, by_release)


@node_operation
@once_per_run("no release of the GPU Operator")
def operator_absent(cluster_of: Settings, everyone: Mapping[str, Settings]) -> Iterator[Any]:
    """Take the release of the GPU Operator away, as `absent` takes the device plugin's."""
    desired = cluster_of.gpu_operator
    yield from _taken_away(cluster_of, desired, gpu_operator.CHART, everyone, operator_leaves, by_operator)


def _taken_away(
    cluster_of: Settings,
    desired: ReleaseSettings,
    chart: str,
    everyone: Mapping[str, Settings],
    leaves: _Leaves,
    labelled: Callable[[Mapping[str, ClusterNode]], set[str]],
) -> Iterator[Any]:
    cluster = cluster_for(cluster_of)
    name = f"release {desired.namespace}/{desired.release}"
    try:
        actual, changed = asked_once(_NODES, cluster.nodes), relabelled(everyone)
        if not leaves(everyone, actual, changed):
            others = sorted(labelled(actual) - changed)
            if others:
                host.log(f"{name} stays: {', '.join(others[:5])} labelled for it, and not changed by this run")
            host.noop(f"{name} is none of gpunode's to take away")
            return
        session = Session.begun(cluster.kubernetes, desired, cluster.proxy, cluster.run)
        decision = session.decide_absence(chart, datetime.now(UTC))
    except (ClusterError, HelmError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    found = to_carry_out(session, decision, f"there is no {name}")
    if found is None:
        return
    host.log(f"{name}: {found.steps[0].act}: no node has a device_plugin.method that needs it any more")
    restarts = chart == CHART and release_restarts(found)
    if restarts and not (yield from _before_restart(cluster, actual, everyone, name)):
        return
    yield FunctionCommand(carry_out, [session, found, {}], {})
