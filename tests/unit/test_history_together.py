"""Two controllers write into one history at once: real programs, SQLite and the real PostgreSQL."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import Finding
from tests.support import postgresql, warm
from tests.support.history_documents import GOOD, OLD, OLDER, UNREACHED, document

pytestmark = [pytest.mark.tier2, pytest.mark.real]

HOSTS = [f"gpu-{number}" for number in range(1, 9)]
DOCUMENTS = 30


class Shared:
    """Hold a history that several write into, and how to keep all of them from it for a while."""

    def __init__(self, name: str, environment: dict[str, str], held: Callable[[], Any]) -> None:
        """Take what --history takes, what programs need beside that, and what holds everybody up."""
        self.environment, self.held = {**os.environ, "GPUNODE_HISTORY": name, **environment}, held

    def gpunode(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run gpunode."""
        return warm.run("gpunode", *words, env=self.environment)

    def findings(self) -> list[dict[str, Any]]:
        """Return what is so."""
        found: list[dict[str, Any]] = json.loads(self.gpunode("history", "findings", "--json").stdout)["findings"]
        return found


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """Return a history that is empty: whoever comes first makes its tables."""
    file = tmp_path / "history.sqlite"

    @contextmanager
    def file_held() -> Iterator[Callable[[], int]]:
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        # Who waits for a file cannot be told from who has not come yet: both have had the time to come.
        begun = time.monotonic()
        yield lambda: 2 if time.monotonic() >= begun + 2 else 0
        connection.execute("ROLLBACK")
        connection.close()

    if request.param == "SQLite":
        return Shared(str(file), {}, file_held)
    server: postgresql.Server = request.getfixturevalue("server")
    database = f"together_{tmp_path.name}"
    url = server.make(database)

    @contextmanager
    def table_held() -> Iterator[Callable[[], int]]:
        with server.connect(database) as connection, connection.transaction():
            # They read, and come to stand where they write: without a lock of their own both know what is old by then.
            connection.execute("LOCK TABLE gpunode_finding IN EXCLUSIVE MODE")
            yield lambda: waiting(server, database)

    return Shared(url, {"PGPASSFILE": str(server.passfile)}, table_held)


def waiting(server: postgresql.Server, database: str) -> int:
    """Return how many of gpunode's sessions wait for another one."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'gpunode' "
    with server.connect() as connection:
        row = connection.execute(asked + "AND wait_event_type = 'Lock'", (database,)).fetchone()
    assert row is not None
    return int(row[0])


def of_controller(number: int) -> list[dict[str, Any]]:
    """Return what a controller tells, of all hosts at its own minutes: each host is good, old or older in turn."""
    kinds: list[Finding] = [GOOD, OLD, OLD, OLDER, UNREACHED]

    def told(minute: int) -> dict[str, Finding]:
        return {name: kinds[(minute // 4 + place) % len(kinds)] for place, name in enumerate(HOSTS)}

    return [document(minute, told(minute)) for minute in range(number, 2 * DOCUMENTS, 2)]


def written(folder: Path, number: int) -> list[Path]:
    """Return the files with what a controller tells."""
    paths = []
    for place, told in enumerate(of_controller(number)):
        path = folder / f"{number} {place:02}.json"
        path.write_text(json.dumps(told))
        paths.append(path)
    return paths


def test_two_writers_wait_for_each_other_and_lose_and_repeat_nothing(shared: Shared, tmp_path: Path) -> None:
    paths = [written(tmp_path, number) for number in (0, 1)]
    # The hosts are known, and nobody can write: both come to stand.
    begin = tmp_path / "begin.json"
    begin.write_text(json.dumps(document(-1, dict.fromkeys(HOSTS, GOOD))))
    assert shared.gpunode("history", "import", begin).returncode == 0
    with ThreadPoolExecutor(2) as pool, shared.held() as stand:
        both = [pool.submit(shared.gpunode, "history", "import", *mine) for mine in paths]
        end = time.monotonic() + 60
        while stand() < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert not any(each.done() for each in both)
    for each in both:
        assert each.result().returncode == 0, each.result().stderr
    alone = Shared(str(tmp_path / "alone.sqlite"), {}, shared.held)
    in_order = sorted((path for mine in paths for path in mine), key=lambda path: json.loads(path.read_text())["at"])
    assert alone.gpunode("history", "import", begin, *in_order).returncode == 0
    # As far as two can tell what one would: how it is now, each finding once, and all that was recorded.
    now = [{(each["host"], each["what"], each["actual"]) for each in one.findings()} for one in (shared, alone)]
    assert now[0] == now[1] and len(shared.findings()) == len(now[0]) > 4
    (known,) = json.loads(shared.gpunode("history", "inventories", "--json").stdout)["inventories"]
    assert (known["hosts"], known["reports"]) == (len(HOSTS), 2 * DOCUMENTS + 1)


def test_two_that_come_first_make_the_tables_once(shared: Shared, tmp_path: Path) -> None:
    inventories = []
    for number in range(4):
        # Nothing listens on port 1 of this machine: every connection is refused at once.
        path = tmp_path / f"fleet_{number}.py"
        path.write_text("gpu = [('gpu-1', {'ssh_hostname': '127.0.0.1', 'ssh_port': 1, 'ssh_connect_retries': 0})]\n")
        inventories.append(path)
    with ThreadPoolExecutor(4) as pool:
        for done in pool.map(lambda path: shared.gpunode("drift", path), inventories):
            assert "history.unavailable" not in done.stderr, done.stderr
    found = shared.findings()
    assert {each["inventory"] for each in found} == set(map(str, inventories)) and len(found) == 4
    assert {each["code"] for each in found} == {"node.connection"}
