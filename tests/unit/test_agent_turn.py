"""A push on a node that pulls: it holds the node's lock as long as it is connected. Real: flock; pyinfra's @local."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyinfra.connectors.local import LocalConnector

from gpunode.base.run_context import FAILURE_REASONS
from gpunode.facts.interrupted import Interrupted as Fact
from gpunode.operations import agent_turn
from gpunode.system.transaction import Interrupted
from tests.support.messages import unnamed
from tests.support.simulated_host import Host

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock"),
]


STATE: Any = None


def local(pulls: bool = True) -> Any:
    """Return a host that is this machine."""
    host: Any = Host({Fact: Interrupted(pulls=pulls)})
    host.connector = LocalConnector.__new__(LocalConnector)
    return host


def closed(host: Any) -> None:
    """End the connection that holds a host's lock."""
    process = agent_turn._held.of(host)
    agent_turn._held.set(host, None)
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


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
    host = local()
    assert agent_turn._take(STATE, host) and not is_free(lock)
    # Once for a run, however often it is asked.
    assert agent_turn._take(STATE, host)
    closed(host)
    assert is_free(lock)


def test_a_lock_that_went_with_a_boot_is_taken_anew_and_one_that_nobody_held_is_not(lock: Path) -> None:
    host = local()
    assert agent_turn.retaken(STATE, host) and is_free(lock)
    assert agent_turn._take(STATE, host)
    before = agent_turn._held.of(host)
    before.kill()
    assert before.wait(10) and before.communicate()
    assert agent_turn.retaken(STATE, host) and not is_free(lock)
    assert agent_turn._held.of(host) is not before
    closed(host)


def test_a_lock_that_is_not_to_be_had_fails_the_node_with_what_to_do(lock: Path) -> None:
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        host = local()
        assert not agent_turn._take(STATE, host)
        closed(host)
    assert unnamed(str(FAILURE_REASONS.of(host)[0]), "gpunode-agent") == []


def test_a_run_of_the_agent_s_own_takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_turn, "host", local())
    assert agent_turn.pulls()
    monkeypatch.setenv(agent_turn.PULL, "1")
    assert not agent_turn.pulls()
    monkeypatch.delenv(agent_turn.PULL)
    monkeypatch.setattr(agent_turn, "host", local(pulls=False))
    assert not agent_turn.pulls()
