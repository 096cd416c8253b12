"""The service of a container runtime: what it does, whether it starts at boot, and why a run does not start it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpunode.base.comparison import RUN, FindingMessage
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.system.service import RESTARTING, Daemon, unmask

RUNNING, MASKED = "running", "masked"
_MEND = f"look at `journalctl -u {{unit}}` on the node, mend what ends it, `systemctl restart {{unit}}`, and {RUN}"
# What a person does about a service that does not run, or does not start at boot.
MEND_SERVICE = (RUN, _MEND, f"{unmask('{unit}')}, and {RUN}")
MEND_BOOT = (RUN, MEND_SERVICE[-1])


@dataclass(frozen=True)
class ServiceVerdict:
    """Hold what a service does, or whether it starts at boot; where that is not as it should be, why and what to do."""

    actual: str
    remedy: str = RUN
    cause: str | None = None


def service_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return what a runtime's unit does: `running` where it runs and stays up."""
    service = actual.service
    said = f"; its journal says: {' | '.join(service.said)}" if service.said else ""
    mend = _MEND.format(unit=unit)
    if service.restarting:
        times = f", {service.restarts} times so far" if service.restarts > 1 else ""
        return ServiceVerdict(RESTARTING, mend, f"it ends by itself, and systemd starts it again{times}{said}")
    if actual.active:
        return ServiceVerdict(RUNNING)
    if actual.masked:
        return _masked(unit)
    return ServiceVerdict("failed", mend, f"it ended by itself{said}") if service.failed else ServiceVerdict("stopped")


def boot_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return whether a runtime's unit starts at boot: yes, no or masked."""
    if actual.masked and not actual.enabled:
        return _masked(unit)
    return ServiceVerdict("yes" if actual.enabled else "no")


def _masked(unit: str) -> ServiceVerdict:
    return ServiceVerdict(MASKED, f"{unmask(unit)}, and {RUN}", "somebody masked it, which forbids to start it")


def masked_refusal(unit: str) -> str:
    """Return why a run starts no unit that somebody masked: that is no fault of what is desired."""
    return (
        f"{unit} is masked: somebody forbade that it is started; nothing was changed"
        f". Remedy: undo that by {unmask(unit)}, and {RUN}"
    )


def missing_program(unit: str, binary: str) -> str:
    """Return why a run stops at a unit whose program is missing."""
    return (
        f"{binary}, which the unit {unit} runs, is missing; nothing was changed. Remedy: install its package again, or "
        "correct the unit"
    )


def service_findings(
    unit: str, state: Daemon, runs: FindingMessage, starts: FindingMessage, of: str | None = None
) -> tuple[Finding, Finding]:
    """Return whether a unit runs, and whether it starts at boot, as findings of these declarations."""
    service, boots = service_verdict(unit, state), boot_verdict(unit, state)
    good = service.actual == RUNNING
    return (
        runs.compared(service.actual, RUNNING, good, of=of, cause=service.cause, remedy=service.remedy),
        starts.compared(boots.actual, "yes", state.enabled, of=of, cause=boots.cause, remedy=boots.remedy),
    )


def refused_start(unit: str, runs: Finding, starts: Finding) -> str | None:
    """Return why a run stops where it is to have a unit run; None where nobody masked it."""
    return masked_refusal(unit) if MASKED in (runs.actual, starts.actual) else None


def running_steps(runs: Finding, starts: Finding, waits: str | None = None) -> Iterator[Step[Any]]:
    """Yield the steps that have a service run now and at boot.

    One that systemd starts over and over is started, and one that is masked is a person's to unmask.

    waits: why a run does not come to it
    """
    for item, action in ((runs, "start it"), (starts, "start it at boot")):
        if bad(item) and item.actual not in (RESTARTING, MASKED):
            yield Step(action, (item,), item.disruption or Disruption.nothing, waits)
