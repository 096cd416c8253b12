"""DCGM's services: stopped for good where gpunode ran them, run by their drop-ins, the GPUs' health watched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.components.dcgm.decide import Change, Desired, decide, gone
from gpunode.components.dcgm.state import FILES
from gpunode.facts.gpu import Dcgm as DcgmFact
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.own_files import keeps
from gpunode.operations.script import script_command


@node_operation
def services(desired: Desired) -> Iterator[Any]:
    """Stop what is not desired any more, have the exporter run by its drop-in, and the GPUs' health watched.

    Of a service that others run, and gpunode was never asked for, nothing is done.
    """
    state = read_fact(DcgmFact, "the state of DCGM")
    decision, going = decide(desired, state), gone(desired, state)
    if decision.refusal is not None:
        raise OperationRefused(f"dcgm: nothing was changed: {decision.refusal}")
    for unit, path in FILES.items():
        if unit not in desired.units:
            keeps(path, None)
    changes = [step.change for step in decision.steps if isinstance(step.change, Change)]
    if not changes and not going:
        units = " and ".join(desired.units)
        host.noop(f"{units} run as desired" if units else "gpunode runs nothing of DCGM")
        return
    yield script_command(
        script_file("service_state", "dcgm"),
        stopped=" ".join(change.unit for change in changes if change.what == "remove"),
        removed=" ".join(FILES[unit] for unit in going),
        restart=" ".join(change.unit for change in changes if change.what == "restart"),
        watch="yes" if any(change.what == "watch" for change in changes) else "",
    )
