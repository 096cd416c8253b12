"""Commands for any login shell: the real shells that this machine has read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpunode.base.probe import batch_command
from gpunode.facts.node import Node
from gpunode.fleet.access import connection
from gpunode.operations.script import script_command

pytestmark = pytest.mark.pure

ALL = ("sh", "bash", "busybox sh", "tcsh", "bsd-csh", "fish")
SHELLS = [shell for shell in ALL if shutil.which(shell.split()[0])]
TEXTS = (
    "echo 'it'\\''s!'",
    "sh -c 'echo one\necho two && echo \"three\\nfour\" $((1 + 1))\n'",
    "echo 'a\\\\b %s 100% \\0101 \\c' é '!x' `echo back` \"$(echo in)\"",
    "printf '%s|' \"a  b\" 'c\td' ''",
    "sh -c 'exit 7'",
    str(script_command('printf "%s %s\\n" "$1" "$name"', "o'ne!", name="t\\wo\n!")),
)


def ran(shell: str, command: str) -> subprocess.CompletedProcess[str]:
    words = shell.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} on this machine")
    return subprocess.run([*words, "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", TEXTS)
def test_every_shell_reads_the_neutral_form_as_sh_reads_the_command(shell: str, text: str) -> None:
    expected, found = ran("sh", text), ran(shell, connection.neutral(text))
    assert (found.stdout, found.returncode) == (expected.stdout, expected.returncode)
    assert expected.stdout or expected.returncode == 7


def test_the_neutral_form_has_nothing_that_a_shell_reads_in_its_own_way_and_no_word_too_long_for_a_csh() -> None:
    command = batch_command(Node().command().texts, "mark")
    _, *words = connection.neutral(command).split(" gpunode ", 1)
    assert max(map(len, words[0].split("' '"))) <= 1000 < len(command)
    assert words[0].isascii() and words[0].isprintable() and "!" not in words[0] and "\\'" not in words[0]
    # A command is one argument of the login shell: 128 KiB at most.
    assert len(connection.neutral(command)) < 100_000


@pytest.mark.parametrize("shell", ["sh", "bash", "sh -u", "bash -u", "busybox sh"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_guard_leaves_a_command_of_sh_as_it_is(shell: str, text: str) -> None:
    expected, found = ran(shell, text), ran(shell, connection.GUARD + text)
    assert (found.stdout, found.stderr, found.returncode) == (expected.stdout, expected.stderr, expected.returncode)
    assert not connection.refused(found.stdout.splitlines(), found.stderr.splitlines())


@pytest.mark.parametrize("shell", ["tcsh", "bsd-csh", "fish"])
def test_another_shell_refuses_a_guarded_command_before_it_runs_any_of_it(shell: str, tmp_path: Path) -> None:
    harm = f"sh -c 'echo one\ntouch {tmp_path}/ran\n'"
    found = ran(shell, connection.GUARD + harm)
    assert connection.refused(found.stdout.splitlines(), found.stderr.splitlines())
    assert not list(tmp_path.iterdir())
