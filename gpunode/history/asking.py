"""Ask a history what is so, since when, and what changed between two times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select, true

from gpunode.base.findings import CLUSTER
from gpunode.history.connection import reading, writing
from gpunode.history.intervals import End, Interval
from gpunode.history.place import NothingError, Place
from gpunode.history.tables import STATEMENT, expect, findings, hosts, interval, inventories, portions, prepare, records


@dataclass(frozen=True)
class Question:
    """Hold what is asked for: an inventory, patterns of hosts, components, codes; all of them where none is named."""

    inventory: str | None = None
    hosts: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    def condition(self) -> ColumnElement[bool]:
        """Return which findings match components and codes; the code `driver` includes `driver.held`."""
        code, named = findings.c.code, findings.c.component.in_(self.components) if self.components else true()
        # No LIKE: SQLite's does not tell capitals apart.
        below = (func.substr(code, 1, len(each) + 1) == f"{each}." for each in self.codes)
        return and_(named, or_(code.in_(self.codes), *below) if self.codes else true())

    def fits_host(self, host: str) -> bool:
        """Say whether a host is asked for."""
        return not self.hosts or any(fnmatchcase(host, pattern) for pattern in self.hosts)


@dataclass(frozen=True)
class Known:
    """Hold an inventory: its hosts, when it was first and last told of, and how many times."""

    name: str
    hosts: int
    first: datetime | None
    last: datetime | None
    records: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold a finding of a host, how long it was so, and when the host was told of last.

    from_first: whether it was so when the host was first told of: it may have been so for longer
    """

    inventory: str
    host: str
    interval: Interval
    seen: datetime
    from_first: bool


@contextmanager
def asking(place: Place) -> Iterator[Connection]:
    """Yield a connection to tables of this gpunode's form, which older ones are brought to; raise HistoryError."""
    with reading(place) as connection:
        is_current = expect(connection)
    if not is_current:
        with writing(place) as connection:
            prepare(connection)
    with reading(place) as connection:
        yield connection


def known(connection: Connection) -> list[Known]:
    """Return the inventories, by their names."""
    of_hosts = (
        select(hosts.c.inventory_id, func.count().label("hosts"))
        .where(hosts.c.gone.is_(None), hosts.c.name != CLUSTER)
        .group_by(hosts.c.inventory_id)
        .subquery()
    )
    of_records = (
        select(
            records.c.inventory_id,
            func.count().label("records"),
            func.min(records.c.at).label("first"),
            func.max(records.c.at).label("last"),
        )
        .group_by(records.c.inventory_id)
        .subquery()
    )
    asked = (
        select(inventories.c.name, of_hosts.c.hosts, of_records.c.first, of_records.c.last, of_records.c.records)
        .outerjoin(of_hosts, of_hosts.c.inventory_id == inventories.c.id)
        .outerjoin(of_records, of_records.c.inventory_id == inventories.c.id)
        .order_by(inventories.c.name)
    )
    return [Known(name, count or 0, first, last, told or 0) for name, count, first, last, told in
            connection.execute(asked)]  # fmt: skip


def refuse_unknown(connection: Connection, question: Question) -> None:
    """Raise NothingError where the history has nothing of the inventory that is asked for."""
    names = [each.name for each in known(connection)]
    if question.inventory is not None and question.inventory not in names:
        others = f"; it has {', '.join(names)}" if names else ", nor of any other"
        raise NothingError(f"the history has nothing of {question.inventory}{others}")


def answers(connection: Connection, question: Question, at: datetime | None = None) -> list[Answer]:
    """Return what is not as desired, by the last report of each host; `at`: what was so then, as far as is known."""
    refuse_unknown(connection, question)
    so: ColumnElement[bool] = findings.c.ended.is_(None)
    if at is not None:
        so = and_(findings.c.begun <= at, or_(findings.c.ended.is_(None), findings.c.ended > at))
    return [
        Answer(host.inventory, host.name, each, host.seen, each.since <= host.first)
        for host, each in _intervals(connection, question, so)
    ]


def _intervals(
    connection: Connection, question: Question, which: ColumnElement[bool]
) -> Iterator[tuple[Row[Any], Interval]]:
    """Yield the intervals that match, each with its host's row, in the order of inventories, hosts and findings."""
    asked = of(
        select(inventories.c.name.label("inventory"), hosts)
        .join(inventories, inventories.c.id == hosts.c.inventory_id)
        .order_by(inventories.c.name, hosts.c.id),
        question,
    )
    statement = STATEMENT.where(which, question.condition()).order_by(findings.c.host_id, findings.c.id)
    for _, group in groupby(connection.execute(asked).all(), lambda host: host.inventory):
        of_hosts = {host.id: host for host in group if question.fits_host(host.name)}
        for some in portions(of_hosts):
            within = statement.where(findings.c.host_id.in_(some))
            # Without a second copy of all rows in memory.
            rows = connection.execute(within, execution_options={"yield_per": 1_000})
            yield from ((of_hosts[row.host_id], interval(row)) for row in rows)


def of(asked: Select[Any], question: Question) -> Select[Any]:
    """Return a query of the inventory that is asked for."""
    return asked if question.inventory is None else asked.where(inventories.c.name == question.inventory)


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


@dataclass(frozen=True, slots=True)
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
    rows = sorted(_intervals(connection, question, in_time), key=lambda row: (row[1].begun, row[1].number or 0))
    changed = {(host.id, each.key, each.ended): each for host, each in rows if each.end is End.CHANGED}
    found: list[Change] = []
    for host, each in rows:
        where, name, gone = host.inventory, host.name, host.gone
        before = changed.get((host.id, each.key, each.begun))
        if since <= each.begun <= until:
            kind = Kind.BEGAN if before is None else Kind.CHANGED
            found.append(Change(each.begun, kind, where, name, before, each, each.not_yet, each.by))
        # That a host left is told of the host, but of one that came back since.
        is_told = each.end is not End.CHANGED and (each.end is not End.LEFT or gone is None)
        if each.ended is not None and since <= each.ended <= until and is_told:
            found.append(Change(each.ended, Kind.ENDED, where, name, each, None, each.last, each.ended_by))
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
        Change(row.at, Kind.RAN, row.name, run=f"{row.state or 'ended'}, exit code {row.exit_code}", by=row.command)
        for row in connection.execute(asked)
        # The readings behind a rollout's waves have no state of their own.
        if row.command != "rollout" or row.state is not None
    ]
