"""Ask a history what is so, and since when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select

from gpunode.base.findings import CLUSTER
from gpunode.history.connection import reading, writing
from gpunode.history.errors import NothingError
from gpunode.history.intervals import Interval
from gpunode.history.place import Place
from gpunode.history.rows import STATEMENT, interval
from gpunode.history.schema import expect, prepare
from gpunode.history.tables import findings, hosts, inventories, records


@dataclass(frozen=True)
class Question:
    """Hold what is asked for: an inventory, patterns of hosts, components, codes; all of them where none is named."""

    inventory: str | None = None
    hosts: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    def fits(self, host: str, component: str, code: str) -> bool:
        """Say whether a finding is asked for; a code stands for those behind it too: `driver` for `driver.held`."""
        return (
            self.fits_host(host)
            and (not self.components or component in self.components)
            and (not self.codes or any(code == each or code.startswith(f"{each}.") for each in self.codes))
        )

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


@dataclass(frozen=True)
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
    asked = with_hosts(STATEMENT.add_columns(hosts.c.seen, hosts.c.first), question).where(so)
    found = (
        Answer(row.inventory, row.host, each := interval(row), row.seen, each.since <= row.first)
        for row in fitting(connection, asked.order_by(inventories.c.name, hosts.c.id, findings.c.id), question)
    )
    return list(found)


def with_hosts(asked: Select[Any], question: Question) -> Select[Any]:
    """Return a query of findings with the names of host and inventory, of those that are asked for."""
    asked = asked.add_columns(hosts.c.name.label("host"), inventories.c.name.label("inventory"))
    asked = asked.join(hosts, hosts.c.id == findings.c.host_id)
    return of(asked.join(inventories, inventories.c.id == hosts.c.inventory_id), question)


def of(asked: Select[Any], question: Question) -> Select[Any]:
    """Return a query of the inventory that is asked for."""
    return asked if question.inventory is None else asked.where(inventories.c.name == question.inventory)


def fitting(connection: Connection, asked: Select[Any], question: Question) -> Iterator[Row[Any]]:
    """Return the rows of findings that are asked for."""
    return (row for row in connection.execute(asked) if question.fits(row.host, row.component, row.code))
