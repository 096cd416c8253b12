"""The vulnerability check of the lock file: what it finds, and what it says where it cannot look."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests import advisories
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

LOCK = """
[[package]]
name = "Left_Pad"
version = "1.4.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "gpunode"
version = "0.1.0"
source = { editable = "." }
"""


def _advisory(name: str = "left-pad", **affected: Any) -> dict[str, Any]:
    return {"id": "MADE-UP-1", "summary": "made up", "affected": [{"package": {"name": name}, **affected}]}


def _range(*events: tuple[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{kind: bound} for kind, bound in events]}]}


@pytest.mark.parametrize(
    ("advisory", "is_found"),
    [
        (_advisory(versions=["1.4.0"]), True),
        (_advisory(versions=["1.3.0"]), False),
        (_advisory(**_range(("introduced", "0"), ("fixed", "1.4.1"))), True),
        (_advisory(**_range(("introduced", "0"), ("fixed", "1.4.0"))), False),
        (_advisory(**_range(("introduced", "1.5"))), False),
        (_advisory(**_range(("introduced", "1.0"), ("last_affected", "1.4.0"))), True),
        (_advisory(**_range(("introduced", "1.0"), ("last_affected", "1.3.9"))), False),
        (_advisory(**_range(("introduced", "0"), ("fixed", "1.1"), ("introduced", "1.3"), ("fixed", "2"))), True),
        (_advisory("right-pad", versions=["1.4.0"]), False),
        ({**_advisory(versions=["1.4.0"]), "withdrawn": "2026-01-01"}, False),
    ],
)
def test_an_advisory_is_matched_by_version_and_range(advisory: Mapping[str, Any], is_found: bool) -> None:
    def every() -> Iterator[Mapping[str, Any]]:
        yield advisory

    assert bool(advisories.vulnerable(advisories.locked(LOCK), every())) is is_found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a lock file; the cache is in it, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "uv.lock").write_text(LOCK)
    return tmp_path


def _database(path: Path, *rows: Mapping[str, Any]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for number, row in enumerate(rows):
            archive.writestr(f"{number}.json", json.dumps(row))
    return path.as_uri()


def test_without_network_and_database_it_says_that_it_did_not_check(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert advisories.main(place / "uv.lock", (place / "none.zip").as_uri()) == 0
    said = capsys.readouterr().out
    assert said.startswith("NOT CHECKED: 1 ")
    assert "no known vulnerability" not in said


@pytest.mark.parametrize("answer", [None, "<html>log in first</html>"])
def test_offline_or_behind_an_answer_that_is_no_archive_the_last_database_is_used_and_its_date_said(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str | None
) -> None:
    url = _database(place / "all.zip", _advisory(versions=["1.4.0"]))
    assert advisories.main(place / "uv.lock", url) == 1
    (place / "all.zip").unlink()
    if answer is not None:
        (place / "all.zip").write_text(answer)
    assert advisories.main(place / "uv.lock", url) == 1
    said = capsys.readouterr().out
    assert said.count("left-pad 1.4.0: MADE-UP-1: made up") == 2
    assert unnamed(said, f"{datetime.now(UTC):%Y-%m-%d}") == []


def test_a_clean_lock_file_is_said_to_be_clean(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert advisories.main(place / "uv.lock", _database(place / "all.zip", _advisory(versions=["0.1"]))) == 0
    assert unnamed(capsys.readouterr().out, "1 locked packages", "no known vulnerability", "fetched now") == []


def test_our_own_lock_file_can_be_read() -> None:
    releases = advisories.locked(advisories.LOCK_FILE.read_text(encoding="utf-8"))
    assert releases["pyinfra"].startswith("3.10")
    assert "gpunode" not in releases
