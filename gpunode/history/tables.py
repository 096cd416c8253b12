"""The tables of a history. Their names begin with gpunode_: a database may hold other things."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)


class Utc(TypeDecorator[datetime]):
    """A time in UTC, also where a database has times without a zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time as the database takes it."""
        if value is None:
            return None
        whole = value.astimezone(UTC)
        return whole if dialect.name == "postgresql" else whole.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time with its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# SQLite counts rows by an INTEGER alone.
Number = BigInteger().with_variant(Integer, "sqlite")
TABLES = MetaData()

# pruned: when what is old was removed last.
inventories = Table(
    "gpunode_inventory",
    TABLES,
    Column("id", Number, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("pruned", Utc),
)
# first, seen: the first and the last report of it. answered, understood: the last one in which it answered, and was
# understood; judged: in which nothing stayed unknown. late: one of these that came behind a later one.
# gone: since when it is not in the inventory any more.
hosts = Table(
    "gpunode_host",
    TABLES,
    Column("id", Number, primary_key=True),
    Column("inventory_id", Number, ForeignKey("gpunode_inventory.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("first", Utc, nullable=False),
    Column("seen", Utc, nullable=False),
    Column("answered", Utc),
    Column("understood", Utc),
    Column("judged", Utc),
    Column("late", Utc),
    Column("gone", Utc),
    UniqueConstraint("inventory_id", "name", name="gpunode_host_name"),
)
# gpunode/history/intervals.py says what the times are. What is as desired has no row.
findings = Table(
    "gpunode_finding",
    TABLES,
    Column("id", Number, primary_key=True),
    Column("host_id", Number, ForeignKey("gpunode_host.id", ondelete="CASCADE"), nullable=False),
    Column("component", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("class", Text, nullable=False, key="finding_class"),
    Column("actual", Text),
    Column("desired", Text),
    Column("cause", Text),
    Column("remedy", Text),
    Column("not_yet", Utc),
    Column("begun", Utc, nullable=False),
    Column("last", Utc, nullable=False),
    Column("ended", Utc),
    Column("ending", Text),
    Column("since", Utc, nullable=False),
    Column("last_good", Utc),
    Column("told_by", Text, nullable=False),
    Column("ended_by", Text),
    Index("gpunode_finding_host", "host_id", "ended"),
    Index("gpunode_finding_begun", "begun"),
    Index("gpunode_finding_ended", "ended"),
)
# What was recorded: a run of a command, or a report. hosts: how many it told of; state: how a rollout stood then.
records = Table(
    "gpunode_record",
    TABLES,
    Column("id", Number, primary_key=True),
    Column("inventory_id", Number, ForeignKey("gpunode_inventory.id", ondelete="CASCADE"), nullable=False),
    Column("at", Utc, nullable=False),
    Column("command", Text, nullable=False),
    Column("gpunode", Text, nullable=False),
    Column("hosts", Integer, nullable=False),
    Column("whole", Boolean, nullable=False),
    Column("exit_code", Integer, nullable=False),
    Column("state", Text),
    Index("gpunode_record_at", "inventory_id", "at"),
)
