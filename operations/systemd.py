"""systemd units, judged from one reading; pyinfra's own starts oneshots, aliases and targets on every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.system import Unit
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.phase import is_image
from gpunode.operations.script import script_command
from gpunode.system.service import masked_refusal

_RUN = script_file("service_state", "service_run")


@node_operation
def at_boot(unit: str) -> Iterator[Any]:
    """Keep a unit enabled, whether it runs now or not.

    + unit: the unit's full name
    """
    yield from _kept(unit, start=False)


@node_operation
def running(unit: str) -> Iterator[Any]:
    """Keep a unit running and started at boot; in an image, started at boot.

    + unit: the unit's full name, such as containerd.service
    """
    yield from _kept(unit, start=not is_image())


def _kept(unit: str, start: bool) -> Iterator[StringCommand]:
    present = read_fact(Unit, unit, unit=unit)
    steps = []
    if not present.enabled:
        steps.append("enable")
    if start and not present.running:
        steps.append("start")
    if not steps:
        host.noop(f"{unit} runs and starts at boot" if start else f"{unit} starts at boot")
        return
    if present.masked:
        raise OperationRefused(masked_refusal(unit))
    if is_image():
        yield StringCommand("systemctl", "enable", "--quiet", QuoteString(unit))
        return
    yield script_command(_RUN, unit=unit, steps=" ".join(steps))
