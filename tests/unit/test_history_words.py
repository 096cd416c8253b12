"""How people name times, lengths of time, and histories; and what of a document's texts is kept."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from gpunode.base.findings import Finding, FindingClass
from gpunode.history.place import MomentError, Place, age, inventory_name, moment, place
from gpunode.history.told import LONGEST, NoDocumentError, Scope, kept, told
from tests.support.generated import json_values
from tests.support.history_documents import GOOD, NOT_UNDERSTOOD, OLD, REFUSED, UNKNOWN, UNREACHED, document

pytestmark = pytest.mark.pure
# What is told of a host where whoever was to read it, or to change it, was lost: it may not have been asked at all.
READER_LOST = Finding("node", FindingClass.ERROR, "state", "not read", "read", code="engine.part-lost")
CUT_OFF = Finding("run", FindingClass.ERROR, "run", "cut off", "ended", code="run.broken-off")
NOW = datetime(2026, 1, 14, 9, 30, tzinfo=UTC)


@given(st.integers(0, 999_999), st.sampled_from("smhdw"))
def test_a_length_of_time_is_that_long_ago_and_one_beyond_a_hundred_years_is_refused(number: int, unit: str) -> None:
    seconds = number * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}[unit]
    if seconds <= 36_525 * 86_400:
        assert age(f"{number}{unit}") == timedelta(seconds=seconds)
        assert moment(f"{number}{unit}", NOW) == NOW - timedelta(seconds=seconds)
    else:
        with pytest.raises(MomentError):
            moment(f"{number}{unit}", NOW)


@given(st.text(max_size=12))
def test_any_other_text_is_refused(text: str) -> None:
    with suppress(MomentError):
        assert moment(text, NOW).tzinfo is not None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/h.sqlite", "/srv/h.sqlite"),
        ("sqlite:////srv/h.sqlite", "/srv/h.sqlite"),
        ("sqlite:///h.sqlite", "h.sqlite"),
        ("postgresql://db/gpunode", "postgresql://db/gpunode"),
        ("postgres://ops:s3cret@[::1]:5433/gpunode?sslpassword=s3cret", "postgresql://ops@[::1]:5433/gpunode"),
        ("postgresql+psycopg://db/gpunode", "postgresql://db/gpunode"),
    ],
)  # fmt: skip
def test_a_history_is_a_file_or_a_url_and_no_password_of_it_is_shown(text: str, shown: str) -> None:
    found = place(text, {})
    assert found is not None and str(found) == shown
    assert "s3cret" not in repr(found) + str(found)
    if found.file is None:
        # What the driver is told has all of it.
        url = found.for_sqlalchemy()
        assert url.drivername == "postgresql+psycopg"
        assert ("s3cret" in text) == (url.password == "s3cret" == url.query.get("sslpassword"))
        assert url.database == make_url(text.replace("postgres://", "postgresql://")).database


def test_an_empty_word_is_one_s_own_file() -> None:
    for text in (None, ""):
        assert place(text, {"HOME": "/home/ops"}) == Place(Path("/home/ops/.local/state/gpunode/history.sqlite"))


def test_an_inventory_has_one_name_by_whatever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prod.py").touch()
    (tmp_path / "other.py").symlink_to("prod.py")
    monkeypatch.chdir(tmp_path)
    names = {inventory_name(name, {}) for name in ("prod.py", "./prod.py", str(tmp_path / "prod.py"), "other.py")}
    assert names == {str(tmp_path / "prod.py")}
    assert inventory_name("@docker/x", {}) == "@docker/x"
    assert inventory_name("prod.py", {"GPUNODE_HISTORY_AS": "production"}) == "production"


@pytest.mark.parametrize(
    ("findings", "scope", "known"),
    [
        (GOOD, Scope.ALL, True), (OLD, Scope.ALL, True), ((GOOD, UNKNOWN), Scope.ALL, False),
        (NOT_UNDERSTOOD, Scope.ANSWERED, False), (REFUSED, Scope.REFUSED, False), ((), Scope.NOTHING, False),
        (UNREACHED, Scope.NOTHING, False), (READER_LOST, Scope.NOTHING, False), (CUT_OFF, Scope.NOTHING, False),
    ],
)  # fmt: skip
def test_what_a_report_says_of_a_host_and_what_it_does_not(findings: object, scope: Scope, known: bool) -> None:
    (host,) = told(document(0, {"gpu-1": findings})).hosts  # type: ignore[dict-item]
    assert (host.scope, host.is_known) == (scope, known)
    assert host.has_answered == (scope is not Scope.NOTHING)
    assert host.is_understood == (scope not in (Scope.NOTHING, Scope.ANSWERED))


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_at_the_ends_of_the_calendar_is_none(at: str) -> None:
    with pytest.raises(NoDocumentError):
        told({**document(0, {"gpu-1": GOOD}), "at": at})


KEYS = ["at", "hosts", "gpunode", "exit_code", "findings", "component", "class", "what"]


@given(json_values(st.sampled_from(KEYS)))
def test_nothing_else_is_taken_for_a_document(other: object) -> None:
    with pytest.raises(NoDocumentError):
        told(other)
    part = {**document(0, {"gpu-1": GOOD}), "hosts": other}
    with suppress(NoDocumentError):
        assert told(part).hosts == () or isinstance(other, dict)


@given(st.text())
def test_a_text_is_kept_as_any_database_takes_it(text: str) -> None:
    found = kept(text)
    assert "\0" not in found and len(found) <= LONGEST
    found.encode()
    if text.isascii() and text.isprintable() and len(text) <= LONGEST:
        assert found == text
