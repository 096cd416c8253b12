"""Rows of the tables as intervals, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, select

from gpunode.history.intervals import End, Interval, State
from gpunode.history.tables import findings

# How many values one statement takes: PostgreSQL's protocol has room for 65,535, SQLite for 32,766.
_MOST = 5_000
STATEMENT: Select[Any] = select(
    findings.c.id,
    findings.c.host_id,
    findings.c.component,
    findings.c.what,
    findings.c.finding_class,
    findings.c.actual,
    findings.c.desired,
    findings.c.code,
    findings.c.cause,
    findings.c.remedy,
    findings.c.begun,
    findings.c.last,
    findings.c.since,
    findings.c.not_yet,
    findings.c.last_good,
    findings.c.ended,
    findings.c.ending,
    findings.c.told_by,
    findings.c.ended_by,
)


def interval(row: Row[Any]) -> Interval:
    """Return the interval that a row of STATEMENT holds."""
    return Interval(
        key=(row.component, row.what),
        state=State(row.finding_class, row.actual, row.desired, row.code, row.cause, row.remedy),
        begun=row.begun,
        last=row.last,
        since=row.since,
        not_yet=row.not_yet,
        last_good=row.last_good,
        ended=row.ended,
        end=None if row.ending is None else End(row.ending),
        by=row.told_by,
        ended_by=row.ended_by,
        number=row.id,
    )


def values(each: Interval) -> dict[str, str | datetime | None]:
    """Return the columns of an interval, without those that say whose it is."""
    state = each.state
    return {
        "component": each.key[0],
        "what": each.key[1],
        "code": state.code,
        "finding_class": state.finding_class,
        "actual": state.actual,
        "desired": state.desired,
        "cause": state.cause,
        "remedy": state.remedy,
        "not_yet": each.not_yet,
        "begun": each.begun,
        "last": each.last,
        "ended": each.ended,
        "ending": None if each.end is None else each.end.value,
        "since": each.since,
        "last_good": each.last_good,
        "told_by": each.by,
        "ended_by": each.ended_by,
    }


def portions(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yield the numbers, no more at once than a statement takes."""
    found = list(numbers)
    for at in range(0, len(found), _MOST):
        yield found[at : at + _MOST]
