"""Write what a document tells into a history: one transaction, in which nobody else writes of the same inventory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, Table, bindparam, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gpunode.base.findings import CLUSTER
from gpunode.history.connection import writing
from gpunode.history.intervals import End, Interval, Key, Reading, merged
from gpunode.history.place import Place
from gpunode.history.tables import (
    STATEMENT,
    findings,
    hosts,
    interval,
    inventories,
    portions,
    prepare,
    prune_within,
    records,
    values,
)
from gpunode.history.told import CONNECTION, STATE, Host, Told

# As many hosts are asked for one by one; of more, all of the inventory.
_SINGLE = 500
_BETWEEN_PRUNINGS = timedelta(days=1)


# Host -> finding -> (when it was first found, when it was last known to be as desired).
Since = Mapping[str, Mapping[Key, tuple[datetime, datetime | None]]]


class _Times(NamedTuple):
    """Hold the times of a host, as its table has them."""

    first: datetime
    seen: datetime
    answered: datetime | None = None
    understood: datetime | None = None
    judged: datetime | None = None
    late: datetime | None = None
    gone: datetime | None = None


@dataclass(frozen=True)
class _Known:
    """Hold what is known of a host: its row's number, its times, and its intervals."""

    number: int
    times: _Times
    intervals: dict[Key, list[Interval]] = field(default_factory=dict)

    def good(self, key: Key) -> tuple[datetime, ...]:
        """Return when a finding would have been told, had it been there."""
        of_host = {CONNECTION: (self.times.answered,), STATE: (self.times.understood,)}
        times = of_host.get(key, (self.times.judged, self.times.late))
        return tuple(time for time in times if time is not None)

    def after(self, at: datetime, host: Host) -> _Known:
        """Return what is known of it after one more report."""
        old = self.times
        new = old._replace(first=min(old.first, at), seen=max(old.seen, at))
        if host.has_answered:
            new = new._replace(answered=_later(old.answered, at))
        if host.is_understood:
            new = new._replace(understood=_later(old.understood, at))
        if host.is_known:
            judged = _later(old.judged, at)
            new = new._replace(judged=judged, late=old.late if judged == at else at)
        return replace(self, times=new if old.gone is None or old.gone > at else new._replace(gone=None))


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)


def record(place: Place, told: Told, name: str, keep: timedelta | None = None) -> Since:
    """Write it, and remove once a day what is older than `keep`; return since when the hosts' findings are so.

    Raise HistoryError where that cannot be done. A document that was written before changes nothing.

    name: of the inventory; keep: None keeps everything
    """
    with writing(place) as connection:
        prepare(connection)
        number, pruned = inventory(connection, name)
        known = _hosts(connection, number, told)
        _load(connection, number, known, told)
        changes = _Changes(connection, told)
        for host in told.hosts:
            known[host.name] = changes.host(known[host.name], host)
        if told.whole:
            names = {host.name for host in told.hosts} | (set() if told.has_cluster else {CLUSTER})
            changes.left(each for name, each in known.items() if name not in names and each.times.seen < told.at)
        changes.write()
        _note(connection, number, told)
        now = datetime.now(UTC)
        if keep is not None and (pruned is None or now - pruned >= _BETWEEN_PRUNINGS):
            prune_within(connection, now - keep, number)
            connection.execute(update(inventories).where(inventories.c.id == number).values(pruned=now))
        return changes.since


def inventory(connection: Connection, name: str) -> tuple[int, datetime | None]:
    """Return an inventory's number, and when it was pruned; until this transaction ends nobody else writes of it."""
    fresh = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(inventories)
    connection.execute(fresh.values(name=name).on_conflict_do_nothing())
    asked = select(inventories.c.id, inventories.c.pruned).where(inventories.c.name == name).with_for_update()
    number, pruned = connection.execute(asked).one()
    return number, pruned


def _hosts(connection: Connection, number: int, told: Told) -> dict[str, _Known]:
    """Return the inventory's hosts by name, with those that are new."""
    asked = select(hosts.c.name, hosts.c.id, *(hosts.c[name] for name in _Times._fields)).where(
        hosts.c.inventory_id == number
    )
    if not told.whole and len(told.hosts) <= _SINGLE:
        asked = asked.where(hosts.c.name.in_([host.name for host in told.hosts]))
    known = {row.name: _Known(row.id, _Times(*row[2:])) for row in connection.execute(asked)}
    # Of a host that is told of twice, the earlier time stands first.
    first: dict[str, datetime] = {}
    for host in told.hosts:
        if host.name not in known:
            first.setdefault(host.name, host.at)
    fresh = [{"inventory_id": number, "name": name, "first": at, "seen": at} for name, at in first.items()]
    if fresh:
        whole = select(func.max(records.c.at)).where(records.c.inventory_id == number, records.c.whole)
        last = connection.execute(whole).scalar()
        for new, name in connection.execute(insert(hosts).returning(hosts.c.id, hosts.c.name), fresh):
            # As if it had been seen just before: what is told now is told in order.
            at = first[name]
            # One of which the whole inventory knew nothing, later than this, had left by then.
            gone = last if last is not None and at < last else None
            known[name] = _Known(new, _Times(at, at - timedelta(seconds=1), gone=gone))
    return known


def _load(connection: Connection, number: int, known: Mapping[str, _Known], told: Told) -> None:
    """Fill in the intervals: those that have not ended, and all of hosts of which something later was told before."""
    by_number = {each.number: each for each in known.values()}
    late = {each.number for host in told.hosts if (each := known[host.name]).times.seen >= host.at}
    asked = [STATEMENT.where(findings.c.host_id.in_(some), findings.c.ended.is_not(None)) for some in portions(late)]
    still = STATEMENT.where(findings.c.ended.is_(None))
    if len(by_number) <= _SINGLE:
        asked.append(still.where(findings.c.host_id.in_(list(by_number))))
    else:
        asked.append(still.join(hosts, hosts.c.id == findings.c.host_id).where(hosts.c.inventory_id == number))
    for statement in asked:
        _take(connection, statement, by_number)
    # What begins now, and ended since all of the host was read last: it was not as desired at that time.
    pairs = ((known[host.name], host) for host in told.hosts)
    again = {each.number for each, host in pairs if not host.states.keys() <= each.intervals.keys()} - late
    lately = or_(hosts.c.judged.is_(None), findings.c.ended >= hosts.c.judged)
    for some in portions(again):
        ended = STATEMENT.join(hosts, hosts.c.id == findings.c.host_id).where(findings.c.ended.is_not(None), lately)
        _take(connection, ended.where(findings.c.host_id.in_(some)), by_number)


def _take(connection: Connection, statement: Select[Any], by_number: Mapping[int, _Known]) -> None:
    for row in connection.execute(statement):
        found = interval(row)
        by_number[row.host_id].intervals.setdefault(found.key, []).append(found)


class _Changes:
    """Gather what a document changes, and write it in few statements, however many hosts it tells of."""

    def __init__(self, connection: Connection, told: Told) -> None:
        self._connection, self._told = connection, told
        self._last: dict[datetime, list[int]] = {}
        self._changed: list[dict[str, Any]] = []
        self._fresh: list[dict[str, Any]] = []
        self._hosts: dict[int, _Times] = {}
        self.since: dict[str, dict[Key, tuple[datetime, datetime | None]]] = {}

    def host(self, known: _Known, host: Host) -> _Known:
        """Take what is told of a host; return what is known of its times then."""
        at = host.at
        open_now: dict[Key, tuple[datetime, datetime | None]] = {}
        for key in dict.fromkeys((*host.states, *known.intervals)):
            before, found = known.intervals.get(key, []), host.found(key)
            after: Iterable[Interval] = before
            if found is not None and (before or not isinstance(found, End)):
                after = merged(before, key, Reading(at, self._told.command, found, known.good(key), known.times.gone))
                self._differing(known, before, after, at)
            for each in after:
                if each.ended is None:
                    open_now[key] = (each.since, each.last_good)
        if open_now:
            self.since.setdefault(host.name, {}).update(open_now)
        known = known.after(at, host)
        self._hosts[known.number] = known.times
        return known

    def left(self, gone: Iterable[_Known]) -> None:
        """Take that hosts are in the inventory no longer."""
        at = self._told.at
        for known in gone:
            if known.times.gone is not None:
                continue
            for key, before in known.intervals.items():
                self._differing(known, before, merged(before, key, Reading(at, self._told.command, End.LEFT)), at)
            self._hosts[known.number] = known.times._replace(gone=at)

    def _differing(self, known: _Known, before: Iterable[Interval], after: Iterable[Interval], at: datetime) -> None:
        former = {each.number: each for each in before}
        for each in after:
            if each.number is None:
                self._fresh.append({"host_id": known.number, **values(each)})
                continue
            was = former[each.number]
            row = values(each)
            if row == values(was):
                continue
            if each.last == at and row == values(replace(was, last=at)):
                self._last.setdefault(at, []).append(each.number)
            else:
                self._changed.append({"number": each.number, **row})

    def write(self) -> None:
        connection = self._connection
        self._each(findings, {number: (at,) for at, numbers in self._last.items() for number in numbers}, ("last",))
        if self._changed:
            columns: dict[str, Any] = {name: bindparam(name) for name in self._changed[0] if name != "number"}
            connection.execute(
                update(findings).where(findings.c.id == bindparam("number")).values(columns), self._changed
            )
        if self._fresh:
            connection.execute(insert(findings), self._fresh)
        self._each(hosts, self._hosts, _Times._fields)

    def _each(self, table: Table, rows: Mapping[int, tuple[Any, ...]], names: tuple[str, ...]) -> None:
        """Update rows: with one statement for all that get the same, as most do, or one for each."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for number, new in rows.items():
            alike.setdefault(tuple(new), []).append(number)
        if len(alike) > _SINGLE:
            each = update(table).where(table.c.id == bindparam("number"))
            told = [{"number": number, **dict(zip(names, new, strict=True))} for number, new in rows.items()]
            self._connection.execute(each.values({name: bindparam(name) for name in names}), told)
            return
        for new, numbers in alike.items():
            for some in portions(numbers):
                statement = update(table).where(table.c.id.in_(some))
                self._connection.execute(statement.values(dict(zip(names, new, strict=True))))


def _note(connection: Connection, number: int, told: Told) -> None:
    """Note that it was recorded, once."""
    row = {
        "inventory_id": number,
        "at": told.at,
        "command": told.command,
        "hosts": told.nodes,
        "whole": told.whole,
        "gpunode": told.gpunode,
        "exit_code": told.exit_code,
        "state": told.state,
    }
    same = [records.c[name] == row[name] for name in ("inventory_id", "at", "command", "hosts")]
    if connection.execute(select(records.c.id).where(*same).limit(1)).first() is None:
        connection.execute(insert(records).values(row))
