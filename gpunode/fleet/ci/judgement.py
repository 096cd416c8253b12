"""What a CI job's report says of machines that were waited for. Pure: outcomes in, a finding for each out."""

from __future__ import annotations

from collections.abc import Mapping

from gpunode.base.findings import Finding, FindingClass
from gpunode.system.readiness import Outcome, Stage

_COMPONENT, _WHAT = "machine", "came up"


def came_up(outcomes: Mapping[str, Outcome], seconds: float) -> dict[str, Finding]:
    """Return a finding per machine.

    + outcomes: as `gpunode.system.readiness.awaited` left them
    + seconds: that the machines had; a failed one ends the waiting for all, so that the others did not have them
    """
    failed = [name for name, outcome in outcomes.items() if outcome.stage is Stage.FAILED]
    return {name: _of(outcome, failed, seconds) for name, outcome in outcomes.items()}


def _of(outcome: Outcome, failed: list[str], seconds: float) -> Finding:
    if outcome.stage is Stage.READY:
        return Finding(_COMPONENT, FindingClass.OK, _WHAT, outcome.why, "ready")
    if outcome.stage is Stage.FAILED:
        return Finding(_COMPONENT, FindingClass.ERROR, _WHAT, "failed", "ready", outcome.why, outcome.remedy)
    if failed:
        cause = f"not waited for: another machine failed ({failed[0]}); until then: {outcome.why}"
        remedy = f"look at {failed[0]} first"
        return Finding(_COMPONENT, FindingClass.UNREACHABLE, _WHAT, "not waited for", "ready", cause, remedy)
    return Finding(
        _COMPONENT,
        FindingClass.UNREACHABLE,
        _WHAT,
        outcome.stage,
        f"ready in {seconds:g} s",
        f"did not come up in {seconds:g} s: {outcome.why}",
        "look at the machine's console, or give it more time by --wait",
    )
