"""One comparison of what is with what should be, as a finding."""

from __future__ import annotations

from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass

RUN = "run deploys/gpu_node.py again"


def compared(
    component: str, what: str, found: object, wanted: object, good: bool, remedy: str = RUN, cause: str | None = None,
    disturbs: Disturbance = Disturbance.nothing,
) -> Finding:  # fmt: skip
    """Return a finding that is good or drift; cause, remedy and what that one disturbs count for drift alone."""
    return Finding(
        component=component,
        finding_class=FindingClass.OK if good else FindingClass.DRIFT,
        what=what,
        found="none" if found is None else str(found),
        wanted=str(wanted),
        cause=None if good else cause,
        remedy=None if good else remedy,
        disturbs=None if good else disturbs,
    )
