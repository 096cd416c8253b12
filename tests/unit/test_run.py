"""The program that runs a tier: no failure is lost, and what hangs or ends badly counts as failed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from gpunode.lab import go_programs
from tests import run

pytestmark = pytest.mark.pure
REPORT = '<testsuites><testsuite name="pytest" tests="5" failures="1" errors="1" skipped="1"/></testsuites>'
GOOD = '<testsuites><testsuite name="pytest" tests="5" failures="0" errors="0" skipped="1"/></testsuites>'
NONE = '<testsuites><testsuite name="pytest" tests="0"/></testsuites>'


@pytest.mark.parametrize("marks", [*itertools.product((False, True), repeat=3)])
def test_each_unit_test_is_in_one_tier(marks: tuple[bool, ...]) -> None:
    names = dict(zip(("node", "tier2", "tier3"), marks, strict=True))
    tiers = [
        tier
        for tier in ("1", "2")
        if Expression.compile(run.TIERS[tier].markers).evaluate(lambda name, /, **words: names[name])
    ]
    assert tiers == ([] if names["tier3"] else ["2"] if names["node"] or names["tier2"] else ["1"])


def test_each_scenario_is_in_one_tier_and_in_the_third() -> None:
    first, second = run.TIERS["1"].scenarios, run.TIERS["2"].scenarios
    assert not set(first) & set(second)
    assert {*first, *second, *run.THIRD} == set(run.TIERS["all"].scenarios) == set(run.scenarios())


@pytest.mark.parametrize(
    ("report", "status", "expected"),
    [
        (REPORT, 1, (2, 2, 1)),
        (GOOD, 0, (4, 0, 1)),
        (None, -9, (0, 1, 0)),
        (None, 0, (0, 1, 0)),
        (GOOD, 3, (4, 1, 1)),
        (NONE, 5, (0, 0, 0)),
    ],
)
def test_a_process_that_ends_badly_counts_as_one_failed_test(
    tmp_path: Path, report: str | None, status: int, expected: tuple[int, int, int]
) -> None:
    path = tmp_path / "report.xml"
    if report is not None:
        path.write_text(report)
    found = run.read_report(path, status)
    assert (found.passed, found.failed, found.skipped) == expected


ONCE = """
import pathlib
noted = pathlib.Path({noted!r})
def test_once():
    there = noted.exists()
    noted.touch()
    assert there
"""
GONE = """
import pathlib
noted = pathlib.Path({noted!r})
if noted.exists():
    def test_other(): pass
else:
    def test_gone():
        noted.touch()
        assert False
"""
ENDS = """
def test_ends():
    import pytest
    pytest.exit("stop")
"""


@pytest.mark.parametrize(
    ("text", "again", "expected"),
    [
        (ONCE, "0", (1, 1, False)),
        (ONCE, "1", (2, 0, True)),
        (ONCE + "def test_never(): assert False\n", "1", (1, 2, False)),
        (GONE, "1", (1, 1, False)),
        (ONCE + ENDS, "1", (0, 1, False)),
    ],
)
def test_a_test_is_repeated_only_where_that_is_allowed_and_only_a_pass_of_each_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, again: str, expected: tuple[int, int, bool]
) -> None:
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "pytest.ini").touch()
    text = text.format(noted=str(tmp_path / "noted"))
    (tmp_path / "tests/unit/test_it.py").write_text(text + "def test_good(): pass\n")
    monkeypatch.setattr(run, "TESTS", tmp_path / "tests")
    monkeypatch.setattr(run, "UNIT", tmp_path / "tests/unit")
    monkeypatch.setenv(run.AGAIN, again)
    found = run.run_part(1, ["test_it.py"], [], tmp_path / "part", run.Processes())
    assert (found.passed, found.failed, found.is_flaky) == expected, found.text


@pytest.fixture
def molecule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in molecule's place that ends as the scenario's name says."""
    program = tmp_path / "molecule"
    program.write_text(
        f'#!/bin/sh\n[ "$1" != destroy ] || exec touch "{tmp_path}/destroyed"\n'
        f'echo "attempt of $3"\ntouch "{tmp_path}/begun-$3"\ncase $3 in\n'
        f'waits) exec sleep 60;;\nonce) mkdir "{tmp_path}/seen" && exit 2; exit 0;;\n*) exit $3;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(run, "REPORTS", tmp_path)
    return program


@pytest.mark.parametrize(
    ("name", "again", "longest", "expected"),
    [
        ("0", "0", 60, (1, 0, False)),
        ("7", "1", 60, (0, 1, False)),
        ("once", "0", 60, (0, 1, False)),
        ("once", "1", 60, (1, 0, True)),
        ("waits", "1", 0.2, (0, 1, False)),
    ],
)
def test_a_scenario_passes_only_with_exit_status_0(
    molecule: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    again: str,
    longest: float,
    expected: tuple[int, int, bool],
) -> None:
    monkeypatch.setenv(run.AGAIN, again)
    found = run.run_scenario(name, longest, run.Processes())
    assert (found.passed, found.failed, found.is_flaky) == expected and f"attempt of {name}" in found.text
    # What took too long has left its nodes.
    assert (molecule.parent / "destroyed").exists() == (name == "waits")


@pytest.mark.parametrize(("results", "code"), [([(3, 0, 1), (1, 0, 0)], 0), ([(3, 0, 1), (0, 1, 0)], 1), ([], 1)])
def test_the_last_line_counts_everything_and_no_test_at_all_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: list[tuple[int, int, int]], code: int
) -> None:
    outcomes = [run.Result(str(number), *counts) for number, counts in enumerate(results)]
    monkeypatch.setattr(run, "run_all", lambda jobs, at_once, processes: outcomes)
    assert run.main(["1", "--scenarios", "default"]) == code
    passed, failed, skipped = (sum(each[at] for each in results) for at in range(3))
    expected = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
    assert capsys.readouterr().out.splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FAILED a::b - why\nmore\n", ["FAILED a::b - why"]),
        ("E  1 == 2\n" + "fatal: [localhost]: " + "x" * 2000, [("fatal: [localhost]: " + "x" * 2000)[:1500]]),
        ("\n".join(str(number) for number in range(20)) + "\n\n", [str(number) for number in range(10, 20)]),
        ("", []),
    ],
    ids=["pytest", "ansible", "neither", "nothing"],
)
def test_why_a_job_failed_is_told_by_the_lines_that_name_it(text: str, expected: list[str]) -> None:
    assert run.reasons(text) == expected


@pytest.mark.parametrize(
    ("tier", "names", "has_unit_tests", "expected"),
    [
        ("1", ("a", "b"), True, ["x", "y"]),
        ("2", ("b",), True, ["z", "y"]),
        ("2", ("c",), False, []),
        ("all", ("b", "a"), True, ["z", "y", "x"]),
    ],
)
def test_a_tier_builds_the_go_programs_that_its_tests_need(
    monkeypatch: pytest.MonkeyPatch, tier: str, names: tuple[str, ...], has_unit_tests: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(run, "GO_PROGRAMS", {"a": ("x", "y"), "b": ("y",), "unit tests": ("z",)})
    assert run.go_groups(tier, names, has_unit_tests) == expected


def test_the_first_tier_needs_no_go_and_each_group_has_a_user() -> None:
    assert run.go_groups("1", run.TIERS["1"].scenarios, has_unit_tests=True) == []
    assert set(run.GO_PROGRAMS) <= {*run.scenarios(), "unit tests"}
    assert {group for groups in run.GO_PROGRAMS.values() for group in groups} <= set(go_programs.GROUPS)


def test_a_build_that_fails_is_a_failure_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "REPORTS", tmp_path)
    found = run.build_programs(["no-such-group"], run.Processes())
    assert (found.passed, found.failed) == (0, 1) and "no-such-group" in found.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_running_scenario_end_and_starts_no_other(
    tmp_path: Path, molecule: Path, number: signal.Signals
) -> None:
    # In a process of its own, as it is used: this one's threads are gevent's.
    code = (
        "import sys, pathlib; from tests import run; here = pathlib.Path(sys.argv[1]); sys.executable = f'{here}/x'; "
        "run.REPORTS = here; run.scenarios = lambda: ('0', '1'); sys.exit(run.main(['all', '--scenarios', '1 0']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(run.TESTS.parent), "GPUNODE_TEST_SIDE_BY_SIDE": "1"}
    molecule.write_text(molecule.read_text().replace("*) exit $3", "0) exec sleep 1;; *) exit $3"))
    python = Path(sys.prefix) / "bin" / "python"
    process = subprocess.Popen([python, "-c", code, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "begun-0").exists():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(number)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 1 and printed.splitlines()[-1] == "1 passed, 1 failed"
    assert not (tmp_path / "begun-1").exists()
