"""The service of a container runtime: whether it runs and starts at boot, and why a run does not start it."""

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
_REPAIR = f"look at `journalctl -u {{unit}}` on the node, correct what ends it, `systemctl restart {{unit}}`, and {RUN}"
# What a person does about a service that does not run, or does not start at boot.
MEND_SERVICE = (RUN, _REPAIR, f"{unmask('{unit}')}, and {RUN}")
MEND_BOOT = (RUN, MEND_SERVICE[-1])


@dataclass(frozen=True)
class ServiceVerdict:
    """Whether a service runs, or starts at boot; if not, its cause and remedy."""

    actual: str
    remedy: str = RUN
    cause: str | None = None


def service_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return whether a runtime's unit runs: `running` where it stays up."""
    state = actual.service
    journal = f"; its journal says: {' | '.join(state.said)}" if state.said else ""
    repair = _REPAIR.format(unit=unit)
    if state.restarting:
        times = f", {state.restarts} times so far" if state.restarts > 1 else ""
        return ServiceVerdict(RESTARTING, repair, f"it ends by itself, and systemd starts it again{times}{journal}")
    if actual.active:
        return ServiceVerdict(RUNNING)
    if actual.masked:
        return _masked(unit)
    if state.failed:
        return ServiceVerdict("failed", repair, f"it ended by itself{journal}")
    return ServiceVerdict("stopped")


def boot_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return whether a runtime's unit starts at boot: yes, no or masked."""
    if actual.masked and not actual.enabled:
        return _masked(unit)
    return ServiceVerdict("yes" if actual.enabled else "no")


def _masked(unit: str) -> ServiceVerdict:
    return ServiceVerdict(MASKED, f"{unmask(unit)}, and {RUN}", "it is masked, which forbids to start it")


def masked_refusal(unit: str) -> str:
    """Return why a run does not start a masked unit."""
    remedy = f"undo that by {unmask(unit)}, and {RUN}"
    return f"{unit} is masked, which forbids to start it; nothing was changed. Remedy: {remedy}"


def missing_program(unit: str, binary: str) -> str:
    """Return why a run stops at a unit whose program is missing."""
    return (
        f"{binary}, which the unit {unit} runs, is missing; nothing was changed. Remedy: install its package again, or "
        "correct the unit"
    )


def service_findings(
    unit: str, state: Daemon, runs: FindingMessage, starts: FindingMessage, of: str | None = None
) -> tuple[Finding, Finding]:
    """Return the findings about a unit: whether it runs, and whether it starts at boot."""
    service, boots = service_verdict(unit, state), boot_verdict(unit, state)
    good = service.actual == RUNNING
    return (
        runs.compared(service.actual, RUNNING, good, of=of, cause=service.cause, remedy=service.remedy),
        starts.compared(boots.actual, "yes", state.enabled, of=of, cause=boots.cause, remedy=boots.remedy),
    )


def refused_start(unit: str, runs: Finding, starts: Finding) -> str | None:
    """Return why a run stops at a unit that it would start; None where the unit is not masked."""
    return masked_refusal(unit) if MASKED in (runs.actual, starts.actual) else None


def running_steps(runs: Finding, starts: Finding, waits: str | None = None) -> Iterator[Step[Any]]:
    """Yield the steps that start a service now and at boot; none for a unit that restarts, or is masked.

    waits: why a run does not come to the service
    """
    for item, action in ((runs, "start it"), (starts, "start it at boot")):
        if bad(item) and item.actual not in (RESTARTING, MASKED):
            yield Step(action, (item,), item.disruption or Disruption.nothing, waits)
