"""A real PostgreSQL of this machine's packages, started for tests in a folder of its own, on a port that is free.

It refuses to run as root; there it runs as whoever owns nothing (nobody). Nobody else's server is touched.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

MISSING = "no PostgreSQL here (apt-get install postgresql; `make nodes-tools`)"
_SECONDS = 60
_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs")


@dataclass(frozen=True)
class Server:
    """Hold a server's port and the password of its user `gpunode`; `passfile` has both, as libpq reads it."""

    port: int
    password: str
    passfile: Path
    version: str
    process: subprocess.Popen[bytes]

    def url(self, database: str) -> str:
        """Return what --history takes, without the password."""
        return f"postgresql://gpunode@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """Return a connection in which each statement counts at once."""
        return psycopg.connect(self.url(database), password=self.password, autocommit=True)

    def make(self, database: str) -> str:
        """Make an empty database; return what --history takes."""
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self.url(database)


def programs() -> Path | None:
    """Return the folder of the newest PostgreSQL that is installed; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).parent


@contextmanager
def server() -> Iterator[Server]:
    """Give a server that takes a password alone, on loopback; it ends, and its folder goes, where this is left."""
    folder = programs()
    assert folder is not None, MISSING
    other = _NOBODY if os.geteuid() == 0 else ()
    # Short, and below /tmp: whoever owns nothing has to reach it.
    with tempfile.TemporaryDirectory(prefix="gpunode-pg-", dir="/tmp") as name:
        room, password = Path(name), secrets.token_hex(16)
        secret, passfile = room / "password", room / "passfile"
        secret.write_text(password)
        if other:
            for path in (room, secret):
                shutil.chown(path, "nobody", "nogroup")
        data = room / "data"
        subprocess.run(
            [*other, folder / "initdb", "--username=gpunode", f"--pwfile={secret}", "--auth=scram-sha-256", "--no-sync",
             "--no-locale", "--encoding=UTF8", data],
            check=True, capture_output=True, cwd=room,
        )  # fmt: skip
        port = _free_port()
        passfile.touch(0o600)
        passfile.write_text(f"127.0.0.1:{port}:*:gpunode:{password}\n")
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        words = [word for option, value in options.items() for word in ("-c", f"{option}={value}")]
        with (room / "log").open("wb") as log:
            process = subprocess.Popen(
                [*other, folder / "postgres", "-D", data, "-p", str(port), *words], cwd=room, stdout=log, stderr=log
            )
        try:
            yield Server(port, password, passfile, _until_up(port, password, process, room / "log"), process)
        finally:
            # It ends its sessions, and itself.
            process.send_signal(signal.SIGINT)
            process.wait(_SECONDS)


def _until_up(port: int, password: str, process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            with psycopg.connect(f"postgresql://gpunode@127.0.0.1:{port}/postgres", password=password) as connection:
                row = connection.execute("SHOW server_version").fetchone()
                assert row is not None
                return str(row[0])
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() >= end:
                raise AssertionError(log.read_text(errors="replace")[-2000:]) from None
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
