"""Errors at several widths: golden texts of what commands say on standard error, no word and no command cut."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.folding import fold_lines
from gpunode.cli.errors import BROKEN_OFF, complain, say_usage
from gpunode.fleet.call import Call
from tests import warm

pytestmark = pytest.mark.pure
GOLDEN = Path(__file__).parent / "data" / "errors_text"
WIDTHS = [40, 80, 100, 160]
COMMANDS = (
    "check wrong.py", "check fleet.py --limit gpu-3", "check nowhere.py", "plan", "mig check site.yaml",
    "rollout --resume fleet.py", "explain driver.loaded-modul", "drift fleet.py --junit nowhere/report.xml",
)  # fmt: skip
# A command that is to be pasted, longer than any width but the last.
CALL = Call("inventories/production.py", ("gpu-1",), ("driver.version=580.95.05",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two inventories, one of them wrong, and a declaration with mistakes."""
    (tmp_path / "fleet.py").write_text('gpus = ["gpu-1", "gpu-2"]\n')
    (tmp_path / "wrong.py").write_text(
        'gpus = [("gpu-1", {"driver": {"source": "elsewhere", "brnch": "580"}}), ("gpu-2", {"toolkit": 1})]\n'
    )
    (tmp_path / "site.yaml").write_text(
        "version: v1\nmig-configs:\n  all:\n    - devices: some\n      mig-enabled: 1\n"
    )
    return tmp_path


@pytest.mark.parametrize("columns", WIDTHS)
def test_what_ends_a_command_fits_the_terminal(folder: Path, columns: int) -> None:
    environment = {**os.environ, "COLUMNS": str(columns)}
    parts = []
    for words in COMMANDS:
        done = warm.run("gpunode", *words.split(), "--output", "tty", cwd=folder, env=environment)
        assert done.returncode in (1, 3, 64), words
        parts.append(f"$ gpunode {words}\n{done.stderr}")
    assert "\n".join(parts) == (GOLDEN / f"{columns}.txt").read_text()


def test_in_a_log_an_error_is_one_line(folder: Path) -> None:
    for output in ("auto", "plain"):
        done = warm.run("gpunode", "drift", "fleet.py", "--limit", "gpu-3", "--output", output, cwd=folder)
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
        assert line.endswith("or a group: fleet, gpus [limit.no-host]")


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_command_in_an_error_stays_in_one_piece(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpunode.cli.errors.error_columns", lambda: columns)
    complain(
        f"the last rollout was broken off: go on with it by `{CALL.of('rollout', '--resume')}`, or not", BROKEN_OFF
    )
    said = capsys.readouterr().err
    assert f"`{CALL.of('rollout', '--resume')}`" in said and said.endswith("[run.broken-off]\n")
    # Whatever else there is fits.
    assert [line for line in said.splitlines() if len(line) > columns and "`" not in line] == []
    assert len(said.splitlines()) > 1 or columns == max(WIDTHS)


def test_what_is_allowed_stands_before_the_code_and_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    shells = click.Argument(["shell"], type=click.Choice(["bash", "zsh"]))
    say_usage(click.MissingParameter(param=shells))
    assert capsys.readouterr().err == "Error: Missing argument 'SHELL'. Choose from: bash, zsh [gpunode.usage]\n"


LINES = st.lists(st.text("ab ", min_size=1, max_size=60), min_size=1, max_size=6)


@given(LINES, st.integers(4, 80))
def test_each_line_of_an_error_is_folded_under_itself_and_every_word_is_there(lines: list[str], columns: int) -> None:
    told = fold_lines("\n".join(lines), columns)
    assert told.split() == " ".join(lines).split()
    at = 0
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        rows = told.split("\n")[at:]
        # What goes on of it stands deeper than it; the next line of the text begins anew.
        words = line.split()
        taken: list[str] = []
        for row in rows:
            taken += row.split()
            at += 1
            assert row is rows[0] or re.match(f" {{{indent + 2}}}[^ ]", row)
            if taken == words:
                break
        assert taken == words
