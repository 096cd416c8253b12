"""One comparison of what is with what should be, as a finding."""

from __future__ import annotations

from dataclasses import replace

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject

AS_DESIRED = "as the settings ask"
BY_HAND = "mend what the cause names, or change the settings, and run deploys/gpu_node.py again"
RUN = "run deploys/gpu_node.py again"
DRAIN_FIRST = "drain the node, or set disruption.allow = 'restart', and " + RUN


def configuration(
    component: str, files: str | None, reason: str | None = None, disruption: Disruption = Disruption.nothing
) -> Finding:
    """Return a finding about the configuration of a runtime.

    files: those that a run would write anew, None where it would write none; reason: why no run can
    """
    if reason is not None:
        return Finding(
            component,
            FindingClass.ERROR,
            Subject.CONFIGURATION,
            "not to be edited by a run",
            AS_DESIRED,
            cause=reason,
            remedy=BY_HAND,
        )
    return compared(
        component,
        Subject.CONFIGURATION,
        f"another text in {files}" if files else AS_DESIRED,
        AS_DESIRED,
        not files,
        cause="they say otherwise, or elsewhere, than the settings ask",
        disruption=disruption,
    )


def compared(
    component: str,
    what: str,
    actual: object,
    desired: object,
    good: bool,
    remedy: str = RUN,
    cause: str | None = None,
    disruption: Disruption = Disruption.nothing,
) -> Finding:
    """Return a finding that is good or drift; cause, remedy and what that one disturbs count for drift alone."""
    return Finding(
        component=component,
        finding_class=FindingClass.OK if good else FindingClass.DRIFT,
        what=what,
        actual="none" if actual is None else str(actual),
        desired=str(desired),
        cause=None if good else cause,
        remedy=None if good else remedy,
        disruption=None if good else disruption,
    )


def pending(item: Finding, reason: str) -> Finding:
    """Return drift that waits for a restart that the settings do not allow as pending: it was not forgotten."""
    if item.finding_class is not FindingClass.DRIFT:
        return item
    # Also of a daemon that is down: its containers may run on, and would feel how it starts.
    return replace(
        item,
        finding_class=FindingClass.RESTART_PENDING,
        cause=reason,
        remedy=DRAIN_FIRST,
        disruption=Disruption.restart,
    )


def by_hand(item: Finding, cause: str) -> Finding:
    """Return a difference that no run removes as a person's to mend, with what is in the way."""
    return item if item.finding_class is FindingClass.OK else replace(item, cause=cause, remedy=BY_HAND, by_person=True)
