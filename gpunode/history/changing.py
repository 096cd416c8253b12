"""Ask a history what changed between two times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, func, or_, select

from gpunode.history.asking import Question, fitting, of, refuse_unknown, with_hosts
from gpunode.history.intervals import End, Interval
from gpunode.history.rows import STATEMENT, interval
from gpunode.history.tables import findings, hosts, inventories, records

# Commands that change nodes, which stand among what changed.
RUNS = ("apply", "rollout")


class Kind(StrEnum):
    """Name what happened."""

    BEGAN = "began"
    CHANGED = "changed"
    ENDED = "ended"
    JOINED = "joined"
    LEFT = "left"
    RAN = "ran"


@dataclass(frozen=True)
class Change:
    """Hold what happened when: of a finding with how it was before and after, of a host, or a run with how it ended.

    earliest: when it was last known to be otherwise: it happened between that and `at`. by: the command that told it
    """

    at: datetime
    kind: Kind
    inventory: str
    host: str | None = None
    before: Interval | None = None
    after: Interval | None = None
    earliest: datetime | None = None
    by: str | None = None
    run: str | None = None


def changes(connection: Connection, question: Question, since: datetime, until: datetime) -> list[Change]:
    """Return what happened between two times, in order."""
    refuse_unknown(connection, question)
    in_time = or_(findings.c.begun.between(since, until), findings.c.ended.between(since, until))
    asked = (
        with_hosts(STATEMENT.add_columns(hosts.c.gone), question)
        .where(in_time)
        .order_by(findings.c.begun, findings.c.id)
    )
    rows = [(row.inventory, row.host, interval(row), row.gone) for row in fitting(connection, asked, question)]
    changed = {(where, host, each.key, each.ended): each for where, host, each, _ in rows if each.end is End.CHANGED}
    found: list[Change] = []
    for where, host, each, gone in rows:
        before = changed.get((where, host, each.key, each.begun))
        if since <= each.begun <= until:
            kind = Kind.BEGAN if before is None else Kind.CHANGED
            found.append(Change(each.begun, kind, where, host, before, each, each.not_yet, each.by))
        # That a host left is told of the host, but of one that came back since.
        is_told = each.end is not End.CHANGED and (each.end is not End.LEFT or gone is None)
        if each.ended is not None and since <= each.ended <= until and is_told:
            found.append(Change(each.ended, Kind.ENDED, where, host, each, None, each.last, each.ended_by))
    if not question.components and not question.codes:
        found += _of_hosts(connection, question, since, until)
        found += _runs(connection, question, since, until) if not question.hosts else []
    return sorted(found, key=lambda each: each.at)


def _of_hosts(connection: Connection, question: Question, since: datetime, until: datetime) -> Iterator[Change]:
    """Yield the hosts that came behind the first report of their whole inventory, and those that left it."""
    begin = select(records.c.inventory_id, func.min(records.c.at).label("begin")).where(records.c.whole)
    begun = begin.group_by(records.c.inventory_id).subquery()
    asked = of(
        select(inventories.c.name, hosts.c.name, hosts.c.first, hosts.c.seen, hosts.c.gone, begun.c.begin)
        .join(inventories, inventories.c.id == hosts.c.inventory_id)
        .outerjoin(begun, begun.c.inventory_id == inventories.c.id)
        .where(or_(hosts.c.first.between(since, until), hosts.c.gone.between(since, until))),
        question,
    )
    for where, host, first, seen, gone, first_of_all in connection.execute(asked):
        if question.fits_host(host):
            if since <= first <= until and first_of_all is not None and first > first_of_all:
                yield Change(first, Kind.JOINED, where, host)
            if gone is not None and since <= gone <= until:
                yield Change(gone, Kind.LEFT, where, host, earliest=seen)


def _runs(connection: Connection, question: Question, since: datetime, until: datetime) -> Sequence[Change]:
    asked = of(
        select(inventories.c.name, records)
        .join(inventories, inventories.c.id == records.c.inventory_id)
        .where(records.c.at.between(since, until), records.c.command.in_(RUNS)),
        question,
    )
    return [
        Change(row.at, Kind.RAN, row.name, run=_ended(row.state, row.exit_code), by=row.command)
        for row in connection.execute(asked)
        # The readings behind a rollout's waves have no state of their own.
        if row.command != "rollout" or row.state is not None
    ]


def _ended(state: str | None, exit_code: int) -> str:
    return f"{state or 'ended'}, exit code {exit_code}"
