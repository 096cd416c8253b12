"""The form of a history's tables: made where there are none, brought to this gpunode's, refused where it is newer."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from gpunode.history.errors import HistoryError, NewerError

# The last of gpunode/history/migrations/versions.
REVISION = "0002"
VERSION_TABLE = "gpunode_history_version"
# Any number that no other program takes for its own lock.
_LOCK = 0x67_70_75_6E_6F_64_65


def found(connection: Connection) -> str | None:
    """Return the revision of the tables; None where there are none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def prepare(connection: Connection) -> None:
    """Bring the tables to REVISION within this transaction, which writes; raise NewerError where they are newer."""
    if expect(connection):
        return
    if connection.dialect.name == "postgresql":
        # Another writer may be about to do the same; SQLite's transaction has the whole file.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if expect(connection):
            return
    _upgrade(connection)


def expect(connection: Connection) -> bool:
    """Say whether the tables are of REVISION; False where there are none, or older ones. Raise NewerError."""
    revision = found(connection)
    if revision is not None and revision > REVISION:
        raise NewerError(
            f"a newer gpunode has written this history (its tables are of revision {revision[:40]}, this gpunode knows "
            f"{REVISION}): update gpunode, or name another history"
        )
    return revision == REVISION


def _upgrade(connection: Connection) -> None:
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
