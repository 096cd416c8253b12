"""How far a run is, out of what it tells of itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class OperationProgress:
    """Hold one step of a run: its name and number, the hosts that have it, and how they came through it.

    `begun` is host -> when it began (seconds since 1970), of those that are at work; `ended` is None while it is under
    way. `ignored` are those on which it failed, and which go on all the same.
    """

    name: str
    number: int
    at: float
    hosts: tuple[str, ...]
    begun: Mapping[str, float] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    ended: float | None = None

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the hosts that have not begun it yet."""
        known = {*self.begun, *self.done, *self.failed, *self.ignored}
        return tuple(name for name in self.hosts if name not in known)


@dataclass(frozen=True)
class Progress:
    """Hold how far a run is.

    `steps` is how many steps there are, 0 while that is not known; `failed` is host -> the step that failed on it;
    `ends` is what the run told of its hosts at its end, as JSON, None while it is under way.
    """

    hosts: int
    connected: tuple[str, ...] = ()
    unreached: Mapping[str, str] = field(default_factory=dict)
    judged: tuple[str, ...] = ()
    steps: int = 0
    step: OperationProgress | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    ends: tuple[Mapping[str, Any], ...] | None = None


def after(progress: Progress, event: Mapping[str, Any]) -> Progress:
    """Return how far the run is after an event; one that says nothing, or too little, changes nothing."""
    try:
        return _after(progress, event)
    except (KeyError, TypeError, ValueError):
        return progress


def _after(progress: Progress, event: Mapping[str, Any]) -> Progress:
    kind, at = event["kind"], float(event.get("at") or 0)
    if kind == "connected":
        return replace(progress, connected=(*progress.connected, str(event["host"])))
    if kind == "unreached":
        return replace(progress, unreached={**progress.unreached, str(event["host"]): str(event["reason"])})
    if kind == "judged" and event["host"] not in progress.judged:
        return replace(progress, judged=(*progress.judged, str(event["host"])))
    if kind == "ended":
        return replace(progress, ends=tuple(dict(each) for each in event["hosts"]))
    if kind == "step":
        step = OperationProgress(str(event["name"]), int(event["number"]), at, tuple(map(str, event["hosts"])))
        return replace(progress, step=step, steps=int(event["steps"]))
    return progress if progress.step is None else _in_step(progress, progress.step, event, at)


def _in_step(progress: Progress, step: OperationProgress, event: Mapping[str, Any], at: float) -> Progress:
    kind = event["kind"]
    if kind == "stepped":
        return replace(progress, step=replace(step, changed=tuple(map(str, event["changed"])), ended=at))
    name = str(event["host"])
    left = {host: since for host, since in step.begun.items() if host != name}
    if kind == "begun":
        return replace(progress, step=replace(step, begun={**left, name: at}))
    if kind == "done":
        return replace(progress, step=replace(step, begun=left, done=(*step.done, name)))
    if kind == "ignored":
        return replace(progress, step=replace(step, begun=left, ignored=(*step.ignored, name)))
    if kind == "failed":
        failed = replace(step, begun=left, failed=(*step.failed, name))
        return replace(progress, step=failed, failed={**progress.failed, name: step.name})
    return progress
