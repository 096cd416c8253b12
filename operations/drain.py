"""A node of a Kubernetes cluster, drained before the first step of a run that its pods would feel, and given back last.

A node is drained once for all of a run's steps, and stays cordoned until the verdict found it well: `drain_before`
stands before each such step, and finds the node empty after the first. Where a step fails, nothing more is run on the
node, and it stays cordoned; the next run goes on with that, by the annotation, and gives it back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State
from pyinfra.api.state import BaseStateCallback

from gpunode.base.run_context import WAVE, Slot
from gpunode.facts.system import RunningBoot as RunningBootFact
from gpunode.fleet import run_end
from gpunode.fleet.run.events import stops
from gpunode.kubernetes.drain.commands import Drain
from gpunode.kubernetes.drain.session import DrainError, Session
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.cordon import left_by_run
from gpunode.operations.control_plane import runner
from gpunode.operations.failure import OperationRefused, failed, node_operation, read_fact
from gpunode.operations.phase import is_executing


class _Run(BaseStateCallback):
    """Hold the nodes that a run had to empty, and those that it cordoned, and note in the cluster what failed on one.

    A node whose pods all stay is cordoned, too, and is none of those that are held empty.
    """

    def __init__(self) -> None:
        self.emptied: set[str] = set()
        self.cordoned: set[str] = set()
        self.sessions: dict[str, Session] = {}

    def operation_host_error(  # type: ignore[override]
        self, state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Have the annotation tell why the node stays cordoned; pyinfra asks an operation that failed nothing more."""
        session = self.sessions.get(host.name)
        if session is None or not stops(state, host, op_hash):
            return
        try:
            session.failed(f"this failed on it: {', '.join(sorted(state.get_op_meta(op_hash).names))}")
        except DrainError as error:
            host.log(f"the annotation does not tell why the node stays cordoned: {error}")


_runs = Slot(_Run)


def _run(state: State) -> _Run:
    run = _runs.of(state)
    if run not in state.callback_handlers:
        state.add_callback_handler(run)
    return run


def drain_before(drain: Drain | None, reason: str) -> Iterator[Any]:
    """Yield what cordons the node and evicts its pods, before a step that they would feel.

    Raise OperationRefused where the cluster cannot be asked, or has enough empty nodes; nothing has been changed then.

    + drain: how; None where the node is in no cluster, or the settings ask for no drain
    + reason: the step, as `containerd is to be restarted`
    """
    if drain is None:
        return
    session = _session(drain)
    try:
        cordon = session.cordon()
        leaving = session.leaving() if cordon is not None else ()
        if leaving and cordon is not None and is_executing():
            _count(drain, reason, session, cordon)
    except DrainError as error:
        raise OperationRefused(f"not drained, and nothing was changed: {reason}, but {error}") from None
    if cordon is None:
        host.log(f"nothing is drained: the cluster has no node {session.node}")
        return
    host.log(f"drains node {session.node}, {len(leaving)} pods: {reason}")
    yield FunctionCommand(_empty, [session, reason, cordon.is_held_back], {})


def held_empty(cordoned: set[str], in_wave: bool) -> set[str]:
    """Return the nodes that count as held empty: those of this run, and those that an earlier one left.

    + cordoned: the nodes that gpunode has cordoned, in whichever run
    + in_wave: a wave of a rollout counts its own alone
    """
    run = _run(host.state)
    return run.emptied | (set() if in_wave else cordoned - run.cordoned)


@node_operation
def uncordon(drain: Drain) -> Iterator[Any]:
    """Lift gpunode's cordon, of this run or an earlier one, once the node is Ready; any other cordon stays.

    Call it when the node has been found well, and last.
    """
    yield from given_back(drain)


def given_back(drain: Drain) -> Iterator[Any]:
    """Yield what lifts gpunode's cordon, as `uncordon` does; raise OperationRefused where the cluster does not say."""
    boot = read_fact(RunningBootFact, "which boot is running")
    session = _session(drain)
    try:
        cordon = session.cordon()
    except DrainError as error:
        raise OperationRefused(str(error)) from None
    if cordon is None or cordon.note is None:
        actual = "is not cordoned by gpunode" if cordon is not None else "is none of the cluster's"
        host.noop(f"node {session.node} {actual}")
        return
    yield FunctionCommand(_give_back, [session, boot.boot_id], {})


def _session(drain: Drain) -> Session:
    return Session(drain, runner(drain.kubernetes))


def _count(drain: Drain, reason: str, session: Session, cordon: ClusterNode) -> None:
    """Take the node for one of those that are held empty; refuse one more than may be.

    Those count that an earlier run left cordoned, but for the node itself, which is none more. A wave of a rollout
    bounds this by itself: its nodes are unavailable together anyway, and those that failed before it have a budget.
    """
    held, cordoned = _run(host.state).emptied, _run(host.state).cordoned
    if session.node in held:
        return
    wave = os.environ.get(WAVE, "")
    most = max(drain.at_once, int(wave) if wave.isdecimal() else 0)
    left = set() if wave or cordon.is_held_back else session.held_back() - held - cordoned - {session.node}
    if len(held) + len(left) >= most:
        told = [f"{', '.join(sorted(held))} of this run, until its verdict"] if held else []
        told += [f"{', '.join(sorted(left))} since an earlier run, which did not give it back"] if left else []
        raise OperationRefused(
            f"not drained, and nothing was changed: {reason}, but gpunode holds empty {'; '.join(told)}, and "
            f"disruption.max_parallel is {drain.at_once}. Remedy: run again when these are well (`kubectl uncordon` "
            "gives one back as it is), take the nodes in waves (`gpunode rollout`), or allow more"
        )
    held.add(session.node)


def _empty(state: State, host: Host, session: Session, reason: str, by_earlier: bool) -> bool:
    _run(state).sessions[host.name] = session
    # Before the request: another host may ask at once which nodes are cordoned.
    if not by_earlier:
        _run(state).cordoned.add(session.node)
    try:
        session.empty(reason)
    except DrainError as error:
        return failed(host, str(error))
    run_end.note(host, cordon=left_by_run(session.node, reason))
    return True


def _give_back(state: State, host: Host, session: Session, boot_id: str) -> bool:
    try:
        lifted = session.give_back(boot_id)
    except DrainError as error:
        return failed(host, str(error))
    _run(state).emptied.discard(session.node)
    _run(state).cordoned.discard(session.node)
    _run(state).sessions.pop(host.name, None)
    run_end.note(host, cordon=None)
    host.log(f"node {session.node} takes pods again" if lifted else f"the cordon of {session.node} is not gpunode's")
    return True
