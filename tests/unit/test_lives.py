"""How scenarios are run side by side; molecule is SIMULATED."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests import lives

pytestmark = [pytest.mark.pure, pytest.mark.starts_programs]


@pytest.fixture
def molecule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in molecule's place that ends as the scenario's name says."""
    program = tmp_path / "molecule"
    program.write_text('#!/bin/sh\necho "SIMULATED molecule $*"\ncase "$3" in waits) exec sleep 60;; esac\nexit "$3"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(lives, "REPORTS", tmp_path / "scenarios")
    monkeypatch.setattr(lives, "TIMES", tmp_path / "scenarios.txt")
    # As who runs these may have it otherwise.
    monkeypatch.setattr(lives, "AGAIN", False)
    lives.forget()
    return program


def test_a_scenario_leaves_its_status_what_it_printed_and_its_time(molecule: Path) -> None:
    for status, word in (("0", "passed"), ("7", "FAILED")):
        lives.live(status)
        assert lives.status_of(status).read_text() == status
        assert f"SIMULATED molecule test --scenario-name {status}" in lives.log_of(status).read_text()
        assert f"{status}: {word}, " in lives.TIMES.read_text()


def test_one_that_failed_is_run_again_where_it_may_be_and_what_it_said_first_stays(
    molecule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    molecule.write_text(
        f"#!/bin/sh\necho attempt; test -e {molecule.parent}/$3 && exit 0; touch {molecule.parent}/$3; exit 2\n"
    )
    lives.live("once")
    assert lives.status_of("once").read_text() == "2" and not lives.first_of(lives.log_of("once")).exists()
    monkeypatch.setattr(lives, "AGAIN", True)
    lives.live("twice")
    assert (
        lives.status_of("twice").read_text() == "0"
        and "twice: passed at the second attempt, " in lives.TIMES.read_text()
    )
    assert lives.first_of(lives.log_of("twice")).read_text() == lives.log_of("twice").read_text() == "attempt\n"
    molecule.write_text("#!/bin/sh\nexit 2\n")
    lives.live("never")
    assert (
        lives.status_of("never").read_text() == "2"
        and "never: FAILED at the second attempt, " in lives.TIMES.read_text()
    )
    lives.forget()
    assert not lives.first_of(lives.log_of("twice")).exists()
    # Told to end, it begins nothing again.
    monkeypatch.setattr(lives, "_ending", threading.Event())
    lives._ending.set()
    lives.live("never")
    assert not lives.first_of(lives.log_of("never")).exists()


def test_a_scenario_that_hangs_is_ended_and_fails(molecule: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "SECONDS", 0.2)
    monkeypatch.setattr(lives, "AGAIN", True)
    lives.live("waits")
    assert lives.status_of("waits").read_text() == "124"
    assert "waits did not end within" in lives.log_of("waits").read_text()
    assert not lives.first_of(lives.log_of("waits")).exists()


def test_what_an_earlier_run_left_is_no_answer(molecule: Path) -> None:
    lives.live("0")
    lives.forget()
    assert not lives.status_of("0").exists() and not lives.TIMES.exists()


def test_the_table_at_the_end_has_the_longest_first(tmp_path: Path) -> None:
    times = tmp_path / "times"
    assert lives.taken(times) == []
    times.write_text("mig: passed, 9 s\nvm: FAILED, 100 s\ndkms: passed, 20 s\n")
    assert lives.taken(times) == ["vm: FAILED, 100 s", "dkms: passed, 20 s", "mig: passed, 9 s"]


def test_the_longest_begin_first_and_none_is_left_out() -> None:
    names = ["dkms", "mig", "zypper", "interruption"]
    assert lives.in_order(names) == ["interruption", "mig", "dkms", "zypper"]
    there = {path.parent.name for path in lives.TESTS.glob("molecule/*/molecule.yml")}
    assert set(lives.LONGEST) <= there


def test_told_to_terminate_it_ends_what_is_at_work_and_begins_nothing_more(tmp_path: Path) -> None:
    # In a process of its own, as it is used: this one's threads are gevent's.
    program = tmp_path / "molecule"
    program.write_text('#!/bin/sh\ntouch "begun-$3"\nsleep 1\n')
    program.chmod(0o755)
    code = (
        "import sys, pathlib; from tests import lives; here = pathlib.Path(sys.argv[1]); sys.executable = here / 'x'; "
        "lives.REPORTS = here / 's'; lives.TIMES = here / 't'; lives.TESTS = here; lives.SIDE_BY_SIDE = 1; "
        "lives.forget(); lives.main(['a', 'b'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(lives.TESTS.parent)}
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment)
    while not (tmp_path / "begun-a").exists():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    assert (tmp_path / "s" / "a.status").read_text() == "0"
    assert not (tmp_path / "begun-b").exists()
