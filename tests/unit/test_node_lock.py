"""The lock of a node: a run holds it as long as it is connected. Real: flock, the script, pyinfra's @local."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.connectors.local import LocalConnector
from pyinfra.context import ctx_host

from gpunode.agent import pull
from gpunode.agent.pull import Places, turn
from gpunode.base.run_context import RUN_NAME, WAVE
from gpunode.operations import node_lock
from gpunode.operations.failure import node_operation, refuse
from tests.support.messages import unnamed
from tests.support.simulated_host import Host

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(60),
    pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock"),
]
SCRIPT = Path(__file__).parents[2] / "templates" / "scripts" / "node_lock.sh"
# What another controller's run is called.
OTHER = "`gpunode apply b.py` by anna@bastion, process 7 there"


def local() -> Any:
    """Return a host that is this machine."""
    host: Any = Host({})
    host.connector = LocalConnector.__new__(LocalConnector)
    host.current_op_global_arguments = {"_sudo": False, "_timeout": 3, "_get_pty": True}
    return host


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(node_lock.LOCKED)
    path = tmp_path / "gpunode" / "agent.lock"
    monkeypatch.setattr(node_lock, "_LOCK", path)
    return path


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, name: str = "`gpunode apply a.py`") -> Iterator[Any]:
    """Yield the host of a run of this name, which has ended behind it."""
    monkeypatch.setenv(RUN_NAME, name)
    host = local()
    with ctx_host.use(host):
        try:
            yield host
        finally:
            end(host)


def end(host: Any) -> None:
    """End the connection that holds a host's lock, as the end of its controller does."""
    if (held := node_lock._held.of(host)) is not None:
        for stream in (held.stdin, held.stdout, held.stderr):
            stream.close()
        held.wait(10)


def is_free(lock: Path) -> bool:
    with lock.open("r+") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def test_the_lock_is_held_until_the_connection_ends(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(monkeypatch) as host:
        assert node_lock.refusal() is None and not is_free(lock)
        held = node_lock._held.of(host)
        # Once for a run, however many operations ask.
        assert node_lock.refusal() is None and node_lock._held.of(host) is held
        assert lock.stat().st_mode & 0o777 == 0o600
    assert is_free(lock)


def test_a_lock_that_root_linked_to_another_place_is_taken(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock.parent.mkdir()
    lock.symlink_to(lock.parent / "elsewhere")
    with running(monkeypatch):
        assert node_lock.refusal() is None and not is_free(lock)


def test_another_run_is_refused_by_name_until_the_first_has_ended(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(monkeypatch) as host:
        assert node_lock.refusal() is None
        process, since, _ = lock.read_text().split(" ", 2)
        with running(monkeypatch, "`gpunode apply b.py`"):
            reason = node_lock.refusal() or ""
            named = ("`gpunode apply a.py`", node_lock.runner(), process, since, "[run.node-locked]")
            assert unnamed(reason, *named) == []
            # The refused run leaves nothing behind that takes the lock later.
            assert not is_free(lock)
            end(host)
            assert node_lock.refusal() is None
            assert "b.py" in lock.read_text()


def test_a_lock_whose_process_was_ended_is_taken_again(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(monkeypatch) as host:
        assert node_lock.refusal() is None
        before = node_lock._held.of(host)
        os.kill(int(lock.read_text().split()[0]), signal.SIGKILL)
        before.wait(10)
        assert node_lock.refusal() is None and not is_free(lock)
        assert node_lock._held.of(host) is not before
        for stream in (before.stdin, before.stdout, before.stderr):
            stream.close()


def test_two_hosts_of_one_run_that_are_the_same_machine_share_it(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(monkeypatch):
        assert node_lock.refusal() is None
        with running(monkeypatch):
            assert node_lock.refusal() is None
        assert not is_free(lock)


HOLD = """
import fcntl, os, sys, time
with open(sys.argv[1], "a+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.truncate(0)
    file.write(sys.argv[2].replace("PID", str(os.getpid())))
    file.flush()
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held(lock: Path, written: str) -> Iterator[Any]:
    """Have another process hold the lock, with a text of its own in the file."""
    lock.parent.mkdir(exist_ok=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, lock, written], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        with suppress(OSError):
            process.communicate("\n", timeout=10)


@pytest.mark.parametrize(
    ("written", "wave", "waits"),
    [
        (f"PID 2026-01-01T00:00Z {OTHER}\n", "", False),
        # The run of a rollout's controller that died may still be ending.
        (f"PID 2026-01-01T00:00Z {OTHER}\n", "3", True),
        ("PID 2026-01-01T00:00Z the agent's pull (gpunode-agent.service)\n", "", True),
        # The pull of an older agent, which writes no name; the name of a holder before it.
        ("", "", True),
        (f"999999999 2026-01-01T00:00Z {OTHER}\n", "", True),
    ],
)
def test_who_is_waited_for(lock: Path, monkeypatch: pytest.MonkeyPatch, written: str, wave: str, waits: bool) -> None:
    monkeypatch.setenv(WAVE, wave)
    monkeypatch.setattr(node_lock, "PATIENCE", 600)
    forgotten: list[Any] = []
    with held(lock, written) as other, running(monkeypatch) as host:
        host.run_shell_command = forgotten.append
        host.log = lambda _: print(file=other.stdin, flush=True)
        reason = node_lock.refusal()
        assert (reason is None, len(forgotten)) == (waits, waits)
        assert waits or unnamed(reason or "", OTHER, str(other.pid)) == []


@contextmanager
def held_by_nobody(lock: Path) -> Iterator[str]:
    """Have a process of a user without any right hold a lock of mode 0644, as an older gpunode left it."""
    lock.parent.mkdir()
    lock.touch(0o644)
    with (
        lock.open() as file,
        subprocess.Popen(
            ["sh", "-c", "flock 0; echo held; exec sleep 60"], stdin=file, stdout=subprocess.PIPE, text=True, user=65534
        ) as process,
    ):
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield str(process.pid)
        process.kill()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a process of another user")


@needs_root
def test_a_lock_of_another_user_than_root_stops_no_push(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_by_nobody(lock) as process, running(monkeypatch, "`gpunode apply a.py`") as host:
        said: list[str] = []
        host.log = said.append
        assert node_lock.refusal() is None and unnamed(" ".join(said), process, "65534") == []
        assert lock.stat().st_mode & 0o777 == 0o600 and not is_free(lock) and [*lock.parent.iterdir()] == [lock]
        with running(monkeypatch, "`gpunode apply b.py`"):
            assert unnamed(node_lock.refusal() or "", "`gpunode apply a.py`") == []


@needs_root
def test_a_lock_of_another_user_than_root_stops_no_pull(
    lock: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with held_by_nobody(lock) as process, turn(Places(lock=lock), SCRIPT) as waited:
        assert waited and not is_free(lock)
        assert unnamed(lock.read_text(), str(os.getpid())) == unnamed(capsys.readouterr().err, process, "65534") == []


@pytest.mark.parametrize("written", [f"PID 2026-01-01T00:00Z {OTHER}\n", "", f"999999999 2026-01-01T00:00Z {OTHER}\n"])
def test_a_pull_names_whom_it_waits_for_and_gives_up(
    lock: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    monkeypatch.setattr(pull, "PATIENCE", 0)
    with held(lock, written) as other:
        with pytest.raises(pull.Refused) as refused, turn(Places(lock=lock), SCRIPT):
            pass
        named = (str(other.pid), *([OTHER, "2026-01-01T00:00Z"] if "PID" in written else []))
        assert unnamed(capsys.readouterr().err, *named) == unnamed(refused.value.cause, *named) == []
        # The text of a run that has ended names nobody.
        assert "PID" in written or OTHER not in refused.value.cause


def test_a_wait_has_an_end(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_lock, "PATIENCE", 0)
    with held(lock, ""), running(monkeypatch):
        assert unnamed(node_lock.refusal() or "", "[run.node-locked]") == []


def test_a_lock_that_cannot_be_made_is_a_refusal_with_the_reason(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock.parent.write_text("no folder")
    with running(monkeypatch):
        assert unnamed(node_lock.refusal() or "", str(lock), "[run.node-locked]") == []


def test_an_agent_s_pull_is_named_and_its_own_run_takes_no_lock(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with turn(Places(lock=lock), SCRIPT):
        assert unnamed(lock.read_text(), f"process {os.getpid()}", "gpunode-agent.service") == []
        with running(monkeypatch) as host:
            monkeypatch.setenv(node_lock.PULL, "1")
            assert node_lock.refusal() is None and node_lock._held.of(host) is None


def test_an_operation_that_may_change_the_node_needs_the_lock_and_a_refusal_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_lock, "refusal", lambda: "somebody else's")
    done: list[str] = []

    @node_operation
    def change() -> Iterator[Any]:
        done.append("changed")
        yield from ()

    host = local()
    with ctx_host.use(host):
        (command,) = change._inner()
        assert command.function(host.state, host) is False and (done, host.refusals) == ([], ["somebody else's"])
        (command,) = refuse._inner(reasons=["x"])
        assert command.function(host.state, host) is False and host.refusals[1:] == ["refused: x"]


def test_what_is_only_prepared_takes_no_lock(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(monkeypatch) as host:
        host.state = SimpleNamespace(is_executing=False)
        assert node_lock.refusal() is None and not lock.exists()
