"""A push on a node that pulls: it holds the node's lock as long as it is connected. Real: flock; pyinfra's @local."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pyinfra.connectors.local import LocalConnector

from gpunode.operations import agent_turn
from gpunode.system.interrupted import Interrupted

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock"),
]


class Host:
    """Stand in for pyinfra's host: what it is reached by, and what it logs."""

    name = "gpu-1"

    def __init__(self, pulls: bool = True) -> None:
        self.connector = LocalConnector.__new__(LocalConnector)
        self.said: list[str] = []
        self._reading = Interrupted(pulls=pulls)

    def get_fact(self, fact: object) -> Interrupted:
        return self._reading

    def log(self, text: str) -> None:
        self.said.append(text)

    def log_styled(self, text: str, **style: object) -> None:
        self.said.append(text)


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "agent.lock"
    path.touch()
    monkeypatch.setattr(agent_turn, "_HOLD", f"exec flock -x -w 2 {path} sh -c 'echo taken; exec cat'")
    return path


def is_free(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_the_lock_is_held_until_the_connection_ends(lock: Path) -> None:
    host = Host()
    assert agent_turn._take(None, host) and not is_free(lock)  # type: ignore[arg-type]
    # Once for a run, however often it is asked.
    assert agent_turn._take(None, host)  # type: ignore[arg-type]
    process = agent_turn._held.pop(host)  # type: ignore[call-overload]
    assert isinstance(process, subprocess.Popen) and process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait(10)
    process.stdout.close()
    assert is_free(lock)


def test_a_lock_that_went_with_a_boot_is_taken_anew_and_one_that_nobody_held_is_not(lock: Path) -> None:
    host = Host()
    assert agent_turn.retaken(None, host) and is_free(lock)  # type: ignore[arg-type]
    assert agent_turn._take(None, host)  # type: ignore[arg-type]
    before = agent_turn._held[host]  # type: ignore[index]
    before.kill()
    before.wait(10)
    before.stdin.close()
    before.stdout.close()
    assert agent_turn.retaken(None, host) and not is_free(lock)  # type: ignore[arg-type]
    after = agent_turn._held.pop(host)  # type: ignore[call-overload]
    assert after is not before
    after.stdin.close()
    after.wait(10)
    after.stdout.close()


def test_a_lock_that_is_not_to_be_had_fails_the_node_with_what_to_do(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("gpunode.fleet.run_end.said", lambda host, text: said.append(text))
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        host = Host()
        assert not agent_turn._take(None, host)  # type: ignore[arg-type]
        process = agent_turn._held.pop(host)  # type: ignore[call-overload]
        process.wait(10)
        for stream in (process.stdin, process.stdout):
            stream.close()
    assert said and "systemctl status gpunode-agent" in said[0]


def test_a_run_of_the_agent_s_own_takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_turn, "host", Host())
    assert agent_turn.pulls()
    monkeypatch.setenv(agent_turn.PULL, "1")
    assert not agent_turn.pulls()
    monkeypatch.delenv(agent_turn.PULL)
    monkeypatch.setattr(agent_turn, "host", Host(pulls=False))
    assert not agent_turn.pulls()
