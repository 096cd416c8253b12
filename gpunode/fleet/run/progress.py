"""How far a run is, out of what it tells of itself, and that as lines for a terminal or a log. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpunode.base.folding import folded
from gpunode.base.terminal import printable


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
    if kind not in ("done", "ignored", "failed"):
        return progress
    failed = {**progress.failed, name: step.name} if kind == "failed" else progress.failed
    names: dict[str, Any] = {kind: (*getattr(step, kind), name)}
    return replace(progress, step=replace(step, begun=left, **names), failed=failed)


# More hosts than these are told together.
_EACH = 6
_LABEL = 9
_NARROWEST = 40


def duration(seconds: float) -> str:
    """Return a duration in words: `31 s`, `2 min 5 s`, `1 h 2 min`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes_of = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_of} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def screen(progress: Progress, now: float, columns: int, lines_per_state: int = 3) -> list[str]:
    """Return what a terminal shows: the step, and who is at work on it since when, done, waiting, or failed.

    now: seconds since 1970; columns: of the terminal; lines_per_state: names beyond these are counted. What is told
    of a state is left out where no host is in it.
    """
    columns = max(_NARROWEST, columns)
    step = progress.step
    if step is None:
        head = _before(progress)
        return [*_cut(head, columns, 1), *_failed(progress, columns, lines_per_state)]
    since = "" if step.ended is not None else f", {duration(now - step.at)}"
    lines = textwrap.wrap(f"[{step.number}/{progress.steps}] {printable(step.name)}{since}", columns)
    for label, text in (
        ("at work", _at_work(step, now)),
        ("done", folded((*step.done, *step.ignored))),
        ("waiting", folded(step.waiting)),
    ):
        lines += _state(label, text, columns, lines_per_state)
    return [*lines, *_failed(progress, columns, lines_per_state)]


def step_line(progress: Progress) -> str | None:
    """Return the line of the step that has just ended, for a log; None while it is under way."""
    step = progress.step
    if step is None or step.ended is None:
        return None
    same = len(set(step.done) - set(step.changed))
    told = [
        f"changed {folded(step.changed)}" if step.changed else "",
        *_errors(step),
        f"{same} as desired" if same > 0 else "",
    ]
    return _line(progress, step, told, step.ended)


def wait_line(begun: Mapping[str, float], what: str, before: float, now: float) -> str | None:
    """Return the line on hosts that are waited for since 1, 2, 4, 8, … minutes; None where there is nothing new to say.

    begun: host -> since when; what: what they carry out; before: when this was last called; both, and now, in seconds
    since 1970
    """
    late = [name for name, since in begun.items() if _doublings(before - since) < _doublings(now - since)]
    if not late:
        return None
    since = time.strftime("%H:%M:%S", time.localtime(min(begun[name] for name in late)))
    return printable(f"waits for {folded(late)} since {since} ({what})")


def _doublings(seconds: float) -> int:
    return int(seconds / 60).bit_length()


def cut_line(progress: Progress, now: float) -> str | None:
    """Return the line of the step that a run ended in the midst of, for a log; None where it ended behind one.

    now: when it ended, seconds since 1970. What of it changed something only pyinfra's own end of the step tells.
    """
    step = progress.step
    if step is None or step.ended is not None:
        return None
    told = [
        *_errors(step),
        f"cut off on {folded(step.begun)}" if step.begun else "",
        f"done on {folded(step.done)}" if step.done else "",
        f"not begun on {folded(step.waiting)}" if step.waiting else "",
    ]
    return _line(progress, step, told, now)


def _errors(step: OperationProgress) -> Sequence[str]:
    return (
        f"FAILED on {folded(step.failed)}" if step.failed else "",
        f"an error on {folded(step.ignored)}, which the step ignores" if step.ignored else "",
    )


def _line(progress: Progress, step: OperationProgress, told: Iterable[str], ended: float) -> str:
    where = f"[{step.number:>{len(str(progress.steps))}}/{progress.steps}]"
    found = "; ".join(filter(None, told)) or "nobody"
    return printable(f"{where} {step.name}: {found} ({duration(ended - step.at)})")


def _before(progress: Progress) -> str:
    if len(progress.connected) + len(progress.unreached) < progress.hosts:
        return f"connecting: {len(progress.connected)} of {progress.hosts}"
    return f"reading and deciding: {len(progress.judged)} of {len(progress.connected)}"


def _at_work(step: OperationProgress, now: float) -> str:
    if len(step.begun) <= _EACH:
        return ", ".join(f"{name} ({duration(now - since)})" for name, since in step.begun.items())
    longest = min(step.begun, key=lambda name: step.begun[name])
    return f"{folded(step.begun)}; the longest: {longest} ({duration(now - step.begun[longest])})"


def _failed(progress: Progress, columns: int, most: int) -> Iterable[str]:
    by_step: dict[str, list[str]] = {}
    for name, step in progress.failed.items():
        by_step.setdefault(step, []).append(name)
    for step, names in by_step.items():
        yield from _state("failed", f"{folded(names)}: {step}", columns, most)
    yield from _state("no answer", folded(progress.unreached), columns, most)


def _state(label: str, text: str, columns: int, most: int) -> Sequence[str]:
    return _cut(f"  {label:<{_LABEL}} {printable(text)}", columns, most) if text else []


def _cut(text: str, columns: int, most: int) -> Sequence[str]:
    """Return a text folded to lines, at most so many: the last then says that there is more."""
    return textwrap.wrap(
        text, columns, subsequent_indent=" " * (_LABEL + 3), max_lines=most, placeholder=" …",
        break_on_hyphens=False,
    )  # fmt: skip
