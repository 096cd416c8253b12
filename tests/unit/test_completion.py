"""TAB in a real bash, with what `gpunode completion bash` prints.

What zsh and fish read is judged by them, where they are installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpunode.cli import gpunode
from tests.support import warm
from tests.support.terminal import Terminal

pytestmark = pytest.mark.real

COMMANDS = gpunode.list_commands(click.Context(gpunode))


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Return a bash without settings of a user's that has read the completion."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    folder = tmp_path_factory.mktemp("bash")
    (folder / "inventories").mkdir()
    (folder / "inventories" / "prod.py").touch()
    (folder / "bin").symlink_to(Path(sys.executable).parent)
    (folder / "completion").write_text(warm.run("gpunode", "completion", "bash").stdout)
    (folder / "inputrc").write_text("set bell-style none\nset show-all-if-ambiguous on\nset page-completions off\n")
    environment = {
        "TERM": "dumb", "INPUTRC": str(folder / "inputrc"), "PS1": "> ", "HOME": str(folder), "LANG": "C.UTF-8",
        "COLUMNS": "400",
    }  # fmt: skip
    found = Terminal(folder, "bash", "--norc", "--noprofile", "-i", environment=environment)
    typed(found, "source completion; echo re''ady\n", "ready")
    yield found
    # bash handles a signal that arrives while it completes a word at the next key, and no key would follow.
    found.type(b"\x15exit\n")
    found.end()


def typed(bash: Terminal, keys: str, until: str) -> str:
    """Type the keys on an empty line, and return what is shown until a pattern is, or ten seconds have passed."""
    # Ctrl-U takes away what stands on the line: nothing of it is run.
    bash.type(f"\x15{keys}".encode())
    return bash.read(lambda shown: bool(re.search(until.encode(), shown)), 10).decode(errors="replace")


@pytest.mark.parametrize(
    ("keys", "becomes"),
    [
        ("gpunode dri\t", "gpunode drift "),
        ("gpunode lab ss\t", "gpunode lab ssh "),
        ("gpunode drift --prom\t", "gpunode drift --prometheus "),
        ("gpunode init --address ex\t", "gpunode init --address external "),
        *((f"gpunode {name} inventories/p\t", f"gpunode {name} inventories/prod.py ")
          for name in ("apply", "check", "ci", "cluster", "drift", "facts", "plan", "rollout")),
        ("gpunode plan --facts inventories/p\t", "gpunode plan --facts inventories/prod.py "),
    ],
)  # fmt: skip
def test_tab_completes_commands_options_choices_and_files(bash: Terminal, keys: str, becomes: str) -> None:
    assert becomes in typed(bash, keys, re.escape(becomes))


def test_tab_behind_the_program_lists_every_command(bash: Terminal) -> None:
    said = typed(bash, "gpunode \t", r"rollout\s+runtime")
    assert set(COMMANDS) <= set(said.split())


def completed(line: str, *program: str) -> list[str]:
    """Return what the program prints of the last word of a line, and what it fails with."""
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_GPUNODE_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, *program], env={**os.environ, **asked, "PYTHONPATH": str(warm.CHECKOUT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_command_s_name_is_completed_without_importing_the_commands() -> None:
    program = """
import atexit, sys
atexit.register(lambda: print(*[name for name in sys.modules if "gpunode.cli." in name]))
from gpunode.cli import gpunode
gpunode.main(prog_name="gpunode")
"""
    *candidates, imported = completed("gpunode c", "-c", program)
    assert candidates == [f"plain,{name}" for name in sorted(COMMANDS) if name.startswith("c")]
    # What the group itself says its errors with.
    own = {"errors", "interruption", "output", "selection"}
    assert set(imported.split()) == {f"gpunode.cli.{name}" for name in own}


def test_a_setting_on_the_line_is_not_judged_while_it_is_completed() -> None:
    program = str(Path(sys.executable).parent / "gpunode")
    assert completed("gpunode rollout --set nonsense --can", program) == ["plain,--canary"]


@pytest.mark.parametrize(("shell", "judge"), [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_what_other_shells_read_is_of_their_language(shell: str, judge: list[str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    (tmp_path / "script").write_text(warm.run("gpunode", "completion", shell).stdout)
    done = subprocess.run([*judge, tmp_path / "script"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "_GPUNODE_COMPLETE" in (tmp_path / "script").read_text()
