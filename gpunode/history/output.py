"""What `gpunode history` prints: JSON documents, and text folded to the terminal, each thing of several hosts once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from gpunode.base.document import head
from gpunode.base.findings import CLUSTER, ExitCode, FindingClass, cluster_title
from gpunode.base.folding import UNBOUND, fold, folded_in_a_line
from gpunode.base.messages import Scope, as_data, as_remedy, with_code
from gpunode.base.terminal import printable
from gpunode.history.asking import Answer, Change, Kind, Known
from gpunode.history.intervals import End, Interval, State
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
    return {**head_of, "asked_at": _time(at), "findings": map(_answer, found)}


def of_changes(
    place: Place, inventory: str | None, found: Sequence[Change], since: datetime, until: datetime
) -> dict[str, Any]:
    """Return the document of `changes`."""
    counts = {kind.value: sum(each.kind is kind for each in found) for kind in Kind}
    times = {"since": _time(since), "until": _time(until)}
    return {**_head(place, inventory, counts), **times, "changes": map(_change, found)}


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


def of_prune(place: Place, pruned: Pruned, **times: datetime) -> dict[str, Any]:
    """Return the document of `prune` and `forget`; times: the one that was named."""
    counts = {"findings": pruned.findings, "reports": pruned.records, "hosts": pruned.hosts}
    return {**_head(place, None, counts), **{name: _time(each) for name, each in times.items()}}


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


@lru_cache(maxsize=100_000)
def _time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="seconds")


_LABELS = ("actual", "desired", "since", "found last", "cause", "remedy")
_COLUMN = max(map(len, _LABELS)) + 2
_KIND = max(map(len, Kind)) + 2
Style = Callable[[FindingClass], str]
T = TypeVar("T")


def findings_text(
    found: Sequence[Answer], known: Sequence[Known], columns: int = UNBOUND, style: Style = str, quiet: bool = False
) -> str:
    """Return what is not as desired, and since when; known: the inventories that were asked for."""
    lines: list[str] = []
    of_inventories = {some[0].inventory: some for some in _alike(found, attrgetter("inventory"))}
    for inventory in known:
        mine = of_inventories.get(inventory.name, [])
        if len(known) > 1 and mine:
            lines.append(f"{printable(inventory.name)}:")
        for alike in _alike(mine, _told_alike):
            lines += _entry(alike, inventory.last, columns, style)
        if not quiet:
            hosts = len({each.host for each in mine if each.host != CLUSTER})
            cluster = "; the cluster is not as desired" if any(each.host == CLUSTER for each in mine) else ""
            told = f"the last report is of {in_words(inventory.last)}" if inventory.last else "no report is kept"
            said = f"{hosts:,} of {_counted(inventory.hosts, 'host')} not as desired{cluster}; {told}"
            lines.append(fold(said, columns, "  "))
    return "\n".join(lines)


def _told_alike(answer: Answer) -> tuple[object, ...]:
    """Return what has to be the same of findings that stand in one entry."""
    state = answer.interval.state
    return answer.interval.key, state, state.cause, state.remedy, answer.host == CLUSTER


def _entry(alike: Sequence[Answer], latest: datetime | None, columns: int, style: Style) -> Iterator[str]:
    first = alike[0].interval
    yield _heading(first, [_title(each.host) for each in alike], columns, style)
    last = min(each.interval.last for each in alike)
    told = {
        "actual": first.state.actual,
        "desired": first.state.desired,
        "since": _since(alike),
        "found last": in_words(last) if latest is not None and last < latest else None,
        "cause": first.state.cause,
        "remedy": first.state.remedy,
    }
    for label, text in told.items():
        if text:
            yield fold(
                f"  {label:<{_COLUMN}}{(as_remedy if label == 'remedy' else as_data)(text)}",
                columns,
                " " * (_COLUMN + 2),
            )


def _since(alike: Sequence[Answer]) -> str:
    """Say since when the hosts are off, and since when they are as they are now."""
    first = min(alike, key=lambda each: each.interval.since)
    times = sorted({in_words(each.interval.since) for each in alike})
    text = times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}"
    if first.from_first:
        text += " or earlier: it was so in the first report"
    elif len(times) == 1 and first.interval.last_good is not None:
        text += f"; at {in_words(first.interval.last_good)} it was as desired"
    begun = in_words(max(each.interval.begun for each in alike))
    return text if begun in times else f"{text}; as it is now since {begun}"


def changes_text(
    found: Sequence[Change],
    known: Sequence[Known],
    since: datetime,
    until: datetime,
    columns: int = UNBOUND,
    style: Style = str,
    quiet: bool = False,
) -> str:
    """Return what happened between two times, in order, a line for what happened to several hosts in one minute."""
    lines: list[str] = []
    of_inventories = {some[0].inventory: some for some in _alike(found, attrgetter("inventory"))}
    for inventory in known:
        mine = of_inventories.get(inventory.name, [])
        if not quiet:
            head = f"{inventory.name}: from {in_words(since)} to {in_words(until)}"
            lines.append(fold(printable(head), columns, "  "))
        elif len(known) > 1 and mine:
            lines.append(f"{printable(inventory.name)}:")
        for alike in _alike(mine, _at_once):
            lines += _happened(alike, columns, style)
        if not quiet:
            counts = [f"{sum(each.kind is kind for each in mine):,} {kind}" for kind in Kind]
            counts = [each for each in counts if not each.startswith("0 ")]
            lines.append(fold(", ".join(counts) or "nothing changed", columns, "  "))
    return "\n".join(lines)


def _at_once(change: Change) -> tuple[object, ...]:
    """Return what has to be the same of changes that stand in one line."""
    before, after = change.before, change.after
    side = after or before
    sides = (before.state if before is not None else None, after.state if after is not None else None)
    ending = side.end if side is not None and after is None else None
    is_cluster = change.host == CLUSTER
    return in_words(change.at), change.kind, side and side.key, sides, ending, change.by, change.run, is_cluster


def _happened(alike: Sequence[Change], columns: int, style: Style) -> Iterator[str]:
    first = alike[0]
    lead = f"{in_words(first.at)}  {first.kind:<{_KIND}}"
    indent = " " * (len(lead) if columns >= 2 * len(lead) else 4)
    names = folded_in_a_line([_title(each.host) for each in alike if each.host is not None], columns)
    side = first.after or first.before
    if side is None:
        said = {Kind.RAN: f"{first.by}: {first.run}", Kind.LEFT: f"{names}: no longer in the inventory"}
        yield fold(printable(lead + said.get(first.kind, f"{names}: in the inventory")), columns, indent)
        return
    what = as_data(f"{side.key[0]}: {side.key[1]}")
    how = side.end or End.GOOD if first.after is None else style(FindingClass(side.state.finding_class))
    yield fold(with_code(f"{lead}{what}: {how}, {names}", as_data(side.state.code)), columns, indent)
    if first.after is not None:
        yield fold(f"{indent}{as_data(_sides(first.after.state))}", columns, indent)
    if first.before is not None:
        yield fold(f"{indent}before: {as_data(_sides(first.before.state))}", columns, indent)


def _sides(state: State) -> str:
    parts = [f"actual {state.actual}" if state.actual else "", f"desired {state.desired}" if state.desired else ""]
    return ", ".join(part for part in parts if part) or state.cause or state.finding_class


def inventories_text(found: Iterable[Known], columns: int = UNBOUND) -> str:
    """Return the inventories, each with its hosts and the times of its reports."""
    return "\n".join(
        fold(
            printable(
                f"{each.name}: {_counted(each.hosts, 'host')}, {_counted(each.records, 'report')}"
                + (f" from {in_words(each.first)} to {in_words(each.last)}" if each.first and each.last else "")
            ),
            columns,
            "  ",
        )
        for each in found
    )


@lru_cache(maxsize=100_000)
def in_words(time: datetime) -> str:
    """Return a time as people read it, to the minute."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _heading(interval: Interval, hosts: list[str], columns: int, style: Style) -> str:
    what = as_data(f"{interval.key[0]}: {interval.key[1]}")
    names = hosts[0] if len(hosts) == 1 else f"{len(hosts):,} nodes: {folded_in_a_line(hosts, columns)}"
    text = f"{what}: {style(FindingClass(interval.state.finding_class))}, {printable(names)}"
    return fold(with_code(text, as_data(interval.state.code)), columns, "  ")


def _title(host: str) -> str:
    return cluster_title("cluster") if host == CLUSTER else as_data(host)


def _alike(found: Iterable[T], key: Callable[[T], object]) -> Iterable[list[T]]:
    groups: dict[object, list[T]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return groups.values()


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else f'{one}s'}"
