"""The program that runs the unit tests side by side: who runs what, and what is said at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import fast

pytestmark = pytest.mark.pure

REPORT = '<testsuites><testsuite name="pytest" tests="5" failures="1" errors="1" skipped="1"/></testsuites>'
GOOD = '<testsuites><testsuite name="pytest" tests="5" failures="0" errors="0" skipped="1"/></testsuites>'


@given(
    seconds=st.dictionaries(st.sampled_from([f"test_{n}.py" for n in range(20)]), st.floats(0, 60)),
    parts=st.integers(1, 5),
)
def test_each_file_is_in_one_part_and_none_has_more_than_one_file_s_worth_above_another(
    seconds: dict[str, float], parts: int
) -> None:
    files = [f"test_{number}.py" for number in range(20)]
    found = fast.shared_out(files, seconds, parts)
    assert sorted(file for part in found for file in part) == sorted(files) and len(found) == parts
    loads = [sum(seconds.get(file, 0) + fast._OTHERWISE for file in part) for part in found]
    assert max(loads) - min(loads) <= max(seconds.get(file, 0) for file in files) + fast._OTHERWISE + 1e-6


def test_what_shares_nodes_of_this_machine_is_never_in_two_parts() -> None:
    found = fast.shared_out([*fast.TOGETHER, "test_a.py", "test_b.py"], {}, 3)
    assert [part for part in found if set(part) & set(fast.TOGETHER)] == [sorted(fast.TOGETHER)]


def test_the_files_of_the_table_and_of_what_stays_together_are_there() -> None:
    named = {*fast.seconds_of(fast.SECONDS), *fast.seconds_of(fast.SECONDS_OF_ALL), *fast.TOGETHER}
    assert all((fast.UNIT / name).is_file() for name in named)


@pytest.mark.parametrize(
    ("report", "status", "expected"),
    [
        (REPORT, 1, (2, 2, 1)),
        (GOOD, 0, (4, 0, 1)),
        (None, -9, (0, 1, 0)),
        (None, 0, (0, 1, 0)),
        (GOOD, 3, (4, 1, 1)),
        ('<testsuites><testsuite name="pytest" tests="0"/></testsuites>', 5, (0, 0, 0)),
    ],
)
def test_a_process_that_ends_badly_of_itself_counts_as_one_that_failed(
    tmp_path: Path, report: str | None, status: int, expected: tuple[int, int, int]
) -> None:
    path = tmp_path / "report.xml"
    if report is not None:
        path.write_text(report)
    assert fast.counts(path, status) == expected


@pytest.mark.parametrize("failed", [0, 1])
def test_the_last_line_counts_all_parts_and_what_failed_is_said_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failed: int
) -> None:
    asked: list[list[str]] = []

    def part(number: int, files: list[str], options: list[str], *_: Any) -> fast.Part:
        asked.append(options)
        bad = failed if number == 1 else 0
        return fast.Part(number, bad, f"words of {number}\nSKIPPED [1] a: no podman\n", 10, bad, 2, (1.0, 2.0))

    monkeypatch.setattr(fast, "run_part", part)
    assert fast.main(["-m", "not slow", "--parts", "3", "-x"]) == failed
    assert asked == [["-m", "not slow", "-x"]] * 3
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"30 passed, {failed} failed, 6 skipped"
    assert ("words of 1" in said) == bool(failed) and "words of 2" not in said and "no podman" in said


@pytest.mark.builds
def test_a_part_runs_its_files_alone_and_tells_what_failed(tmp_path: Path) -> None:
    part = fast.run_part(1, ["test_rooms.py"], ["-m", "pure"], tmp_path, measured=False)
    assert (part.passed, part.failed, part.is_good) == (1, 0, True), part.said
    bad = fast.run_part(2, ["test_rooms.py"], ["--no-such-option"], tmp_path, measured=False)
    assert (bad.failed, bad.is_good) == (1, False) and "--no-such-option" in fast.told(bad, 2)


@pytest.mark.starts_programs
def test_tests_that_failed_are_run_again_where_they_may_be_and_what_they_said_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "pytest.ini").touch()
    noted = tmp_path / "noted"
    file = tmp_path / "tests/unit/test_it.py"
    once = (
        f"import pathlib, pytest\ndef test_once():\n    noted = pathlib.Path({str(noted)!r})\n"
        "    there = noted.exists()\n    noted.touch()\n    assert there, 'too early'\n"
    )
    never = "def test_never(): assert False, 'never'\n"
    file.write_text(f"{once}def test_good(): pass\ndef test_skips(): pytest.skip('no GPU')\n")
    monkeypatch.setattr(fast, "UNIT", tmp_path / "tests/unit")
    monkeypatch.delenv(fast.AGAIN, raising=False)

    def run(number: int) -> tuple[int, int, int, bool, str]:
        noted.unlink(missing_ok=True)
        part = fast.run_part(number, ["test_it.py"], ["-rs"], tmp_path, measured=False)
        return part.passed, part.failed, part.skipped, part.is_good, fast.told(part, 2)

    *counts, said = run(1)
    assert counts == [1, 1, 1, False] and "too early" in said
    monkeypatch.setenv(fast.AGAIN, "1")
    *counts, said = run(2)
    assert counts == [2, 0, 1, True] and "too early" in said and "run again; find out why" in said
    file.write_text(never)
    *counts, said = run(3)
    assert counts == [0, 1, 0, False] and "never" in said and "FAILED" in said
    # One that passes the second time does not hide another, and its first words stay.
    file.write_text(once + never)
    *counts, said = run(4)
    assert counts == [1, 1, 0, False] and "too early" in said and "never" in said
    # What ends at the first failure has not run the others.
    for option in ("-x", "--maxfail=1"):
        noted.unlink(missing_ok=True)
        part = fast.run_part(5, ["test_it.py"], [option], tmp_path, measured=False)
        assert not part.is_good and not part.first
    # One that is not there the second time has not passed.
    file.write_text(
        f"import pathlib\nnoted = pathlib.Path({str(noted)!r})\nif noted.exists():\n    def test_other(): pass\n"
        "else:\n    def test_gone():\n        noted.touch()\n        assert False\n"
    )
    *counts, said = run(7)
    assert counts == [0, 1, 0, False] and "test_gone" in said
    # As where a test that hangs is ended: nobody knows which tests there were.
    file.write_text("import os\ndef test_ends_all(): os._exit(1)\n")
    *counts, said = run(6)
    assert counts == [0, 1, 0, False] and "FAILED" in said


def test_files_go_to_memory_only_where_there_is_room_to_run_programs_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "_ROOM", 0)
    assert fast.temporary_folder(tmp_path) == str(tmp_path)
    assert fast.temporary_folder(tmp_path / "none") is None
    monkeypatch.setattr(fast, "_ROOM", 1 << 80)
    assert fast.temporary_folder(tmp_path) is None
    monkeypatch.setattr(fast, "_ROOM", 0)
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    assert fast.temporary_folder(tmp_path) is None


def test_a_selection_that_has_no_test_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    nothing = fast.Part(1, 5, "", 0, 0, 0, (0.0, 0.0))
    monkeypatch.setattr(fast, "run_part", lambda *_: nothing)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert fast.main(["-m", "misspelt", "--parts", "1"]) == 1
    assert "FAILED: no test was asked for by these options" in capsys.readouterr().out


@pytest.mark.starts_programs
def test_told_to_terminate_it_ends_its_parts(tmp_path: Path) -> None:
    """In a process of its own, as it is used; pytest is SIMULATED."""
    code = (
        "import subprocess, sys; from tests import fast; real = subprocess.Popen\n"
        "told = f'echo $$ > {sys.argv[1]}; exec sleep 60'\n"
        "fast.subprocess.Popen = lambda line, **more: real(['sh', '-c', told], **more)\n"
        "sys.exit(fast.main(['--parts', '1']))"
    )
    noted = tmp_path / "part"
    process = subprocess.Popen([sys.executable, "-c", code, str(noted)], cwd=fast.UNIT.parents[1])
    while not noted.exists() or not noted.read_text().strip():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert process.wait(timeout=30) == 1
    assert not Path(f"/proc/{noted.read_text().strip()}").exists()
