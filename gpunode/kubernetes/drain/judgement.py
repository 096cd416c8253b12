"""What drift says of a node that gpunode left cordoned. Pure: settings and the cluster's answer in, a finding out."""

from __future__ import annotations

from gpunode.base.comparison import RUN, compared
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject
from gpunode.kubernetes.nodes.cordon import MANAGER, Cordon

COMPONENT = "kubernetes"


def judged(cordon: Cordon) -> Finding:
    """Return whether gpunode still holds the node back; the cordon of anybody else is no matter of gpunode's."""
    note = cordon.note
    if note is None:
        return Finding(COMPONENT, FindingClass.OK, Subject.CORDON, "none of gpunode's", "none of gpunode's")
    whose = "" if note.cordon == MANAGER else " (the cordon is somebody else's)"
    cause = note.message or "a run that drained the node did not come to its end"
    return compared(
        COMPONENT,
        Subject.CORDON,
        f"{note.state} since {note.since}, for: {note.reason}{whose}",
        "none of gpunode's",
        False,
        f"{RUN}: it gives the node back once it is well",
        cause,
    )


def unknown(reason: str) -> Finding:
    """Return that the cluster did not tell."""
    remedy = "look at kubernetes.kubeconfig and kubernetes.run_on"
    return Finding(COMPONENT, FindingClass.ERROR, Subject.CORDON, "unknown", "none of gpunode's", reason, remedy)
