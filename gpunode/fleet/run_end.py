"""What a run of pyinfra's own command line learns of its hosts, and the verdict that it ends with.

pyinfra 3.10 ends with a table of operations, which says nothing of the nodes, and with none where no host is left.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from shutil import get_terminal_size
from typing import Any
from weakref import WeakKeyDictionary

import click
from pyinfra import logger
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State, StateStage

from gpunode.base.codes import preflight
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.terminal import logged
from gpunode.base.verdicts import Refusal
from gpunode.fleet.access import errors
from gpunode.fleet.reports.findings_text import NARROWEST, UNBOUND
from gpunode.fleet.reports.run_end import Failure, HostEnd, refusal_finding, verdict_text
from gpunode.fleet.run import events


@dataclass
class _Known:
    """Hold what is known of a host so far; `reasons`: what the operation said that is about to fail."""

    end: HostEnd
    reasons: list[str] = field(default_factory=list)
    # Whether a deploy of gpunode's had a say: what others do with pyinfra has its own end.
    ours: bool = False


_hosts: WeakKeyDictionary[Host, _Known] = WeakKeyDictionary()


class Watcher(BaseStateCallback):
    """Note which hosts are not reached, and which operation fails on which host."""

    @staticmethod
    def host_connect_error(state: State, host: Host, error: ConnectError) -> None:
        """Note why there is no connection."""
        _note(host, unreached=str(error))

    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Note the operation that failed, with what it said itself."""
        name = next(iter(sorted(state.get_op_meta(op_hash).names)), "an operation")
        _note(host, failure=Failure(name, "\n".join(_of(host).reasons)))


def watch(state: State) -> None:
    """Have a run's hosts watched."""
    state.add_callback_handler(Watcher())
    if events.EVENTS in os.environ:
        state.add_callback_handler(events.Teller())


def takes_part(host: Host) -> None:
    """Note that a deploy of gpunode's is to say something of this host."""
    _of(host).ours = True
    events.tell("judged", host=host.name)


def refused(host: Host, reasons: Iterable[Refusal | str]) -> None:
    """Note why preflight refuses a host."""
    _note(host, refused=tuple(map(_finding_of, reasons)))


def left_alone(host: Host, reason: str) -> None:
    """Note why nothing is done to a host."""
    _note(host, left_alone=reason)


def said(host: Host, reason: str) -> None:
    """Note what an operation says that is about to fail."""
    _of(host).reasons.append(reason)


def judged(host: Host, findings: Iterable[Finding]) -> None:
    """Note the verdict's findings on a host; those on its cluster come behind those on the node."""
    _note(host, findings=(*(_of(host).end.findings or ()), *findings))


def tell(state: State) -> None:
    """Log the verdict of a run that was carried out, where gpunode had a part in it: the last that a person reads."""
    hosts = [host for host in state.inventory if state.is_host_in_limit(host)]
    known = [_of(host) for host in hosts]
    if state.current_stage < StateStage.Execute or not any(each.ours for each in known):
        return
    events.tell("ended", hosts=[each.end.to_json() for each in known])
    context = click.get_current_context(silent=True)
    inventory = str((context.params.get("inventory") if context else None) or "INVENTORY")
    columns = max(NARROWEST, get_terminal_size((100, 24)).columns) if sys.stderr.isatty() else UNBOUND
    logger.info("--> Verdict:")
    for line in verdict_text([each.end for each in known], columns, inventory).splitlines():
        logger.info(logged(line))


def _of(host: Host) -> _Known:
    if host not in _hosts:
        _hosts[host] = _Known(HostEnd(host.name))
    return _hosts[host]


def _note(host: Host, **found: Any) -> None:
    known = _of(host)
    known.end = replace(known.end, **found)


def _finding_of(reason: Refusal | str) -> Finding:
    if isinstance(reason, Refusal):
        return refusal_finding(reason)
    cause, remedy = errors.parted(reason)
    remedy = remedy or "look at the node"
    return Finding(
        "node", FindingClass.UNSUPPORTED, "preflight", cause=cause, remedy=remedy, code=preflight("not-judged")
    )
