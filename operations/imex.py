"""A node in an IMEX domain: its list of nodes, and nvidia-imex, stopped on all nodes before it reads a new one.

Two operations, between which pyinfra waits for all hosts: a daemon with a new list that meets one with the old blocks
it for good. Whatever is cut off between them, the next run finds by the node's state alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.base.disruption import Disruption, Drain
from gpunode.base.shell_file import script_file
from gpunode.components.driver.state import DriverState
from gpunode.components.imex.decide import Desired, ImexChange, decide, text_of
from gpunode.components.imex.state import RECORD, Imex
from gpunode.facts.cluster import Imex as ImexFact
from gpunode.facts.driver import Driver
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.files import write_command
from gpunode.operations.own_files import keeps, keeps_all
from gpunode.operations.phase import is_executing
from gpunode.operations.runtime import to_carry_out
from gpunode.operations.script import script_command
from gpunode.settings.imex import ImexSettings, known

_STOP, _START = script_file("imex_stop"), script_file("service_state", "imex_start")
_WAITING = "the node's IMEX is to change"


@node_operation
def nodes(settings: ImexSettings, allowed: str, comes: bool, drain: Drain | None = None) -> Iterator[Any]:
    """Keep the list of the domain's nodes, with nvidia-imex stopped where it changes; switched off: all of that goes.

    + allowed: disruption.allow: below `restart` a running daemon is left as it is
    + comes: whether nvidia-imex comes with the driver in this run
    """
    desired = Desired(settings, Disruption[allowed], comes)
    state = _state(desired)
    if state is None:
        yield StringCommand("true")  # a forecast: nvidia-imex comes with an operation before this one
        return
    imex, driver = state
    path, text = known().nodes_file, text_of(settings) if settings.enabled else None
    if text is not None and imex.nodes == text:
        keeps_all({path: text})
    said = f"{path} has the domain's nodes" if settings.enabled else "no IMEX domain of gpunode's"
    change = to_carry_out(decide(desired, imex, driver), said, _WAITING)
    if change is None:
        return
    if change.removes:
        keeps(path, None)
    elif change.text is None and not change.stop:
        host.noop(said)
        return
    if drain is not None and change.stop and imex.unit is not None and imex.unit.active:
        yield from drain("nvidia-imex is to be stopped")
    yield from _changes(change, path)


def _changes(change: ImexChange, path: str) -> Iterator[Any]:
    if change.stop or change.removes:
        yield script_command(
            _STOP,
            unit=known().unit,
            disable="yes" if change.removes else "",
            nodes=path,
            record=RECORD if change.removes else "",
        )
    if change.text is not None:
        keeps(path, change.text)
        # First what says whose it is: a list without it would stay for ever.
        yield write_command(RECORD, change.text)
        yield write_command(path, change.text)


@node_operation
def running(settings: ImexSettings, allowed: str, comes: bool) -> Iterator[Any]:
    """Keep nvidia-imex running and started at boot, and wait for it and for its domain where it was started.

    + allowed, comes: as of `nodes`
    """
    desired = Desired(settings, Disruption[allowed], comes)
    state = _state(desired)
    if state is None:
        yield StringCommand("true")  # a forecast, as in `nodes`
        return
    imex, driver = state
    said = "nvidia-imex runs, and starts at boot"
    change = to_carry_out(decide(desired, imex, driver), said, _WAITING)
    if change is None:
        return
    if driver.reboot_pending:
        if imex.unit is not None and not imex.unit.enabled:
            yield StringCommand("systemctl", "enable", "--quiet", QuoteString(known().unit))
        else:
            host.noop("reboot pending: nvidia-imex would not start with the module that is loaded")
        return
    yield script_command(
        _START,
        unit=known().unit,
        ready=known().ready,
        up=known().up,
        ready_seconds=known().ready_seconds,
        domain_seconds=known().domain_seconds,
    )


def _state(desired: Desired) -> tuple[Imex, DriverState] | None:
    """Return what the node is; None where nvidia-imex is yet to come, which in execution is an error."""
    imex = read_fact(ImexFact, "the state of IMEX")
    driver = read_fact(Driver, "the driver's state")
    if not desired.settings.enabled or imex.unit is not None:
        return imex, driver
    if is_executing():
        raise OperationRefused(
            "imex: nvidia-imex is not installed; it comes with the driver of NVIDIA's repository, for GPUs whose "
            "NVLink reaches other machines; nothing was changed. Remedy: install it at the driver's version, or set "
            "imex.enabled = False"
        )
    return None
