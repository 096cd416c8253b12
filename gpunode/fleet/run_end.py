"""What a run of pyinfra's own command line learns of its hosts, and the verdict that it ends with.

pyinfra 3.10 ends with a table of operations, which says nothing of the nodes, and with none where no host is left: of
hosts of which none connects it says no more than "No hosts remaining!".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click
from pyinfra import logger
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State, StateStage

from gpunode.base.errors import in_words
from gpunode.base.findings import Finding
from gpunode.base.folding import NARROWEST, UNBOUND
from gpunode.base.messages import Scope
from gpunode.base.run_context import FAILURE_REASONS, Slot
from gpunode.base.terminal import logged
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.fleet.access import connecting, errors
from gpunode.fleet.call import Call, told_call
from gpunode.fleet.reports.run_end import Failure, HostEnd, refusal_finding, verdict_text
from gpunode.fleet.run import events
from gpunode.fleet.run.events import is_part, stops
from gpunode.settings import overrides

# Characters of an error that is told as the cause.
_MOST = 300
# What pyinfra's command line may be asked for that is no deploy.
_NO_DEPLOY = ("debug-inventory", "fact", "exec")


@dataclass
class _Known:
    """What is known of a host so far."""

    end: HostEnd | None = None
    # Whether a deploy of gpunode's had a say: what others do with pyinfra has its own end.
    ours: bool = False


_known = Slot(_Known)
# What the verdict finds of a run's cluster; None where nothing was judged of it.
_cluster: Slot[HostEnd | None] = Slot(lambda: None)


class Watcher(BaseStateCallback):
    """Note which hosts are not reached, and which operation fails on which host."""

    @staticmethod
    def host_connect_error(state: State, host: Host, error: ConnectError) -> None:
        _note(host, unreached=str(error))

    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Note the operation that failed, with what it said itself."""
        if stops(state, host, op_hash):
            name = next(iter(sorted(state.get_op_meta(op_hash).names)), "an operation")
            _note(host, failure=Failure(name, "\n".join(FAILURE_REASONS.of(host))))
        elif not is_part(state, host, op_hash):
            FAILURE_REASONS.of(host).clear()

    @staticmethod
    def operation_host_retry(state: State, host: Host, op_hash: str, retry_num: int, max_retries: int) -> None:
        """Forget what the attempt said that failed: there is another one (pyinfra's --retry)."""
        FAILURE_REASONS.of(host).clear()

    @staticmethod
    def operation_host_success(state: State, host: Host, op_hash: str, retry_count: int = 0) -> None:
        """Forget what was said on the way by something that this operation did not fail by."""
        FAILURE_REASONS.of(host).clear()


def watch(state: State) -> None:
    """Have a run's hosts watched."""
    state.add_callback_handler(Watcher())
    if events.EVENTS in os.environ:
        state.add_callback_handler(events.Teller())


def takes_part(host: Host) -> None:
    """Note that a deploy of gpunode's is to say something of this host."""
    _known.of(host).ours = True
    events.tell("judged", host=host.name)


def refused(host: Host, reasons: Iterable[Refusal | str]) -> None:
    """Note why preflight refuses a host."""
    _note(host, refused=tuple(map(_finding_of, reasons)))


def left_alone(host: Host, reason: str) -> None:
    """Note why nothing is done to a host."""
    _note(host, left_alone=reason)


def unverified(host: Host, reason: str) -> None:
    """Note why the run comes to no verdict on a host, though it does all that is asked."""
    _note(host, unverified=reason)


def judged(host: Host, findings: Iterable[Finding]) -> None:
    """Note the verdict's findings on a host; those on its cluster come behind those on the node."""
    _note(host, findings=(*(_end(host).findings or ()), *findings))


def cluster_judged(state: State, name: str, findings: Iterable[Finding]) -> None:
    """Note the verdict's findings on the cluster: each once, as it was found last."""
    before = _cluster.of(state)
    every = (*((before.findings if before else None) or ()), *findings)
    found = {(item.component, item.what): item for item in every}
    _cluster.set(state, HostEnd(name, findings=tuple(found.values()), scope=Scope.CLUSTER))


def tell(state: State) -> None:
    """Log the verdict of a run that was carried out, where gpunode had a part in it: the last that a person reads.

    So is one logged that ended while it connected, with no host left or too few (pyinfra's --fail-percent).
    """
    hosts = [host for host in state.inventory if state.is_host_in_limit(host)]
    began = state.current_stage >= StateStage.Execute and any(_known.of(host).ours for host in hosts)
    _note_broken(state, hosts)
    unconnected = state.current_stage == StateStage.Connect and any(_end(host).unreached for host in hosts)
    if not began and not (unconnected and _is_asked_for()):
        return
    _note_cut_off(state, hosts)
    # Of a host that was not reached no deploy could say whether it takes part.
    ends = [_end(host) for host in hosts if _known.of(host).ours or unconnected or _end(host).unreached is not None]
    if (cluster := _cluster.of(state)) is not None:
        ends.append(cluster)
    events.tell("ended", hosts=[end.to_json() for end in ends])
    columns = max(NARROWEST, get_terminal_size((100, 24)).columns) if sys.stderr.isatty() else UNBOUND
    logger.info("--> Verdict:")
    for line in verdict_text(ends, columns, _call(hosts)).splitlines():
        logger.info(logged(line))


def _note_broken(state: State, hosts: Iterable[Host]) -> None:
    """Note the hosts that failed because the connection to them broke, and during what."""
    for host in hosts:
        if host in state.failed_hosts and connecting.is_broken(host.connector):
            failure = _end(host).failure
            step = f"during “{failure.operation}”" if failure else "while the node was read"
            _note(host, unreached=errors.broken(step))


def _note_cut_off(state: State, hosts: Iterable[Host]) -> None:
    """Note the hosts that were in the midst of a run which ended by something that is no host's own failure."""
    # pyinfra is through with the operations when it sets the next stage; it disconnects whatever ended it.
    if state.current_stage not in (StateStage.Connect, StateStage.Execute):
        return
    for host in hosts:
        if host in state.active_hosts and _end(host).left_alone is None:
            _note(host, cut_off=f"pyinfra ended before its last operation: {_what_ended_it()}")


def _is_asked_for() -> bool:
    """Say whether pyinfra's command line asks for a deploy of gpunode's, of which none could say so itself yet."""
    context = click.get_current_context(silent=True)
    words = tuple(map(str, context.params.get("operations") or ())) if context else ()
    if not words or words[0] in _NO_DEPLOY:
        return False
    # A file, or the module of a function: deploys/gpu_node.py, deploys.drain.uncordon.
    files = words if words[0].endswith(".py") else (f"{words[0].rpartition('.')[0].replace('.', '/')}.py",)
    return any(_names_gpunode(Path(file)) for file in files)


def _names_gpunode(file: Path) -> bool:
    try:
        return "gpunode" in file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _what_ended_it() -> str:
    """Return what is on its way through pyinfra's own `finally`."""
    error = sys.exc_info()[1]
    # The command line's own errors hold what they are about.
    error = getattr(error, "exception", error)
    if error is None or isinstance(error, SystemExit | KeyboardInterrupt):
        return "it was interrupted"
    return in_words(error)[:_MOST]


def _call(hosts: Iterable[Host]) -> Call:
    """Return how the run was called: by a command of gpunode's that says so, or by pyinfra's own command line."""
    if (told := told_call(os.environ)) is not None:
        return told
    context = click.get_current_context(silent=True)
    words = context.params if context else {}
    # gpunode's commands have no --exclude: the hosts that were left stand by their names.
    limit = [escape(host.name) for host in hosts] if words.get("exclude") else words.get("limit") or ()
    return Call(str(words.get("inventory") or "") or None, tuple(limit), overrides.shown())


def _end(host: Host) -> HostEnd:
    return _known.of(host).end or HostEnd(host.name)


def _note(host: Host, **found: Any) -> None:
    _known.of(host).end = replace(_end(host), **found)


NOT_JUDGED = RefusalMessage(
    "not-judged",
    "Preflight could not judge the node.",
    component="node",
    source="the answer of the node or the cluster",
    detail="The node, or the cluster that must be asked first, did not answer.",
    remedies=("look at the node, or at what the cause names",),
)


def _finding_of(reason: Refusal | str) -> Finding:
    if isinstance(reason, Refusal):
        return refusal_finding(reason)
    cause, remedy = errors.parted(reason)
    return refusal_finding(NOT_JUDGED(reason=cause, remedy=remedy or "look at the node"))
