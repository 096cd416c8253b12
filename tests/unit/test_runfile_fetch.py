"""A .run file as sh fetches it: whole, resumed, or not at all. curl, sha256sum and the web server are real."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpunode.operations.driver_transaction import FETCH
from gpunode.operations.script import script
from tests.support.messages import unnamed

pytestmark = [pytest.mark.real, pytest.mark.tier2]


class Server:
    """Serve one file over HTTP, with or without Range, whole or cut at a byte; keep what was asked for."""

    def __init__(self, content: bytes) -> None:
        self.content, self.cut, self.ranges, self.status = content, len(content), True, 200
        # How much comes over one connection; None: all of it.
        self.step: int | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                outer.asked.append(wanted)
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and outer.ranges else 0
                if outer.status != 200 or (start and start >= len(outer.content)):
                    self.send_error(outer.status if outer.status != 200 else 416)
                    return
                self.send_response(206 if start else 200)
                if start:
                    whole = len(outer.content)
                    self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
                self.send_header("Content-Length", str(len(outer.content) - start))
                self.end_headers()
                ends = outer.cut if outer.step is None else start + outer.step
                self.wfile.write(outer.content[start : max(start, ends)])

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file.run"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


CONTENT = bytes(range(256)) * 400


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(CONTENT)
    yield found
    found.http.shutdown()


def fetch(folder: Path, server: Server, content: bytes = CONTENT) -> tuple[subprocess.CompletedProcess[str], Path]:
    path = folder / "runfiles/file.run"
    variables = {
        "path": str(path), "url": server.url, "sha256": hashlib.sha256(content).hexdigest(), "setting": "driver.x",
        "no_proxy": "*",
    }  # fmt: skip
    # Without its pauses.
    text = script(FETCH.replace("sleep 2", ":"))
    settings = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(["env", *settings, "sh", "-c", text], capture_output=True, text=True, check=False, timeout=60)
    return done, path


def test_a_file_comes_whole_with_its_sum_beside_it_and_is_not_fetched_twice(tmp_path: Path, server: Server) -> None:
    done, path = fetch(tmp_path, server)
    assert (done.returncode, path.read_bytes()) == (0, CONTENT), done.stderr
    assert path.with_name("file.run.sha256").read_text() == f"{hashlib.sha256(CONTENT).hexdigest()}\n"
    assert sorted(item.name for item in path.parent.iterdir()) == ["file.run", "file.run.sha256"]
    assert path.stat().st_mode & 0o077 == 0, "what root runs is for nobody else to write or read"
    assert fetch(tmp_path, server)[0].returncode == 0
    assert server.asked == [""]


def test_a_transfer_that_was_cut_is_kept_and_resumed_by_the_next_run(tmp_path: Path, server: Server) -> None:
    server.cut = 60_000
    done, path = fetch(tmp_path, server)
    assert done.returncode == 1 and not path.exists()
    assert unnamed(done.stderr, "60000 bytes") == []
    server.cut = len(CONTENT)
    server.asked.clear()
    assert fetch(tmp_path, server)[0].returncode == 0
    assert server.asked == ["bytes=60000-"]
    assert path.read_bytes() == CONTENT


def test_another_sum_is_an_error_and_nothing_is_kept(tmp_path: Path, server: Server) -> None:
    done, path = fetch(tmp_path, server, b"what was asked for")
    assert done.returncode == 1
    assert unnamed(done.stderr, hashlib.sha256(CONTENT).hexdigest(), "driver.x") == []
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("part", "ranges", "asked"),
    [
        # Of another file.
        (b"x" * 500, True, ["bytes=500-", ""]),
        (b"x" * (len(CONTENT) + 5), True, [f"bytes={len(CONTENT) + 5}-", ""]),
        # Whole already.
        (CONTENT, True, [f"bytes={len(CONTENT)}-"]),
        # The server cannot resume.
        (CONTENT[:1000], False, ["bytes=1000-"]),
    ],
    ids=["another", "longer", "whole", "no ranges"],
)
def test_a_part_that_is_there_does_not_spoil_the_download(
    tmp_path: Path, server: Server, part: bytes, ranges: bool, asked: list[str]
) -> None:
    server.ranges = ranges
    path = tmp_path / f"runfiles/file.run.{hashlib.sha256(CONTENT).hexdigest()}.part"
    path.parent.mkdir()
    path.write_bytes(part)
    done, file = fetch(tmp_path, server)
    assert (done.returncode, file.read_bytes()) == (0, CONTENT), done.stderr
    assert server.asked[: len(asked)] == asked


def test_a_server_that_cannot_resume_and_cuts_is_given_up(tmp_path: Path, server: Server) -> None:
    server.ranges, server.cut = False, 60_000
    done, path = fetch(tmp_path, server)
    assert done.returncode == 1 and not path.exists()
    assert unnamed(done.stderr, "twice") == []
    assert server.asked == ["", "bytes=60000-", "", "bytes=60000-"]
    server.cut = len(CONTENT)
    done, path = fetch(tmp_path, server)
    assert (done.returncode, path.read_bytes()) == (0, CONTENT), done.stderr


def test_a_server_that_brings_a_little_each_time_is_given_up_in_the_end(tmp_path: Path, server: Server) -> None:
    server.step = 10
    done, path = fetch(tmp_path, server)
    assert done.returncode == 1 and not path.exists()
    assert unnamed(done.stderr, "1000 bytes") == []
    assert len(server.asked) == 100


@pytest.mark.parametrize(("status", "times"), [(404, 1), (503, 4)])
def test_a_server_in_trouble_is_asked_again_and_one_without_the_file_is_not(
    tmp_path: Path, server: Server, status: int, times: int
) -> None:
    server.status = status
    done, _ = fetch(tmp_path, server)
    assert done.returncode == 1 and unnamed(done.stderr, status) == []
    assert server.asked == [""] * times


def test_what_was_there_with_another_sum_is_replaced(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "runfiles/file.run"
    path.parent.mkdir()
    path.write_bytes(b"altered")
    done, _ = fetch(tmp_path, server)
    assert (done.returncode, path.read_bytes()) == (0, CONTENT), done.stderr
