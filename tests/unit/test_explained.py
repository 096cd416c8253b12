"""A failed command of apt's tells cause and remedy last; and the shell text that makes apt wait and tell the truth.

SIMULATED: apt's programs, and pyinfra's host; sh is real.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from paramiko import SSHClient as ParamikoClient
from pyinfra.api import FunctionCommand, StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.explanations import ENDING, KEPT, UNDOING
from gpunode.base.run_context import FAILURE_REASONS
from gpunode.fleet import run_end
from gpunode.operations.apt import APT_GET, FINISH, MARK, READ_LISTS, REFRESH
from gpunode.operations.failure import explained_command, fail, node_operation
from gpunode.operations.keeping import KEEPING
from gpunode.operations.script import command_with_input, encoded, script, script_command
from gpunode.operations.transaction import transaction_text
from tests.support.transactions import of_bodies

FULL = "dpkg: error: unable to write /var/x: No space left on device"


def executed(
    lines: list[str], succeeded: bool = False, live: bool = False, of: str = "ours"
) -> tuple[bool, list[str], list[str]]:
    """Return whether the command succeeded, its output, and what was logged; of: what the command is."""
    logged: list[str] = []

    def execute(*_: Any) -> tuple[bool, CommandOutput]:
        return succeeded, CommandOutput([OutputLine("stdout", line) for line in lines])

    client = Mock(ParamikoClient)
    client.get_transport.return_value.is_active.return_value = of != "broken"
    host: Any = SimpleNamespace(connector=Mock(client=client), log_styled=lambda text, **_: logged.append(text))
    command = StringCommand("apt-get", "install")
    command = command if of == "user" else explained_command(command)
    state: Any = SimpleNamespace(print_output=live)
    ok, output = run_end.executed(execute, command, state, host, {})
    assert ok or len(FAILURE_REASONS.of(host)) == 1
    return ok, [line.line for line in output], logged


@pytest.mark.pure
def test_cause_and_remedy_are_the_last_that_is_said() -> None:
    ok, lines, logged = executed(["Reading package lists...", FULL])
    assert (ok, lines[:2], logged) == (False, ["Reading package lists...", FULL], [])
    assert [line.split(":")[:2] for line in lines[2:]] == [["gpunode", " cause"], ["gpunode", " remedy"]]
    assert "disk" in lines[2]
    # Output that was printed as it came is explained as well.
    assert [line.split(":")[1] for line in executed([FULL], live=True)[2]] == [" cause", " remedy"]
    # Success needs no explanation.
    assert executed([FULL], succeeded=True) == (True, [FULL], [])


@pytest.mark.pure
def test_what_fails_while_things_are_put_back_is_not_taken_for_the_cause() -> None:
    ok, lines, _ = executed(
        [
            "gpunode: it does not load",
            f"gpunode: {UNDOING}",
            FULL,
            "gpunode: it is down",
            "gpunode: ended: the transaction x",
        ]
    )
    assert not ok and "it does not load" in lines[-2] and "disk" not in lines[-2]
    # How the node is left belongs to the cause.
    assert lines[-2].endswith("it is down")
    assert UNDOING in transaction_text(of_bodies("true", "true", "true"), "target", {})


@pytest.mark.pure
def test_what_was_kept_of_somebody_s_is_named_where_the_undoing_succeeds() -> None:
    """Nothing else of what a command prints is shown then."""
    line = f"gpunode: /etc/x {KEPT} /etc/x.gpunode-lost"
    assert KEPT in KEEPING
    assert executed(["putting back", line], succeeded=True) == (True, ["putting back", line], [line])
    assert executed([line], succeeded=True, live=True)[2] == [], "it was printed as it came"


@pytest.mark.pure
@pytest.mark.parametrize(("lines", "of", "added"), [
    ([], "ours", 2), (["gpunode: exit status 1"], "ours", 2), ([FULL], "user", 2), (["no such thing"], "user", 0),
    ([], "user", 0), (["the connection broke"], "broken", 0),
])  # fmt: skip
def test_whose_command_it_was_and_what_is_known_decide_what_is_added(lines: list[str], of: str, added: int) -> None:
    ok, printed, _ = executed(lines, of=of)
    assert not ok and printed[: len(lines)] == lines and len(printed) == len(lines) + added
    # A script that was killed has not lost its connection.
    assert not any("connection" in line for line in printed[len(lines) :])


@pytest.mark.pure
def test_what_goes_to_standard_input_still_goes_there() -> None:
    command = explained_command(command_with_input(script_command("cat", name="x y"), "secret"))
    assert explained_command(command) is command
    assert command.connector_arguments == {"_stdin": [encoded("secret")]}
    assert "'name=x y'" in command.get_raw_value() and "secret" not in command.get_raw_value()


LOCKED = "Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 81 (unattended-upgr)"
CUDA = "http://mirror.example/cuda"


class Apt:
    """The programs of a node, in a folder: apt-get tells what the test wrote, and counts how often it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "gpunode-cuda.sources").write_text(f"Types: deb\nURIs: {CUDA}/\nSuites: /\n")
        for name, body in (("apt-config", "echo \"lock_seconds='2'\""), ("dpkg", "echo amd64"), ("sleep", "true")):
            self.program(name, body)

    def program(self, name: str, body: str) -> None:
        (self.folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {self.folder}/calls\n{body}\n')
        (self.folder / name).chmod(0o755)

    def calls(self, name: str) -> int:
        return sum(line.startswith(f"{name} ") for line in (self.folder / "calls").read_text().splitlines())

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        text = script(text.replace("/etc/apt/sources.list.d", str(self.folder)))
        return subprocess.run(
            ["sh", "-c", text], env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip


@pytest.fixture
def apt(tmp_path: Path) -> Apt:
    return Apt(tmp_path)


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("said", "code"),
    [
        (f"W: GPG error: {CUDA}  InRelease: NO_PUBKEY 12", 1),
        (f"W: Failed to fetch {CUDA}/InRelease  Could not connect", 1),
        ("W: Failed to fetch http://deb.example/dists/x/InRelease  Could not connect", 0),
        (f"W: Failed to fetch {CUDA}-other/InRelease  Could not connect", 0),
        (f"W: GPG error: {CUDA}-other  InRelease: NO_PUBKEY 12", 0),
        ("Hit:1 everything", 0),
    ],
)
def test_old_lists_do_for_any_repository_but_the_one_that_the_packages_come_from(
    apt: Apt, said: str, code: int
) -> None:
    others = (
        f"W: Failed to fetch {CUDA}-x/InRelease  404  Not Found\nW: Failed to fetch https://x.example/InRelease  404"
    )
    apt.program("apt-get", f"echo '{others}\n{said}'")
    done = apt.run(f"{APT_GET}{READ_LISTS}{REFRESH}refresh cuda")
    assert done.returncode == code, done.stderr
    assert (said in done.stderr) == bool(code)
    # Only the repository that the packages come from is the cause.
    assert "404" not in done.stderr
    assert apt.run(f"{APT_GET}{READ_LISTS}{REFRESH}refresh ''").returncode == 0


@pytest.mark.simulated
@pytest.mark.parametrize(
    "text", [f"{READ_LISTS}read_lists apt_get", "unlocked", f"{MARK}unlocked; mark hold x", FINISH]
)
def test_a_lock_that_is_not_freed_in_the_nodes_own_time_is_told_with_its_holder(apt: Apt, text: str) -> None:
    apt.program("apt-get", f"echo '{LOCKED}'; exit 100")
    apt.program("dpkg", "echo 'dpkg: error: dpkg frontend lock was locked by another process with pid 81'; exit 2")
    apt.program("apt-mark", "exit 100")
    done = apt.run(f"{APT_GET}{text}")
    assert done.returncode == 1
    assert LOCKED in done.stderr
    assert apt.calls("apt-get") + apt.calls("dpkg") <= 4


@pytest.mark.simulated
def test_a_lock_that_is_freed_while_we_wait_is_no_error(apt: Apt) -> None:
    apt.program("apt-get", f"[ -e {apt.folder}/freed ] || {{ touch {apt.folder}/freed; echo '{LOCKED}'; exit 100; }}")
    assert apt.run(f"{APT_GET}{READ_LISTS}read_lists apt_get").returncode == 0
    assert apt.calls("sleep") == 1


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("configured", "seconds"), [("", "300"), ("lock_seconds='7'", "7"), ("lock_seconds='-1'", "300")]
)
def test_apt_waits_for_locks_as_long_as_the_node_says_or_five_minutes(apt: Apt, configured: str, seconds: str) -> None:
    apt.program("apt-config", f'echo "{configured}"')
    apt.program("apt-get", 'echo "$@"')
    assert f"DPkg::Lock::Timeout={seconds} " in apt.run(f"{APT_GET}apt_get install x").stdout


@pytest.mark.pure
def test_every_shell_command_of_an_operation_is_explained() -> None:
    def steps() -> Iterator[Any]:
        yield StringCommand("systemctl", "enable", "x")
        yield script_command("true")
        yield fail("no")

    operation: Any = node_operation(steps)
    raw, scripted, refusal = operation._inner()
    assert raw.bits[-1] == scripted.bits[-1] == ENDING
    assert isinstance(refusal, FunctionCommand)


@pytest.mark.pure
def test_no_operation_goes_round_that() -> None:
    """pyinfra's own decorator would make an operation whose commands fail without a cause."""
    folder = Path(__file__).parents[2] / "operations"
    makers = [
        path.name for path in folder.rglob("*.py") if re.search(r"^\s*@operation\b", path.read_text(), re.MULTILINE)
    ]
    assert makers == ["failure.py"]
