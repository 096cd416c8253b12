"""A connection to a history: opened within seconds or refused, in one transaction, with what a failure means.

SQLite's file is its owner's alone, and written ahead (WAL), so that who asks does not wait for who writes. What writes
takes the whole file, or a row of PostgreSQL's, for as long as its transaction lasts.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from gpunode.history.place import HistoryError, NoDriverError, NothingError, Place

# Seconds for a server to answer, for another writer to end, and for one statement.
ANSWER_SECONDS, WAIT_SECONDS, STATEMENT_SECONDS = 5, 30, 60
_WRITES = "gpunode_writes"
_SETTINGS = {"lock_timeout": f"{WAIT_SECONDS}s", "statement_timeout": f"{STATEMENT_SECONDS}s", "timezone": "UTC"}
_DRIVER = "what speaks with PostgreSQL is not installed: `pip install 'gpunode[postgresql]'`"


@contextmanager
def writing(place: Place) -> Iterator[Connection]:
    """Yield a connection that may write; what was written counts as a whole, or not at all. Raise HistoryError."""
    with _explained(place):
        if place.file is not None:
            _make(place.file)
        with _engine(place).connect().execution_options(**{_WRITES: True}) as connection, connection.begin():
            yield connection


@contextmanager
def reading(place: Place) -> Iterator[Connection]:
    """Yield a connection that sees one state of the history; raise NothingError where there is none."""
    with _explained(place):
        if place.file is not None and not place.file.exists():
            raise NothingError(f"there is no history yet: {place} is not there; `gpunode drift` begins it")
        with _engine(place).connect() as connection, connection.begin():
            yield connection


@cache
def _engine(place: Place) -> Engine:
    """Return how to connect to a place; kept, with the statements that it has made ready, and no connection."""
    if place.file is None:
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise NoDriverError(_DRIVER) from None
        words = {"connect_timeout": ANSWER_SECONDS, "application_name": "gpunode"}
        engine = create_engine(
            place.for_sqlalchemy(), poolclass=NullPool, connect_args=words, isolation_level="READ COMMITTED"
        )
        event.listen(engine, "begin", _set)
        return engine
    engine = create_engine(place.for_sqlalchemy(), poolclass=NullPool, connect_args={"timeout": WAIT_SECONDS})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _set(connection: Connection) -> None:
    for name, value in _SETTINGS.items():
        connection.exec_driver_sql(f"SET LOCAL {name} = '{value}'")


def _prepare(connection: sqlite3.Connection, _: Any) -> None:
    # Transactions are begun below: Python's own would begin with the first change, when another writer may have come.
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _make(file: Path) -> None:
    """Make the file, which nobody else may read; SQLite gives its journals the same mode."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


@contextmanager
def _explained(place: Place) -> Iterator[None]:
    """Raise what went wrong as a HistoryError, with the database's own words, of which none is a statement."""
    try:
        yield
    except OSError as error:
        raise HistoryError(f"{place} cannot be used: {error.strerror or error}; {_remedy(place)}") from None
    except DBAPIError as error:
        said = " ".join(str(error.orig).split()) or type(error.orig).__name__
        raise HistoryError(f"{place} cannot be used: {said}; {_remedy(place)}") from None
    except SQLAlchemyError:
        raise HistoryError(f"{place} cannot be used: SQLAlchemy refuses it; {_remedy(place)}") from None


def _remedy(place: Place) -> str:
    if place.file is not None:
        return "mend that, or name another file by --history"
    return "look at the server, the user's rights there, and its password (a PGPASSFILE)"
