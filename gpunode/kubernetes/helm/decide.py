"""What is to be done about a helm release: the comparison with what is desired, and the step that removes a difference.

The step's change holds all that helm is told, in order: what was left behind is recovered first.
"""

from __future__ import annotations

from datetime import datetime

from gpunode.base.comparison import RESTART, by_hand
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.messages import Scope
from gpunode.kubernetes.helm.change import ActualRelease, DesiredRelease, ReleaseChange, change, removal
from gpunode.kubernetes.helm.release import Release
from gpunode.kubernetes.nodes.component import cluster_finding

RELEASE = cluster_finding(
    "helm release",
    "A helm release is not what the settings ask for.",
    "Its chart, values or objects differ from what a run would install, or it is missing.",
    scope=Scope.CLUSTER,
    classes=RESTART,
)


def decide(
    name: str, desired: DesiredRelease, actual: ActualRelease, now: datetime, timeout: int
) -> Decision[ReleaseChange]:
    """Return what is to be done about a release; raise ParseError where a manifest cannot be read.

    name: NAMESPACE/NAME; timeout: how long, in seconds, helm may be at work
    """
    return _decision(name, f"{desired.chart} {desired.version}", change(desired, actual, now, timeout))


def decide_absence(
    name: str, chart: str, actual: Release | None, now: datetime, timeout: int
) -> Decision[ReleaseChange]:
    """Return what is to be done about a release that no node needs any more; one of another chart is somebody else's.

    The other arguments are those of `decide`.
    """
    return _decision(name, "none", removal(actual, chart, now, timeout))


def _decision(name: str, desired: str, found: ReleaseChange) -> Decision[ReleaseChange]:
    reason = found.refused or "; ".join(f"{step.act}: {step.reason}" for step in found.steps)
    actual = "another" if reason else desired
    item = RELEASE.compared(actual, desired, not reason, of=name, cause=reason)
    if found.refused is not None:
        item = by_hand(item, found.refused)
    if not found.steps:
        return Decision((item,), (), found.refused)
    # A recovery is carried out also where no run does what would have to come behind it.
    settles = () if found.refused is not None else (item,)
    action = f"{', then '.join(step.act for step in found.steps)} the release {name}"
    return Decision((item,), (Step(action, settles, Disruption.nothing, change=found),), found.refused)
