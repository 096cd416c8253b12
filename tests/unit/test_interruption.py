"""A signal ends a command whatever it is doing at that moment, and a child with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent  # type: ignore[import-untyped]
import psutil  # type: ignore[import-untyped]
import pytest

from gpunode.base.errors import Interrupted
from gpunode.cli.interruption import caught
from gpunode.fleet.engine import work
from gpunode.fleet.run.child import ended_with_us
from tests.support.answering import answering
from tests.support.one_document import CHECKOUT, silent
from tests.support.rollout_command import until

__all__ = ["silent"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.pure
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_comes_while_a_host_is_at_work_ends_the_command_and_not_that_host(number: signal.Signals) -> None:
    went_on: list[bool] = []
    # Whoever runs the tests by nohup, or in the background, ignores some of them, and then so does the command.
    before = signal.signal(number, signal.SIG_DFL)

    def host() -> None:
        os.kill(os.getpid(), number)
        # By now Python has seen to it.
        for _ in range(1000):
            pass
        went_on.append(True)

    greenlet = gevent.Greenlet(host)
    try:
        with caught(*SIGNALS), gevent.Timeout(20), pytest.raises(Interrupted):
            greenlet.start()
            gevent.sleep(10)
        greenlet.join(timeout=1)
    finally:
        signal.signal(number, before)
    assert went_on == [True] and greenlet.successful()


_LEFT = """
import os, signal
from gevent.exceptions import BlockingSwitchOutError
from gpunode.cli.interruption import interruptible

class Left:
    def __init__(self, error):
        self.error = error
    def __del__(self):
        raise self.error

with interruptible():
    left = Left(BlockingSwitchOutError("Impossible to call blocking function")), Left(ValueError("told"))
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.real
def test_of_a_connection_that_is_left_in_the_middle_nothing_is_said_at_the_end() -> None:
    words = [sys.executable, "-c", _LEFT]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "interrupted: nothing was done" in done.stderr
    assert "Impossible" not in done.stderr and "ValueError: told" in done.stderr


@pytest.mark.pure
def test_a_signal_that_comes_while_nobody_is_at_work_ends_the_command() -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with caught(*SIGNALS), gevent.Timeout(20), pytest.raises(Interrupted):
        gevent.sleep(10)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make an inventory of SIMULATED hosts that take seconds to be connected to."""
    folder = tmp_path_factory.mktemp("fleet")
    with answering(folder, b"nothing that a node says") as data:
        (path := folder / "fleet.py").write_text(f"nodes = [(f'gpu-{{n}}', {data!r}) for n in range(120)]\n")
        yield path


@pytest.mark.real
@pytest.mark.simulated
@pytest.mark.tier2
@pytest.mark.parametrize("late", [0.0, 0.3, 0.6, 0.9])
def test_a_command_that_connects_to_many_hosts_is_ended_at_any_moment(fleet: Path, late: float) -> None:
    words = [sys.executable, "-c", "from gpunode.cli import main; main()", "drift", "--json", "--processes", "1"]
    process = subprocess.Popen(
        [*words, str(fleet)], cwd=fleet.parent,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "GPUNODE_HISTORY": "none"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    with process:
        while not psutil.Process(process.pid).net_connections():
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(late)
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        printed, said = process.communicate(timeout=100)
        took = time.monotonic() - sent
    assert process.returncode == 1
    assert json.loads(printed)["code"] == "gpunode.interrupted", printed
    assert said.decode().endswith("interrupted [gpunode.interrupted]\n") and b"Traceback" not in said
    # Far less than the hosts take; who is being left has some seconds.
    assert took < 8


@pytest.mark.tier2
def test_a_part_whose_command_was_ended_on_its_worker_came_to_no_result(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that, if it only read, it is asked once more.
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    (tmp_path / "fleet.py").write_text(f"nodes = [('gpu-1', {silent})]\n")
    words = ["drift", "--json", str(tmp_path / "fleet.py")]
    task: dict[str, Any] = {"name": "a part", "words": words, "environment": {}, "only_by": None}

    def end() -> None:
        # Once it connects; before, it would be ended without a word.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            child = work._children.get("a part")
            if child is not None and psutil.Process(child.pid).net_connections():
                break
            time.sleep(0.05)
        work.end(["a part"])

    threading.Thread(target=end).start()
    found = work.done(task, "folder")
    assert found["broken"] and found.get("document") is None, found


@pytest.mark.pure
def test_a_run_that_is_left_is_told_to_end_before_it_is_ended(tmp_path: Path) -> None:
    script = f"trap 'echo ended > {tmp_path}/said; exit 3' TERM; echo begun; while :; do sleep 0.05; done"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        with pytest.raises(Interrupted), ended_with_us(process):
            raise Interrupted
        assert process.returncode == 3
    assert (tmp_path / "said").read_text() == "ended\n"


@pytest.mark.pure
def test_a_run_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom gpunode.fleet.run import child\n"
        "folder = Path(sys.argv[1])\nfiles = child.Files(folder / 'log', folder / 'printed', folder / 'events')\n"
        "child.run([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(9)'], files, 'it', 1, {})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path]) as command:
        until(lambda: (tmp_path / "printed").is_file() and (tmp_path / "printed").stat().st_size > 0)
        (run,) = psutil.Process(command.pid).children()
        command.kill()
    # Its parent is gone, and it may be a zombie until somebody waits for it.
    until(lambda: not run.is_running() or run.status() == psutil.STATUS_ZOMBIE)
