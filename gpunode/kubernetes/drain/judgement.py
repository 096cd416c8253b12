"""What drift says of a node that gpunode left cordoned. Pure: settings and the cluster's answer in, a finding out."""

from __future__ import annotations

from gpunode.base.comparison import RUN, finding_message
from gpunode.base.findings import Finding, FindingClass
from gpunode.kubernetes.nodes.cordon import MANAGER, Cordon

COMPONENT = "kubernetes"

_RELEASES, _LOOK = (
    f"{RUN}: it gives the node back once it is well",
    "look at kubernetes.kubeconfig and kubernetes.run_on",
)
_CUT_OFF = "a run that drained the node did not come to its end"
CORDON = finding_message(
    COMPONENT,
    "cordon",
    "A run drained the node and did not give it back.",
    "The node takes no new pods. A run that drained it was cut off, or failed on it; the next run gives the node "
    "back once it is well. As an error: the cluster did not answer.",
    remedies=(_RELEASES, _LOOK),
    causes=(_CUT_OFF,),
    classes=(FindingClass.DRIFT, FindingClass.ERROR),
)


def judged(cordon: Cordon) -> Finding:
    """Return whether gpunode still holds the node back; the cordon of anybody else is no matter of gpunode's."""
    note = cordon.note
    if note is None:
        return CORDON.finding(FindingClass.OK, "none of gpunode's", "none of gpunode's")
    whose = "" if note.cordon == MANAGER else " (the cordon is somebody else's)"
    cause = note.message or _CUT_OFF
    return CORDON.compared(
        f"{note.state} since {note.since}, for: {note.reason}{whose}",
        "none of gpunode's",
        False,
        cause=cause,
    )


def unknown(reason: str) -> Finding:
    """Return that the cluster did not tell."""
    return CORDON.finding(FindingClass.ERROR, "unknown", "none of gpunode's", cause=reason, remedy=_LOOK)
