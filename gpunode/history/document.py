"""The JSON documents of `gpunode history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from gpunode.base.document import head
from gpunode.base.findings import CLUSTER, ExitCode
from gpunode.base.messages import Scope
from gpunode.history.asking import Answer, Change, Kind, Known
from gpunode.history.intervals import State
from gpunode.history.place import Place
from gpunode.history.tables import Pruned

# Raised when a key goes away or changes its meaning; a new key raises nothing.
SCHEMA = 2


def of_findings(
    place: Place, inventory: str | None, found: Sequence[Answer], at: datetime | None = None
) -> dict[str, Any]:
    """Return the document of `findings`; at: the time that was asked for, None where it was now."""
    hosts = {(each.inventory, each.host) for each in found if each.host != CLUSTER}
    counts = {"hosts": len(hosts), "findings": len(found)}
    head_of = _head(place, inventory, counts)
    return {**head_of, "asked_at": _time(at), "findings": [_answer(each) for each in found]}


def of_changes(
    place: Place, inventory: str | None, found: Sequence[Change], since: datetime, until: datetime
) -> dict[str, Any]:
    """Return the document of `changes`."""
    counts = {kind.value: sum(each.kind is kind for each in found) for kind in Kind}
    times = {"since": _time(since), "until": _time(until)}
    return {**_head(place, inventory, counts), **times, "changes": [_change(each) for each in found]}


def of_inventories(place: Place, found: Sequence[Known]) -> dict[str, Any]:
    """Return the document of `inventories`."""
    items = [
        {"name": each.name, "hosts": each.hosts, "first": _time(each.first), "last": _time(each.last),
         "reports": each.records}
        for each in found
    ]  # fmt: skip
    return {**_head(place, None, {"inventories": len(found)}), "inventories": items}


def of_import(place: Place, inventory: str | None, files: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    """Return the document of `import`; files: (path, inventory, hosts) of each."""
    items = [{"file": path, "inventory": name, "hosts": hosts} for path, name, hosts in files]
    return {**_head(place, inventory, {"files": len(files)}), "files": items}


def of_prune(place: Place, pruned: Pruned, before: datetime) -> dict[str, Any]:
    """Return the document of `prune`."""
    counts = {"findings": pruned.findings, "reports": pruned.records, "hosts": pruned.hosts}
    return {**_head(place, None, counts), "before": _time(before)}


def _head(place: Place, inventory: str | None, counts: dict[str, int]) -> dict[str, Any]:
    return head(SCHEMA, counts, ExitCode.GOOD, {"history": str(place), "inventory": inventory})


def _answer(answer: Answer) -> dict[str, Any]:
    each = answer.interval
    return {
        "inventory": answer.inventory,
        "scope": _scope(answer.host),
        "host": answer.host,
        "component": each.key[0],
        "what": each.key[1],
        "code": each.state.code,
        **_state(each.state),
        "cause": each.state.cause,
        "remedy": each.state.remedy,
        "since": _time(each.since),
        "or_earlier": answer.from_first,
        "last_good": _time(each.last_good),
        "begun": _time(each.begun),
        "not_yet": _time(each.not_yet),
        "last": _time(each.last),
        "ended": _time(each.ended),
        "end": None if each.end is None else each.end.value,
        "told_by": each.by,
        "seen": _time(answer.seen),
    }


def _change(change: Change) -> dict[str, Any]:
    either = change.after or change.before
    component, what = either.key if either is not None else (None, None)
    return {
        "at": _time(change.at),
        "earliest": _time(change.earliest),
        "change": change.kind.value,
        "inventory": change.inventory,
        "scope": None if change.host is None else _scope(change.host),
        "host": change.host,
        "component": component,
        "what": what,
        "code": None if either is None else either.state.code,
        "before": None if change.before is None else _state(change.before.state),
        "after": None if change.after is None else _state(change.after.state),
        "by": change.by,
        "run": change.run,
    }


def _scope(host: str) -> str:
    return (Scope.CLUSTER if host == CLUSTER else Scope.NODE).value


def _state(state: State) -> dict[str, str | None]:
    return {"class": state.finding_class, "actual": state.actual, "desired": state.desired}


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="seconds")
