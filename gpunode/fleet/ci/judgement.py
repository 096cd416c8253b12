"""What a CI job's report says of machines that were waited for. Pure: outcomes in, a finding for each out."""

from __future__ import annotations

from collections.abc import Mapping

from gpunode.base.comparison import finding_message
from gpunode.base.findings import Finding, FindingClass
from gpunode.system.readiness import Outcome, Stage

_LOOK = "look at the machine's console, or give it more time by --wait"
_OTHER_FAILED, _LOOK_THERE = (
    "not waited for: another machine failed ({other}); until then: {why}",
    "look at {other} first",
)
_TOO_SLOW = "did not come up in {seconds:g} s: {why}"
CAME_UP = finding_message(
    "machine",
    "came up",
    "A test machine of a CI job did not come up.",
    "`gpunode ci` waits for SSH and for cloud-init. The machine could not be reached in that time, cloud-init failed "
    "on it, or gpunode stopped waiting because another machine failed.",
    causes=(_OTHER_FAILED, _TOO_SLOW),
    remedies=(_LOOK, _LOOK_THERE),
    classes=(FindingClass.ERROR, FindingClass.UNREACHABLE),
)


def came_up(outcomes: Mapping[str, Outcome], seconds: float) -> dict[str, Finding]:
    """Return a finding per machine.

    + outcomes: as `gpunode.system.readiness.awaited` left them
    + seconds: that the machines had; a failed one ends the waiting for all, so that the others did not have them
    """
    failed = [name for name, outcome in outcomes.items() if outcome.stage is Stage.FAILED]
    return {name: _of(outcome, failed, seconds) for name, outcome in outcomes.items()}


def _of(outcome: Outcome, failed: list[str], seconds: float) -> Finding:
    if outcome.stage is Stage.READY:
        return CAME_UP.finding(FindingClass.OK, outcome.why, "ready")
    if outcome.stage is Stage.FAILED:
        return CAME_UP.finding(FindingClass.ERROR, "failed", "ready", cause=outcome.why, remedy=outcome.remedy)
    if failed:
        cause, remedy = _OTHER_FAILED.format(other=failed[0], why=outcome.why), _LOOK_THERE.format(other=failed[0])
        return CAME_UP.finding(FindingClass.UNREACHABLE, "not waited for", "ready", cause=cause, remedy=remedy)
    desired, cause = f"ready in {seconds:g} s", _TOO_SLOW.format(seconds=seconds, why=outcome.why)
    return CAME_UP.finding(FindingClass.UNREACHABLE, outcome.stage, desired, cause=cause, remedy=_LOOK)
