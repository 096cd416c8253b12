"""A run of pyinfra's own command line that ends while it connects: its verdict, and nothing of ours in others' runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure
# Nothing listens on port 1 of this machine.
GONE = '{"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_connect_retries": 0}'


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.py"
    path.write_text(f'gpus = [("gpu-1", {GONE}), ("gpu-2", {GONE})]\n')
    return path


def run(*words: object) -> tuple[int, list[str]]:
    """Return the exit status of a run of pyinfra's, and what it said from the verdict on, or from the end of it."""
    done = warm.run("pyinfra", *words, env={**os.environ, "NO_COLOR": "1"})
    lines = [line.strip() for line in done.stderr.splitlines()]
    return done.returncode, lines[lines.index("--> Disconnecting from hosts...") + 1 :]


@pytest.mark.parametrize(
    "words", [["deploys/gpu_node.py", "-y"], ["deploys/gpu_node.py", "--dry"], ["deploys.drain.uncordon"]]
)
def test_a_run_that_reaches_no_host_ends_with_its_verdict(fleet: Path, words: list[str]) -> None:
    code, told = run(fleet, *words)
    assert (code, told[0]) == (1, "--> Verdict:")
    assert unnamed(told[1], "2 nodes", "gpu-1, gpu-2", "node.connection") == []
    # What failed, what to do, and what to run then.
    assert any(line.startswith("cause ") and "port 1 on 127.0.0.1" in line for line in told)
    assert any(line.startswith("remedy ") for line in told) and f"pyinfra {fleet} {words[0]}" in told
    assert told[-1].startswith("--> pyinfra error: ")


def test_of_the_hosts_that_were_chosen_alone(fleet: Path) -> None:
    _, told = run(fleet, "deploys/gpu_node.py", "-y", "--limit", "gpu-2")
    assert told[1] == "node: connection: unreachable, gpu-2 [node.connection]"
    assert f"pyinfra {fleet} deploys/gpu_node.py --limit gpu-2" in told


@pytest.mark.parametrize("words", [["exec", "--", "id"], ["fact", "facts.driver.Driver"], ["other.py", "-y"]])
def test_what_others_do_with_pyinfra_has_no_verdict(fleet: Path, words: list[str]) -> None:
    other = fleet.parent / "other.py"
    other.write_text("from pyinfra.operations import server\n")
    code, told = run(fleet, *[other if word == "other.py" else word for word in words])
    assert (code, told) == (1, ["--> pyinfra error: No hosts remaining!"])


def test_where_too_few_connect_the_others_are_told_what_ended_the_run(fleet: Path) -> None:
    fleet.write_text(f'gpus = [("gpu-1", {GONE}), "@local"]\n')
    code, told = run(fleet, "deploys/gpu_node.py", "-y", "--fail-percent", "10")
    assert code == 1 and told[0] == "--> Verdict:"
    assert "node: connection: unreachable, gpu-1 [node.connection]" in told
    assert "run: cut off: error, @local [run.broken-off]" in told
    assert any("Over 10%" in line for line in told) and "2 nodes: 1 unreachable, 1 error" in told
