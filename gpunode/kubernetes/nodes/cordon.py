"""Whose cordon is on a node, the one request by which gpunode's is set or lifted, and what drift reports of it.

Ours is noted by an annotation in the very request that cordons, so that no crash leaves a cordon of ours that nobody
knows. Whoever set `spec.unschedulable` last is told by the API server itself (managedFields): a person who lifted our
cordon and set one of his own has his own.
"""

from __future__ import annotations

from typing import Any

from gpunode.base.comparison import RUN, finding_message
from gpunode.base.findings import Finding, FindingClass
from gpunode.kubernetes.nodes.cluster_nodes import ANNOTATION, MANAGER, ClusterNode, Note

DRAINING, DRAINED, BLOCKED, FAILED, NOT_READY = "draining", "drained", "drain blocked", "failed", "not ready"


def taken(cordon: ClusterNode, reason: str, now: str) -> tuple[Note, dict[str, Any]]:
    """Return the note, and the merge patch that cordons the node and notes whose cordon it is.

    The cordon of somebody else stays theirs. Ours of an earlier run is gone on with, since when it began.
    """
    theirs = cordon.unschedulable and not cordon.is_held_back
    since = cordon.note.since if cordon.note is not None and cordon.is_held_back else now
    note = Note(DRAINING, reason, since, "other" if theirs else MANAGER)
    return note, _patch(cordon, note, None if theirs else True)


def lifted(cordon: ClusterNode) -> dict[str, Any] | None:
    """Return the merge patch that gives a node back; None where there is nothing of ours.

    Where the cordon is somebody else's, or somebody has lifted it, the note alone goes.
    """
    if cordon.note is None:
        return None
    return _patch(cordon, None, False if cordon.is_held_back else None)


def _patch(cordon: ClusterNode, note: Note | None, unschedulable: bool | None) -> dict[str, Any]:
    text = None if note is None else note.text
    patch: dict[str, Any] = {"metadata": {"resourceVersion": cordon.version, "annotations": {ANNOTATION: text}}}
    if unschedulable is not None:
        # The field is left out where a node is schedulable, as kubectl has it.
        patch["spec"] = {"unschedulable": True if unschedulable else None}
    return patch


def noted(note: Note) -> dict[str, Any]:
    """Return the merge patch that changes the note alone, whatever else has come between."""
    return {"metadata": {"annotations": {ANNOTATION: note.text}}}


_RELEASES = RUN + ": it gives the node back once it is well; to have it back in any state: `kubectl uncordon {node}`"
_LOOK = "look at kubernetes.kubeconfig and kubernetes.run_on"
_CUT_OFF = "a run that drained the node did not come to its end"
_STAYS = "this run drained the node, and did not end well on it"
CORDON = finding_message(
    "kubernetes",
    "cordon",
    "A run drained the node and did not give it back.",
    "The node takes no new pods. A run that drained it was cut off, or failed on it; the next run gives the node "
    "back once it is well. As an error: the cluster did not answer.",
    remedies=(_RELEASES, _LOOK),
    causes=(_CUT_OFF, _STAYS),
    classes=(FindingClass.DRIFT, FindingClass.ERROR),
)


def judged(cordon: ClusterNode) -> Finding:
    """Return whether gpunode still holds the node back; the cordon of anybody else is no matter of gpunode's."""
    note = cordon.note
    if note is None:
        return CORDON.finding(FindingClass.OK, "none of gpunode's", "none of gpunode's")
    whose = "" if note.cordon == MANAGER else " (the cordon is somebody else's)"
    return CORDON.compared(
        f"{note.state} since {note.since}, for: {note.reason}{whose}",
        "none of gpunode's",
        False,
        cause=note.message or _CUT_OFF,
        remedy=_RELEASES.format(node=cordon.name),
    )


def left_by_run(node: str, reason: str) -> Finding:
    """Return the finding on a node that the run which drained it has not given back."""
    actual, remedy = f"{DRAINED}, for: {reason}", _RELEASES.format(node=node)
    return CORDON.compared(actual, "none of gpunode's", False, cause=_STAYS, remedy=remedy)


def unknown(reason: str) -> Finding:
    """Return that the cluster did not tell."""
    return CORDON.finding(FindingClass.ERROR, "unknown", "none of gpunode's", cause=reason, remedy=_LOOK)
