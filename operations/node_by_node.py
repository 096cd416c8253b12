"""A release that leaves its pods as they are (OnDelete), brought to one node after the other.

A node has its turn alone: it is drained where an MPS daemon with clients is to restart, gets its labels, its pods are
removed, and once they are back, and the daemons say what the settings ask, it is given back. Where that fails on one
node, the others are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import Any

from gevent.lock import BoundedSemaphore  # type: ignore[import-untyped]
from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State

from gpunode.base.decision import Decision
from gpunode.base.folding import in_one_line
from gpunode.base.reading import ParseError
from gpunode.base.run_context import Slot
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import PluginMps as PluginMpsFact
from gpunode.fleet.shared_readings import snapshot
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_pods import decide_outdated, restarts_daemon, still_coming
from gpunode.kubernetes.device_plugin.decide_restart import decide_label, label_restarts
from gpunode.kubernetes.device_plugin.judge_mps import judge_mps
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.drain.commands import drain_of
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import LabelChange
from gpunode.operations.control_plane import answered, told
from gpunode.operations.drain import given_back
from gpunode.operations.failure import OperationRefused, failed, read_fact
from gpunode.operations.mps_clients import drained, may_restart, release_waits, restart_of
from gpunode.operations.phase import is_executing
from gpunode.operations.shared_once import watched
from gpunode.settings import Settings

# Seconds between two looks at what was removed and comes again.
_PAUSE = 1.0


@dataclass
class _Turns:
    """Hold which host has its turn in a run, and the first one that failed in its own."""

    lock: Any = field(default_factory=lambda: BoundedSemaphore(1))
    at_it: str | None = None
    failed: str | None = None

    def begin(self, name: str) -> None:
        """Wait for the turn of a host."""
        self.lock.acquire()
        self.at_it = name

    def end(self, name: str, failed: bool = False) -> None:
        """End the turn of a host, which may have ended already."""
        if self.at_it == name:
            self.failed = self.failed or (name if failed else None)
            self.at_it = None
            self.lock.release()


_turns = Slot(_Turns)


@dataclass(frozen=True)
class Change:
    """Hold what is to be done about a node.

    name: in the cluster; labels: what is to be done about its labels, None for nothing; label: does it
    """

    settings: Settings
    cluster: Cluster
    name: str
    labels: LabelChange | None
    label: Callable[[], None]

    def decide(self, node: ClusterNode, view: View) -> Decision[tuple[str, ...]]:
        """Return which pods on the node begin anew."""
        return decide_outdated(self.settings, node, view, self.labels)

    def is_to_begin_anew(self, view: View) -> bool:
        """Say whether pods on the node begin anew, or whether an earlier run was cut off in the node's turn."""
        node = view.nodes.get(self.name)
        return node is not None and (bool(self.decide(node, view).steps) or was_cut_off(node))


def reason_of(node: str) -> str:
    """Return for what a node is drained in its turn, as its annotation has it: nothing else is drained for that."""
    return f"the MPS daemon of {node} is to restart in the node's turn"


def was_cut_off(node: ClusterNode) -> bool:
    """Say whether an earlier run was cut off in the node's turn: gpunode holds it empty for that alone.

    One that was emptied for anything else waits for its verdict, whatever its turn finds.
    """
    return node.is_held_back and node.note is not None and node.note.reason == reason_of(node.name)


def begun_anew(change: Change, view: View) -> Iterator[Any]:
    """Yield what brings labels and pods of a node to what is desired, in the node's turn; raise OperationRefused.

    + view: the cluster's, as it was read for all hosts; a run that is carried out looks at the node again in its turn
    """
    if not is_executing():
        yield from _steps(change, view)
        return
    turns, name = _turns.of(host.state), host.name
    turns.begin(name)
    begun = False
    try:
        if turns.failed is not None:
            raise OperationRefused(
                f"the plugin's pods on {change.name} stay as they are: the release came to {turns.failed} before, and "
                "that failed. Remedy: see what is reported of it, and run again"
            )
        for command in _steps(change, _seen_now(change)):
            begun = True
            # pyinfra asks for nothing more behind a command that fails.
            yield FunctionCommand(watched, [command, partial(turns.end, name, True)], {})
    except OperationRefused:
        turns.end(name, failed=begun)
        raise
    finally:
        turns.end(name)


def _seen_now(change: Change) -> View:
    cluster, namespace = change.cluster, change.settings.device_plugin.namespace
    return answered(
        f"the plugin's pods on {change.name}",
        lambda: cluster.with_revisions(cluster.view_of_node(change.name, namespace), namespace),
    )


def _steps(change: Change, view: View) -> Iterator[Any]:
    settings, cluster, name, what = change.settings, change.cluster, change.name, f"the plugin's pods on {change.name}"
    node = view.nodes.get(name)
    if node is None:
        raise OperationRefused(f"the cluster has no node {name} any more. Remedy: let it join it, and run again")
    names = next((step.change or () for step in change.decide(node, view).steps), ())
    labels_restart = change.labels is not None and label_restarts(change.labels, node)
    restarting = (name,) if labels_restart or restarts_daemon(names, view) else ()
    # Whoever else is held empty counts, as it is by now.
    nodes = answered("the cluster's nodes", cluster.nodes) if restarting and is_executing() else view.nodes
    own = restart_of(cluster, restarting, nodes, {host.name: settings}, what)
    restart = own if change.labels is None else decide_label(own, release_waits(), change.labels)
    if not may_restart(restart, what, name):
        return
    # One that is empty for something else stays so until the verdict.
    held_for = node.note.reason if node.is_held_back and node.note is not None and not was_cut_off(node) else None
    gives_back = held_for is None
    yield from drained(own, {host.name: settings}, what, held_for or reason_of(name))
    if change.labels is not None:
        yield told(change.label)
    if names:
        host.log(f"{what}: {', '.join(names)} to begin anew, by the release as it is now")
        yield told(partial(cluster.remove_pods, settings.device_plugin.namespace, names))
    yield told(partial(_back, settings, cluster, name, names))
    if settings.sharing.strategy == "mps":
        yield FunctionCommand(_limits_read_back, [settings], {})
    drain = drain_of(host.name, settings)
    if gives_back and drain is not None and (own.steps or was_cut_off(node)):
        yield from given_back(drain)


def _back(settings: Settings, cluster: Cluster, name: str, removed: tuple[str, ...]) -> None:
    """Wait until the node's pods are back; raise ClusterError where they are not in time."""
    namespace, began = settings.device_plugin.namespace, monotonic()
    while reason := _not_back(settings, cluster, name, removed):
        if monotonic() - began >= settings.kubernetes.timeout:
            raise ClusterError(
                f"after {settings.kubernetes.timeout} s (kubernetes.timeout) the plugin's pods are not back on {name}: "
                f"{reason}\nsee `kubectl --namespace {namespace} describe pods`, and the pod's log; no other node was "
                "touched after this one"
            )
        sleep(_PAUSE)


def _not_back(settings: Settings, cluster: Cluster, name: str, removed: tuple[str, ...]) -> str | None:
    try:
        view = cluster.view_of_node(name, settings.device_plugin.namespace)
        return next(still_coming(settings, name, view, removed), None)
    except (ClusterError, ParseError) as error:
        # An API server may begin anew meanwhile: the node's pods are no worse for that.
        return f"the cluster does not tell: {in_one_line(error)}"


def _limits_read_back(state: State, host: Host, settings: Settings) -> bool:
    """Wait until the node's MPS daemons say what the settings ask; say what they do not, where that takes too long."""
    began = monotonic()
    while wrong := _not_read_back(host, settings):
        if monotonic() - began >= settings.kubernetes.timeout:
            return failed(host, "\n".join(wrong))
        sleep(_PAUSE)
    return True


def _not_read_back(host: Host, settings: Settings) -> list[str]:
    snapshot(host).forget()
    try:
        mps = read_fact(PluginMpsFact, "the MPS daemons of the device plugin")
        gpus = read_fact(GpusFact, "GPUs")
    except OperationRefused as unknown:
        # A daemon that begins may keep who asks it waiting.
        return [str(unknown)]
    wrong = (item for item in judge_mps(settings, mps, gpus) if item.is_negative)
    return [f"{item.what} is {item.actual}, desired {item.desired}: {item.remedy}" for item in wrong]
