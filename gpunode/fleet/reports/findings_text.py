"""What a person reads of findings: one entry for a finding of many nodes, folded to the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpunode.base.findings import Finding, FindingClass, NodeReport, totals, worst
from gpunode.base.folding import UNBOUND, fold, folded_in_a_line
from gpunode.base.messages import Scope, with_code
from gpunode.fleet.call import SOME_CALL, Call

_UNJUDGED = (FindingClass.UNREACHABLE, FindingClass.UNSUPPORTED, FindingClass.ERROR)
_LABELS = ("actual", "desired", "cause", "since", "remedy", "log", "costs")
_COLUMN = max(map(len, _LABELS)) + 2


def report_text(
    reports: tuple[NodeReport, ...],
    show_all: bool,
    columns: int = UNBOUND,
    call: Call = SOME_CALL,
    style: Callable[[FindingClass], str] = str,
    quiet: bool = False,
) -> str:
    """Return the report: what is not as desired (or all), what to know, then how the nodes are, each in a line.

    Equal findings of several nodes are one entry, and nodes that are alike one line. Entries with the same remedy come
    together, and the remedy once after them, unless all is shown. A name is never cut: a line that is one long word is
    longer than the columns. Where many names would take more than a line, the first are named, and how many follow; all
    of them where all is shown. Nodes with differences and without a recorded run come first, with the command of a run.

    call: how the command was called, for those that a remedy names; style: how a class is written; quiet: leave out the
    nodes that are as desired, what to know, and the totals
    """
    room = UNBOUND if show_all else columns
    parts = []
    if (bare := _without_run(reports)) and not quiet:
        said = f"{folded_in_a_line(bare, room)}: no complete run recorded yet: `{call.of('apply')}`"
        parts.append(fold(said, columns, "  "))
    for items in (_grouped(reports, show_all), () if quiet else _grouped(reports, cautions=True)):
        for found, remedy in _by_remedy(items, show_all):
            parts += [_entry(item, _of(names, room), columns, call, style) for item, names in found]
            parts += [fold(f"remedy of these {len(found)}: {call.pasted(remedy)}", columns, "  ")] if remedy else []
    return "\n".join([*parts, *_lines(reports, columns, room, style, quiet)])


def _without_run(reports: Iterable[NodeReport]) -> list[str]:
    """Return the nodes that differ, can be judged, and have no record of a run."""
    bare = (each for each in reports if each.summary is not None and each.summary.gpunode is None)
    return [each.title for each in bare if worst(each.findings) not in (FindingClass.OK, *_UNJUDGED)]


def _by_remedy(
    grouped: Iterable[tuple[Finding, list[str]]], show_all: bool
) -> Iterable[tuple[list[tuple[Finding, list[str]]], str | None]]:
    """Yield the findings that have one remedy, and that; (one finding, None) where it has its own, or all is shown."""
    alike: dict[object, list[tuple[Finding, list[str]]]] = {}
    for item, names in grouped:
        alike.setdefault(item if show_all else item.remedy or item, []).append((item, names))
    for found in alike.values():
        remedy = found[0][0].remedy if len(found) > 1 else None
        yield [(replace(item, remedy=None), names) for item, names in found] if remedy else found, remedy


def _grouped(
    reports: Iterable[NodeReport], show_all: bool = False, cautions: bool = False
) -> Iterable[tuple[Finding, list[str]]]:
    """Yield (finding, its nodes): the cautions, or what is not as desired, with what is where all is shown."""
    found: dict[tuple[Scope, Finding], list[str]] = {}
    since: dict[tuple[Scope, Finding], str] = {}
    for report in reports:
        for item in report.findings:
            differs = item.finding_class is not FindingClass.OK
            if item.is_caution if cautions else differs or (show_all and not item.is_caution):
                # Neither is shown.
                shown = report.scope, replace(item, source=None, by_person=False)
                found.setdefault(shown, []).append(report.title)
                # Of several nodes, the one that has waited longest.
                since[shown] = min(filter(None, (since.get(shown), item.since)), default="")
    return ((replace(key[1], since=since[key] or None), list(dict.fromkeys(names))) for key, names in found.items())


def _entry(item: Finding, names: str, columns: int, call: Call, style: Callable[[FindingClass], str]) -> str:
    """Return one finding: what it is, then its sides, cause, remedy and cost; in one line where it is as desired."""
    if item.finding_class is FindingClass.OK and not item.is_caution:
        is_so = f": {item.actual}" if item.actual else ""
        return fold(f"{_what(item)}: {style(item.finding_class)}, {names}{is_so}", columns, "  ")
    told = {
        # What no comparison is of has no sides.
        "actual": item.actual or (None if item.desired is None else "none"),
        "desired": item.desired,
        "cause": item.cause,
        "since": item.since,
        "remedy": item.remedy and call.pasted(item.remedy),
        "log": item.log,
        "costs": None if item.disruption is None else item.disruption.name,
    }
    if item.is_caution:
        told, kind = {name: told[name] for name in ("actual", "cause", "remedy")}, "caution"
    else:
        kind = style(item.finding_class)
    head = fold(with_code(f"{_what(item)}: {kind}, {names}", item.code), columns, "  ")
    return "\n".join([head, *_fields(told, columns)])


def _fields(told: Mapping[str, str | None], columns: int) -> Iterable[str]:
    for label, text in told.items():
        if text:
            yield fold(f"  {label:<{_COLUMN}}{text}", columns, " " * (_COLUMN + 2))


def _what(item: Finding) -> str:
    return f"{item.component}: {item.what}"


def _of(names: list[str], room: int) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} nodes: {folded_in_a_line(names, room)}"


def _lines(
    reports: Iterable[NodeReport], columns: int, room: int, style: Callable[[FindingClass], str], quiet: bool
) -> Iterable[str]:
    """Yield a line for the nodes of which the same is to be said, in the order of the first, and the totals."""
    alike: dict[tuple[FindingClass, str, Scope], list[str]] = {}
    for report in reports:
        gravest = worst(report.findings)
        # Of what could not be judged there is no number.
        judged = gravest not in _UNJUDGED or any(item.finding_class is FindingClass.OK for item in report.findings)
        counted = f", {totals(report.findings)}" if judged else ""
        alike.setdefault((gravest, counted, report.scope), []).append(report.title)
    for (gravest, counted, _), names in alike.items():
        if not quiet or gravest is not FindingClass.OK:
            yield fold(f"{folded_in_a_line(names, room)}: {style(gravest)}{counted}", columns, "  ")
    hosts = sum(len(names) for key, names in alike.items() if key[-1] is Scope.NODE)
    if hosts > 1 and not quiet:
        counts: dict[FindingClass, int] = {}
        for (gravest, _, scope), names in alike.items():
            if scope is Scope.NODE:
                counts[gravest] = counts.get(gravest, 0) + len(names)
        classes = ", ".join(f"{count} {gravest}" for gravest, count in counts.items())
        yield fold(f"{hosts} nodes: {classes}", columns, "  ")
