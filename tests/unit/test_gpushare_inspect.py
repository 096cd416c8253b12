"""kubectl's plugin for gpushare: fetched by its digest, put in its place at once or not at all."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyinfra.api import FunctionCommand

from gpunode.operations import gpushare
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.simulated_host import Host

pytestmark = pytest.mark.pure


def _run(host: Host, **settings: Any) -> list[FunctionCommand]:
    found = settings_from({"proxy": settings.pop("proxy", {}), "gpushare": settings})
    # Without what makes it once per run, which has a test of its own.
    function: Any = gpushare.inspect_plugin._inner
    return list(function.__wrapped__.__wrapped__(desired=found.gpushare, proxy=found.proxy))


@contextmanager
def _server(answer: bytes) -> Iterator[tuple[str, list[str]]]:
    """Serve one answer, as it is, to each of two connections; yield the address and the lines that were asked."""
    asked: list[str] = []

    def served() -> None:
        for _ in range(2):
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(65536).decode().partition("\r\n")[0])
                connection.sendall(answer)

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = Thread(target=served)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        finally:
            # It wakes the thread, where closing alone does not.
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=10)


def _asked(path: Path, content: bytes = b"program") -> dict[str, str]:
    digest = hashlib.sha256(content).hexdigest()
    return {"inspect_url": "http://127.0.0.1:9/inspect", "inspect_sha256": digest, "inspect_path": str(path)}


def test_a_program_of_the_asked_digest_is_left_alone(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "kubectl-inspect-gpushare"
    path.write_bytes(b"program")
    path.chmod(0o755)
    assert _run(host, **_asked(path)) == [] and host.noops == [f"{path} as desired"]
    assert len(_run(host, **_asked(path, b"another"))) == 1
    assert _run(host) == [] and len(host.noops) == 2


@pytest.mark.parametrize("served", [b"program", b"malice"])
def test_what_is_fetched_has_the_asked_digest(host: Host, tmp_path: Path, served: bytes) -> None:
    source, path = tmp_path / "served", tmp_path / "bin" / "kubectl-inspect-gpushare"
    source.write_bytes(served)
    (fetch,) = _run(host, **_asked(path))
    url, *more = fetch.args
    well = fetch.function(None, host, source.as_uri(), *more)
    assert url == "http://127.0.0.1:9/inspect"
    assert well is (served == b"program") and path.exists() is well
    if well:
        assert path.stat().st_mode & 0o777 == 0o755 and [each.name for each in path.parent.iterdir()] == [path.name]
    else:
        assert "inspect_sha256" in host.refusals[0]


def _failed(host: Host, path: Path, url: str) -> None:
    (fetch,) = _run(host, **{**_asked(path / "x"), "inspect_url": url})
    assert fetch.function(None, host, *fetch.args) is False
    assert host.refusals[0].isprintable() and unnamed(host.refusals[0], "gpushare.inspect_url") == []
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("address", ["127.0.0.1:9", "mirror..example.org"], ids=["no answer", "no name of a host"])
def test_an_address_that_does_not_answer_is_told_with_the_remedy(host: Host, tmp_path: Path, address: str) -> None:
    _failed(host, tmp_path, f"http://{address}/inspect")


@pytest.mark.parametrize(
    ("no_proxy", "direct"),
    [(["127.0.0.1"], True), (["mirror.example.org"], False), ([], False)],
    ids=["of it", "of another", "none"],
)
def test_an_address_that_no_proxy_names_is_asked_directly_and_any_other_through_the_proxy(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: list[str], direct: bool
) -> None:
    for name in ("http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    answer = b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\nprogram"
    with _server(answer) as (mirror, of_mirror), _server(answer) as (proxy, of_proxy):
        asked = {**_asked(tmp_path / "x"), "inspect_url": f"{mirror}/inspect"}
        (fetch,) = _run(host, **asked, proxy={"http": proxy, "no_proxy": no_proxy})
        assert fetch.function(None, host, *fetch.args) is True
    by_proxy = f"GET {mirror}/inspect HTTP/1.1"
    assert (of_mirror, of_proxy) == ((["GET /inspect HTTP/1.1"], []) if direct else ([], [by_proxy]))


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nprog"],
    ids=["no HTTP", "nothing", "cut off"],
)
def test_an_answer_that_is_none_is_told_with_the_remedy(host: Host, tmp_path: Path, answer: bytes) -> None:
    with _server(answer) as (mirror, _):
        _failed(host, tmp_path, f"{mirror}/inspect")
