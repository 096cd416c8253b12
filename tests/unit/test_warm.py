"""Runs that are forked from one warm process are the runs that a new interpreter makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.warm import CHECKOUT

pytestmark = [pytest.mark.real, pytest.mark.tier2]
PROGRAMS = Path(sys.executable).parent
# An inventory that is an endless one, to be ended from outside.
ENDLESS = "import time\ntime.sleep(60)\nhosts = []\n"


def run(*words: str, seconds: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(*words, env={**os.environ, "NO_COLOR": "1", **environment}, timeout=seconds)


@pytest.mark.parametrize(
    "words",
    [
        ("gpunode", "check", "inventories/prod.py"),
        ("gpunode", "--help"),
        ("gpunode", "no-such-command"),
        ("gpunode", "check", "no-such-inventory.py"),
        ("pyinfra", "--json", "inventories/prod.py", "debug-inventory"),
        ("pyinfra", "--no-such-option"),
    ],
    ids=" ".join,
)
def test_it_prints_and_ends_as_a_new_interpreter_does(words: tuple[str, ...]) -> None:
    cold = subprocess.run(
        [PROGRAMS / words[0], *words[1:]],
        cwd=CHECKOUT, env={**os.environ, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    found = run(*words)
    assert (found.returncode, found.stdout, found.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_each_run_has_an_environment_and_standard_streams_of_its_own(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.py"
    inventory.write_text(
        "import os, sys\nprint(os.environ.get('SAID'), repr(sys.stdin.read()), file=sys.stderr)\nhosts = ['@local']\n"
    )
    words = ("pyinfra", str(inventory), "debug-inventory")
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda said: run(*words, SAID=said), ("one", "two", "three")))
    for said, found in zip(("one", "two", "three"), runs, strict=True):
        assert f"{said} ''" in found.stderr
    assert "None ''" in run(*words).stderr


def test_a_run_has_nothing_of_the_environment_that_the_process_began_in(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.py"
    inventory.write_text("import os, sys\nprint(sorted(os.environ), file=sys.stderr)\nhosts = ['@local']\n")
    found = warm.run("pyinfra", inventory, "debug-inventory", env={"PATH": "/usr/bin:/bin", "SAID": "one"})
    assert found.stderr.count("['PATH', 'SAID']") == 1 and "HOME" in os.environ, found.stderr


def test_a_run_that_a_signal_ended_has_its_negative_number(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.py"
    inventory.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert run("pyinfra", str(inventory), "debug-inventory").returncode == -signal.SIGKILL


def test_a_run_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    inventory, noted = tmp_path / "inventory.py", tmp_path / "child"
    inventory.write_text(
        "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(noted)!r}, 'w').write(str(child.pid))\n{ENDLESS}"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        run("pyinfra", str(inventory), "debug-inventory", seconds=5)
    child = Path("/proc") / noted.read_text()
    deadline = time.monotonic() + 10
    while child.exists() and "zombie" not in (child / "status").read_text():
        assert time.monotonic() < deadline, "what it started goes on"
        time.sleep(0.05)
