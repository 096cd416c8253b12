"""The tables of a history: their form, their rows as intervals, and what is pruned.

Their names begin with gpunode_: a database may hold other things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any

import sqlalchemy as sql

from gpunode.history.connection import writing
from gpunode.history.intervals import End, Interval, Key, State
from gpunode.history.place import HistoryError, NewerError, Place

# The last of gpunode/history/migrations/versions.
REVISION = "0002"
VERSION_TABLE = "gpunode_history_version"
# Any number that no other program takes for its own lock.
_LOCK = 0x67_70_75_6E_6F_64_65
# How many values one statement takes: PostgreSQL's protocol has room for 65,535, SQLite for 32,766.
_MOST = 5_000


class Utc(sql.TypeDecorator[datetime]):
    """A time in UTC, also where a database has times without a zone."""

    impl = sql.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sql.Dialect) -> datetime | None:
        if value is None:
            return None
        whole = value.astimezone(UTC)
        return whole if dialect.name == "postgresql" else whole.replace(tzinfo=None)

    def result_processor(self, dialect: sql.Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        return _in_utc


@lru_cache(maxsize=100_000)
def _in_utc(value: str | datetime | None) -> datetime | None:
    """Return a time as a database returns it: a datetime, or SQLite's text. Equal times of many rows are one object."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found and (found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC))


# SQLite counts rows by an INTEGER alone.
Number = sql.BigInteger().with_variant(sql.Integer, "sqlite")
TABLES = sql.MetaData()

# pruned: when what is old was removed last.
inventories = sql.Table(
    "gpunode_inventory",
    TABLES,
    sql.Column("id", Number, primary_key=True),
    sql.Column("name", sql.Text, nullable=False, unique=True),
    sql.Column("pruned", Utc),
)
# first, seen: the first and the last report of it. answered, understood: the last one in which it answered, and was
# understood; judged: in which nothing stayed unknown. late: one of these that came behind a later one.
# gone: since when it is not in the inventory any more.
hosts = sql.Table(
    "gpunode_host",
    TABLES,
    sql.Column("id", Number, primary_key=True),
    sql.Column("inventory_id", Number, sql.ForeignKey("gpunode_inventory.id", ondelete="CASCADE"), nullable=False),
    sql.Column("name", sql.Text, nullable=False),
    sql.Column("first", Utc, nullable=False),
    sql.Column("seen", Utc, nullable=False),
    sql.Column("answered", Utc),
    sql.Column("understood", Utc),
    sql.Column("judged", Utc),
    sql.Column("late", Utc),
    sql.Column("gone", Utc),
    sql.UniqueConstraint("inventory_id", "name", name="gpunode_host_name"),
)
# gpunode/history/intervals.py says what the times are. What is as desired has no row.
findings = sql.Table(
    "gpunode_finding",
    TABLES,
    sql.Column("id", Number, primary_key=True),
    sql.Column("host_id", Number, sql.ForeignKey("gpunode_host.id", ondelete="CASCADE"), nullable=False),
    sql.Column("component", sql.Text, nullable=False),
    sql.Column("what", sql.Text, nullable=False),
    sql.Column("code", sql.Text, nullable=False),
    sql.Column("class", sql.Text, nullable=False, key="finding_class"),
    sql.Column("actual", sql.Text),
    sql.Column("desired", sql.Text),
    sql.Column("cause", sql.Text),
    sql.Column("remedy", sql.Text),
    sql.Column("not_yet", Utc),
    sql.Column("begun", Utc, nullable=False),
    sql.Column("last", Utc, nullable=False),
    sql.Column("ended", Utc),
    sql.Column("ending", sql.Text),
    sql.Column("since", Utc, nullable=False),
    sql.Column("last_good", Utc),
    sql.Column("told_by", sql.Text, nullable=False),
    sql.Column("ended_by", sql.Text),
    sql.Index("gpunode_finding_host", "host_id", "ended"),
    sql.Index("gpunode_finding_begun", "begun"),
    sql.Index("gpunode_finding_ended", "ended"),
)
# What was recorded: a run of a command, or a report. hosts: how many it told of; state: how a rollout stood then.
records = sql.Table(
    "gpunode_record",
    TABLES,
    sql.Column("id", Number, primary_key=True),
    sql.Column("inventory_id", Number, sql.ForeignKey("gpunode_inventory.id", ondelete="CASCADE"), nullable=False),
    sql.Column("at", Utc, nullable=False),
    sql.Column("command", sql.Text, nullable=False),
    sql.Column("gpunode", sql.Text, nullable=False),
    sql.Column("hosts", sql.Integer, nullable=False),
    sql.Column("whole", sql.Boolean, nullable=False),
    sql.Column("exit_code", sql.Integer, nullable=False),
    sql.Column("state", sql.Text),
    sql.Index("gpunode_record_at", "inventory_id", "at"),
)
STATEMENT: sql.Select[Any] = sql.select(findings)
# Fields of an interval that are columns of the same name.
_SAME = ("not_yet", "begun", "last", "ended", "since", "last_good", "ended_by")


def prepare(connection: sql.Connection) -> None:
    """Bring the tables to REVISION within this transaction, which writes; raise NewerError where they are newer."""
    if expect(connection):
        return
    if connection.dialect.name == "postgresql":
        # Another writer may be about to do the same; SQLite's transaction has the whole file.
        connection.execute(sql.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if expect(connection):
            return
    _upgrade(connection)


def expect(connection: sql.Connection) -> bool:
    """Say whether the tables are of REVISION; False where there are none, or older ones. Raise NewerError."""
    has_tables = sql.inspect(connection).has_table(VERSION_TABLE)
    revision = connection.execute(sql.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar() if has_tables else None
    if revision is not None and revision > REVISION:
        raise NewerError(
            f"a newer gpunode has written this history (its tables are of revision {revision[:40]}, this gpunode knows "
            f"{REVISION}): update gpunode, or name another history"
        )
    return revision == REVISION


def _upgrade(connection: sql.Connection) -> None:
    # Late: it takes as long as SQLAlchemy itself, and is needed once.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "gpunode.history:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, REVISION)
    except CommandError as error:
        raise HistoryError(f"the history's tables could not be brought to revision {REVISION}: {error}") from None


def interval(row: sql.Row[Any]) -> Interval:
    """Return the interval that a row of STATEMENT holds."""
    number, _, component, what, code, kind, actual, desired, cause, remedy, not_yet, begun, last, *others = tuple(row)
    ended, ending, since, last_good, by, ended_by = others
    key, state = _key(component, what), _state(kind, actual, desired, code, cause, remedy)
    end = None if ending is None else End(ending)
    by, ended_by = intern(by), ended_by and intern(ended_by)
    return Interval(key, state, begun, last, since, not_yet, last_good, ended, end, by, ended_by, number)


@lru_cache(maxsize=10_000)
def _key(component: str, what: str) -> Key:
    """Return a key, the same object for all rows of a result that have it."""
    return component, what


# Most hosts of a fleet have the same differences.
_state = lru_cache(maxsize=10_000)(State)


def values(each: Interval) -> dict[str, str | datetime | None]:
    """Return the columns of an interval, without those that say whose it is."""
    return {
        "component": each.key[0],
        "what": each.key[1],
        **vars(each.state),
        "ending": None if each.end is None else each.end.value,
        "told_by": each.by,
        **{name: getattr(each, name) for name in _SAME},
    }


def portions(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yield the numbers, no more at once than a statement takes."""
    found = list(numbers)
    for at in range(0, len(found), _MOST):
        yield found[at : at + _MOST]


@dataclass(frozen=True)
class Pruned:
    """Hold how much was removed."""

    findings: int
    records: int
    hosts: int


def prune(place: Place, before: datetime) -> Pruned:
    """Remove what ended, and was recorded, before a time, of all inventories; raise HistoryError."""
    return _removed(place, prune_within, before)


def forget(place: Place, after: datetime) -> Pruned:
    """Remove what was recorded as later than a time, of all inventories; raise HistoryError."""
    return _removed(place, _forget_within, after)


def _removed(place: Place, remove: Callable[[sql.Connection, datetime, int], Pruned], time: datetime) -> Pruned:
    found = Pruned(0, 0, 0)
    with writing(place) as connection:
        prepare(connection)
        asked = sql.select(inventories.c.id).order_by(inventories.c.id).with_for_update()
        for number in connection.execute(asked).scalars().all():
            one = remove(connection, time, number)
            found = Pruned(found.findings + one.findings, found.records + one.records, found.hosts + one.hosts)
    return found


def prune_within(connection: sql.Connection, before: datetime, inventory: int) -> Pruned:
    """Remove it of one inventory, within a transaction that writes."""
    of_inventory = sql.select(hosts.c.id).where(hosts.c.inventory_id == inventory)
    old = sql.delete(findings).where(findings.c.host_id.in_(of_inventory), findings.c.ended < before)
    ended = connection.execute(old).rowcount
    recorded = connection.execute(
        sql.delete(records).where(records.c.inventory_id == inventory, records.c.at < before)
    ).rowcount
    kept = sql.exists().where(findings.c.host_id == hosts.c.id)
    gone = connection.execute(sql.delete(hosts).where(hosts.c.inventory_id == inventory, hosts.c.gone < before, ~kept))
    return Pruned(ended, recorded, gone.rowcount)


def _forget_within(connection: sql.Connection, after: datetime, inventory: int) -> Pruned:
    """Remove it of one inventory, within a transaction that writes.

    A finding that a later report ended is so again. When it was last found before `after` is not recorded: that it was
    at its begin is known.
    """
    of_inventory, later = hosts.c.inventory_id == inventory, findings.c.last > after
    within = findings.c.host_id.in_(sql.select(hosts.c.id).where(of_inventory))
    begun = connection.execute(sql.delete(findings).where(within, findings.c.begun > after)).rowcount
    reopened = {"ended": None, "ending": None, "ended_by": None}
    connection.execute(sql.update(findings).where(within, findings.c.ended > after).values(reopened))
    connection.execute(sql.update(findings).where(within, later).values(last=findings.c.begun))
    of_records = records.c.inventory_id == inventory
    recorded = connection.execute(sql.delete(records).where(of_records, records.c.at > after)).rowcount
    gone = connection.execute(sql.delete(hosts).where(of_inventory, hosts.c.first > after)).rowcount
    # No report of a host is later than the last that is recorded of its inventory.
    last = connection.execute(sql.select(sql.func.max(records.c.at)).where(of_records)).scalar()
    seen = hosts.c.first if last is None else last
    connection.execute(sql.update(hosts).where(of_inventory, hosts.c.seen > after).values(seen=seen))
    for name in ("answered", "understood", "judged", "late", "gone"):
        connection.execute(sql.update(hosts).where(of_inventory, hosts.c[name] > after).values({name: None}))
    pruned = inventories.c.pruned > after
    connection.execute(sql.update(inventories).where(inventories.c.id == inventory, pruned).values(pruned=None))
    return Pruned(begun, recorded, gone)
