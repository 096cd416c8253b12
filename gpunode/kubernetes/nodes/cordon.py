"""Whose cordon is on a node, the one request by which gpunode's is set or lifted, and what drift reports of it.

Ours is noted by an annotation in the very request that cordons, so that no crash leaves a cordon of ours that nobody
knows. Whoever set `spec.unschedulable` last is told by the API server itself (managedFields): a person who lifted our
cordon and set one of his own has his own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from gpunode.base.comparison import RUN, finding_message
from gpunode.base.document import newer
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import load_json

T = TypeVar("T")

ANNOTATION = "gpunode/drain"
# Under this name the API server knows what gpunode's requests have set.
MANAGER = "gpunode"
DRAINING, DRAINED, BLOCKED, FAILED, NOT_READY = "draining", "drained", "drain blocked", "failed", "not ready"
# The API server takes 256 KiB of annotations for each object; nobody reads that much.
_LONGEST = 2000


@dataclass(frozen=True)
class Note:
    """Hold what the annotation of a node says.

    state: draining, drained; or why it is not given back: drain blocked, failed, not ready
    reason: for what the node was to be emptied
    since: when that began, as 2026-01-31T12:00:00Z
    cordon: gpunode where the cordon is gpunode's, else other
    message: what stands in the way
    """

    state: str
    reason: str
    since: str
    cordon: str
    message: str = ""

    @property
    def text(self) -> str:
        """Return the annotation's value."""
        cut = {key: value[:_LONGEST] for key, value in asdict(self).items() if value}
        return json.dumps(cut, ensure_ascii=False)


@dataclass(frozen=True)
class Cordon:
    """Hold what of a node in a cluster has to do with its cordon.

    version: of the object, by which a request is refused where somebody else's came between
    note: what gpunode noted; None where there is nothing, or nothing that can be read
    set_by_others: whether somebody else has the last word on `spec.unschedulable`
    boot_id: of the boot in which the kubelet last told its state; empty where it tells none
    """

    name: str
    version: str
    unschedulable: bool
    note: Note | None
    set_by_others: bool
    ready: bool
    boot_id: str = ""

    @property
    def is_ours(self) -> bool:
        """Say whether the node is cordoned, and by gpunode."""
        return self.unschedulable and self.note is not None and self.note.cordon == MANAGER and not self.set_by_others

    def is_back(self, boot_id: str) -> bool:
        """Say whether the node is Ready in the boot that runs, by its kubelet's own word.

        What the kubelet said before a reboot stays in the cluster for a while after it.
        """
        return self.ready and self.boot_id in ("", boot_id)


def told(text: str, what: str, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of the JSON that kubectl printed; raise ParseError where it is no such thing."""
    try:
        return read(load_json(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ParseError(f"kubectl's answer is no {what}") from None


def parse_cordon(text: str) -> Cordon:
    """Parse a Node as the API server has it; raise ParseError."""
    return told(text, "Node", _cordon)


def parse_cordons(text: str) -> dict[str, Cordon]:
    """Parse a list of Nodes: name -> cordon; raise ParseError."""
    return told(text, "list of Nodes", lambda found: {node.name: node for node in map(_cordon, found["items"])})


def _cordon(node: Mapping[str, Any]) -> Cordon:
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = {each["type"]: each.get("status") for each in status.get("conditions") or []}
    owners = {
        str(entry.get("manager"))
        for entry in metadata.get("managedFields") or []
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    }
    return Cordon(
        name=str(metadata["name"]),
        version=str(metadata["resourceVersion"]),
        unschedulable=(node.get("spec") or {}).get("unschedulable") is True,
        note=parse_note((metadata.get("annotations") or {}).get(ANNOTATION)),
        set_by_others=bool(owners - {MANAGER}),
        ready=conditions.get("Ready") == "True",
        boot_id=str((status.get("nodeInfo") or {}).get("bootID") or ""),
    )


def parse_note(text: str | None) -> Note | None:
    """Return what the annotation says; None where it is none of gpunode's, or of a version that is not known here."""
    try:
        found = load_json(text or "")
        if newer(found, 1):
            return None
        return Note(**{name: str(found.get(name) or "") for name in Note.__dataclass_fields__})
    except (ValueError, AttributeError):
        return None


def taken(cordon: Cordon, reason: str, now: str) -> tuple[Note, dict[str, Any]]:
    """Return the note, and the merge patch that cordons the node and notes whose cordon it is.

    The cordon of somebody else stays theirs. Ours of an earlier run is gone on with, since when it began.
    """
    theirs = cordon.unschedulable and not cordon.is_ours
    since = cordon.note.since if cordon.note is not None and cordon.is_ours else now
    note = Note(DRAINING, reason, since, "other" if theirs else MANAGER)
    return note, _patch(cordon, note, None if theirs else True)


def lifted(cordon: Cordon) -> dict[str, Any] | None:
    """Return the merge patch that gives a node back; None where there is nothing of ours.

    Where the cordon is somebody else's, or somebody has lifted it, the note alone goes.
    """
    if cordon.note is None:
        return None
    return _patch(cordon, None, False if cordon.is_ours else None)


def _patch(cordon: Cordon, note: Note | None, unschedulable: bool | None) -> dict[str, Any]:
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
        remedy=_RELEASES.format(node=cordon.name),
    )


def left_by_run(node: str, reason: str) -> Finding:
    """Return the finding on a node that the run which drained it has not given back."""
    actual, remedy = f"{DRAINED}, for: {reason}", _RELEASES.format(node=node)
    return CORDON.compared(actual, "none of gpunode's", False, cause=_STAYS, remedy=remedy)


def unknown(reason: str) -> Finding:
    """Return that the cluster did not tell."""
    return CORDON.finding(FindingClass.ERROR, "unknown", "none of gpunode's", cause=reason, remedy=_LOOK)
