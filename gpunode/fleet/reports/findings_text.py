"""What a person reads of findings: one entry for a finding of many nodes, folded to the width of the terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpunode.base.codes import with_code
from gpunode.base.comparison import RUN
from gpunode.base.findings import Finding, FindingClass, NodeReport, worst
from gpunode.base.host_names import folded
from gpunode.base.terminal import printable
from gpunode.fleet.call import SOME_CALL, Call

# Nobody looks at a terminal: a line of a log is one line, for whoever searches it.
UNBOUND = 1_000_000
# Narrower than this nobody reads a table.
NARROWEST = 40
_UNJUDGED = (FindingClass.UNREACHABLE, FindingClass.UNSUPPORTED, FindingClass.ERROR)
_LABELS = ("actual", "desired", "cause", "since", "remedy", "costs")
_COLUMN = max(map(len, _LABELS)) + 2
# A command of ours within a text; what a node says may have lone backquotes.
_COMMAND = re.compile(r"`(?:gpunode|pyinfra) [^`\n]*`")
# Stands for a space at which no line ends; no text has one, see `printable`.
_KEPT = "\0"


def width() -> int:
    """Return how many columns there are to write in."""
    return max(NARROWEST, shutil.get_terminal_size((100, 24)).columns) if sys.stdout.isatty() else UNBOUND


def report_text(
    reports: tuple[NodeReport, ...],
    show_all: bool,
    columns: int = UNBOUND,
    call: Call = SOME_CALL,
    style: Callable[[FindingClass], str] = str,
) -> str:
    """Return the report: what is not as desired (or all), what to know, then how the nodes are, each in a line.

    Equal findings of several nodes are one entry, and nodes that are alike one line. A name is never cut: a line that
    is one long word is longer than the columns.

    call: how the command was called, for those that a remedy names; style: how a class is written
    """
    reports = tuple(replace(each, findings=tuple(_pasted(item, call) for item in each.findings)) for each in reports)
    parts = [
        *(_entry(item, names, columns, style) for item, names in _grouped(reports, show_all)),
        *(_caution(item, names, columns) for item, names in _cautions(reports)),
        "\n".join(_lines(reports, columns, style)),
    ]
    return "\n".join(parts)


def _pasted(item: Finding, call: Call) -> Finding:
    """Return the finding with its remedy's run as a command that can be pasted."""
    return replace(item, remedy=item.remedy.replace(RUN, f"run `{call.run}`")) if item.remedy else item


def _grouped(reports: Iterable[NodeReport], show_all: bool) -> Iterable[tuple[Finding, list[str]]]:
    found: dict[Finding, list[str]] = {}
    since: dict[Finding, str] = {}
    for report in reports:
        for item in report.findings:
            if item.finding_class is not FindingClass.OK or (show_all and not item.is_caution):
                # Neither is shown.
                shown = replace(item, source=None, by_person=False)
                found.setdefault(shown, []).append(report.name)
                # Of several nodes, the one that has waited longest.
                since[shown] = min(filter(None, (since.get(shown), item.since)), default="")
    return ((replace(item, since=since[item] or None), list(dict.fromkeys(names))) for item, names in found.items())


def _cautions(reports: Iterable[NodeReport]) -> Iterable[tuple[Finding, list[str]]]:
    found: dict[Finding, list[str]] = {}
    for report in reports:
        for item in report.findings:
            if item.is_caution:
                found.setdefault(item, []).append(report.name)
    return found.items()


def _entry(item: Finding, names: list[str], columns: int, style: Callable[[FindingClass], str]) -> str:
    """Return one finding: what it is, then its sides, cause, remedy and cost; in one line where it is as desired."""
    if item.finding_class is FindingClass.OK:
        is_so = f": {printable(item.actual)}" if item.actual else ""
        return fold(f"{_what(item)}: {style(item.finding_class)}, {_of(names)}{is_so}", columns, "  ")
    told = {
        # What no comparison is of has no sides.
        "actual": item.actual or (None if item.desired is None else "none"),
        "desired": item.desired,
        "cause": item.cause,
        "since": item.since,
        "remedy": item.remedy,
        "costs": None if item.disruption is None else item.disruption.name,
    }
    head = fold(with_code(f"{_what(item)}: {style(item.finding_class)}, {_of(names)}", item.code), columns, "  ")
    return "\n".join([head, *_fields(told, columns)])


def _caution(item: Finding, names: list[str], columns: int) -> str:
    head = fold(with_code(f"{_what(item)}: caution, {_of(names)}", item.code), columns, "  ")
    return "\n".join([head, *_fields({"actual": item.actual, "cause": item.cause, "remedy": item.remedy}, columns)])


def _fields(told: Mapping[str, str | None], columns: int) -> Iterable[str]:
    for label, text in told.items():
        if text:
            yield fold(f"  {label:<{_COLUMN}}{printable(text)}", columns, " " * (_COLUMN + 2))


def _what(item: Finding) -> str:
    return printable(f"{item.component}: {item.what}")


def _of(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes: {folded(names)}"


def _lines(reports: Iterable[NodeReport], columns: int, style: Callable[[FindingClass], str]) -> Iterable[str]:
    """Yield a line for the nodes of which the same is to be said, in the order of the first, and the totals."""
    alike: dict[tuple[FindingClass, int, int], list[str]] = {}
    for report in reports:
        good = sum(item.finding_class is FindingClass.OK for item in report.findings)
        alike.setdefault((worst(report.findings), good, len(report.findings)), []).append(report.name)
    for (gravest, good, every), names in alike.items():
        # Of what could not be judged there is no number.
        counted = "" if not good and gravest in _UNJUDGED else f", {good} of {every} as desired"
        yield fold(f"{folded(names)}: {style(gravest)}{counted}", columns, "  ")
    hosts = sum(map(len, alike.values()))
    if hosts > 1:
        counts: dict[FindingClass, int] = {}
        for (gravest, _, _), names in alike.items():
            counts[gravest] = counts.get(gravest, 0) + len(names)
        totals = ", ".join(f"{count} {gravest}" for gravest, count in counts.items())
        yield fold(f"{hosts} nodes: {totals}", columns, "  ")


def fold(text: str, columns: int, indent: str) -> str:
    """Return a text folded between words, whose further lines stand under the first of it.

    A command between backquotes stays in one line, as long as it may be: it is to be pasted.
    """
    lines = _COMMAND.sub(lambda found: found[0].replace(" ", _KEPT), text).split("\n")
    found = [_wrapped(lines[0], columns, indent)]
    found += [_wrapped(f"{indent}{line}", columns, indent) for line in lines[1:]]
    return "\n".join(found).replace(_KEPT, " ")


def _wrapped(line: str, columns: int, indent: str) -> str:
    return textwrap.fill(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        replace_whitespace=False, drop_whitespace=True,
    )  # fmt: skip
