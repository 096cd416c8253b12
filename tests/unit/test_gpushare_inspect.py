"""kubectl's plugin for gpushare: fetched by its digest, put in its place at once or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FunctionCommand

from gpunode.settings import settings_from
from operations import gpushare
from tests.unit.simulated_host import Host

pytestmark = pytest.mark.pure


def _run(host: Host, **settings: Any) -> list[FunctionCommand]:
    found = settings_from({"gpushare": settings})
    # Without what makes it once per run, which has a test of its own.
    function: Any = gpushare.inspect_plugin._inner
    return list(function.__wrapped__.__wrapped__(asked=found.gpushare, proxy=found.proxy))


def _asked(path: Path, content: bytes = b"program") -> dict[str, str]:
    digest = hashlib.sha256(content).hexdigest()
    return {"inspect_url": "http://127.0.0.1:9/inspect", "inspect_sha256": digest, "inspect_path": str(path)}


def test_a_program_of_the_asked_digest_is_left_alone(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "kubectl-inspect-gpushare"
    path.write_bytes(b"program")
    path.chmod(0o755)
    assert _run(host, **_asked(path)) == [] and host.noops == [f"{path} as asked"]
    assert len(_run(host, **_asked(path, b"another"))) == 1
    assert _run(host) == [] and "no kubectl-inspect-gpushare" in host.noops[1]


@pytest.mark.parametrize("served", [b"program", b"malice"])
def test_what_is_fetched_is_put_only_where_its_digest_is_the_asked_one(
    host: Host, tmp_path: Path, served: bytes
) -> None:
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


def test_an_address_that_does_not_answer_is_told_with_the_remedy(host: Host, tmp_path: Path) -> None:
    (fetch,) = _run(host, **_asked(tmp_path / "x"))
    assert fetch.function(None, host, *fetch.args) is False
    assert "look at gpushare.inspect_url" in host.refusals[1] and list(tmp_path.iterdir()) == []
