"""The tables of a history: what the migrations make is what the code asks, older ones are brought to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from gpunode.history.asking import Question, answers, asking
from gpunode.history.connection import writing
from gpunode.history.place import NewerError, Place
from gpunode.history.tables import REVISION, TABLES, VERSION_TABLE, prepare
from gpunode.history.told import told
from gpunode.history.writing import record
from tests.support import postgresql
from tests.support.history_documents import GOOD, OLD, at, document

# A history of each older revision with one finding: what a migration has to keep.
OLD_ROWS = (Path(__file__).parent / "data" / "history_old_rows.sql").read_text()


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=[pytest.mark.real, pytest.mark.tier2])])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a history without tables."""
    if request.param == "SQLite":
        yield Place(tmp_path / "history.sqlite")
        return
    server: postgresql.Server = request.getfixturevalue("server")
    monkeypatch.setenv("PGPASSFILE", str(server.passfile))
    yield Place(url=server.make(f"schema_{tmp_path.name}"))


def migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", "gpunode.history:migrations")
    return config


def revisions() -> list[str]:
    """Return the revisions, the first one first."""
    return [each.revision for each in ScriptDirectory.from_config(migrations()).walk_revisions()][::-1]


def brought_to(connection: Connection, revision: str) -> None:
    config = migrations()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def test_the_last_revision_is_the_one_that_is_asked_for() -> None:
    # Compared as texts where somebody's tables may be newer.
    assert revisions() == sorted(revisions()) and revisions()[-1] == REVISION
    assert all(re.fullmatch("[0-9]{4}", each) for each in revisions())


def test_the_migrations_make_what_the_code_asks(place: Place) -> None:
    with writing(place) as connection:
        prepare(connection)
        options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, TABLES) == []
        assert set(inspect(connection).get_table_names()) == {*TABLES.tables, VERSION_TABLE}


@pytest.mark.parametrize("revision", revisions()[:-1])
def test_tables_of_each_older_revision_are_brought_to_the_last_and_keep_their_rows(place: Place, revision: str) -> None:
    with writing(place) as connection:
        brought_to(connection, revision)
        for statement in OLD_ROWS.split(";\n"):
            connection.execute(text(statement))
    # Who asks brings them, as who writes does.
    with asking(place) as connection:
        (found,) = answers(connection, Question("fleet"))
    assert (found.host, found.interval.state.actual, found.interval.since) == ("gpu-1", "570.10", at(0))
    record(place, told(document(20, {"gpu-1": GOOD})), "fleet")
    with asking(place) as connection:
        assert answers(connection, Question("fleet")) == []


def test_tables_of_a_newer_gpunode_are_refused_and_left_as_they_are(place: Place) -> None:
    record(place, told(document(0, {"gpu-1": OLD})), "fleet")
    with writing(place) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(NewerError, match="9999"):
        record(place, told(document(10, {"gpu-1": GOOD})), "fleet")
    with pytest.raises(NewerError), asking(place):
        pass
    with writing(place) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{REVISION}'"))
    with asking(place) as connection:
        assert len(answers(connection, Question("fleet"))) == 1


def test_a_migration_that_is_broken_off_leaves_nothing_behind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("alembic.op.add_column", full)
    with pytest.raises(Exception, match="No space left"), writing(place) as connection:
        prepare(connection)
    with writing(place) as connection:
        assert inspect(connection).get_table_names() == []


def test_what_starts_every_command_imports_no_database() -> None:
    asked = (
        "import sys, gpunode.cli.drift, gpunode.cli.apply, gpunode.cli.rollout\n"
        "print(sorted({'sqlalchemy', 'alembic', 'psycopg', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"
