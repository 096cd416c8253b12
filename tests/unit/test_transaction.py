"""A transaction's script, run for real by sh in a folder of its own: journal and file after each kind of end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from operations.script import script
from operations.transaction import Transaction, transaction_command, transaction_text


def begin(folder: Path, change: str) -> subprocess.Popen[str]:
    (folder / "file").write_text("old")
    transaction = Transaction(
        name="t",
        checkpoint='cp "$file" "$checkpoint/file"',
        change=change,
        restore='cp "$checkpoint/file" "$file"',
    )
    text = transaction_text(transaction, "target-1", {"file": str(folder / "file")})
    assert "folder=/var/lib/gpunode/transactions" in text
    (folder / "t.sh").write_text(script(text.replace("folder=/var/lib/gpunode/transactions", f"folder={folder}", 1)))
    return subprocess.Popen(
        ["sh", folder / "t.sh", "change"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def state(folder: Path) -> tuple[str, str]:
    journal = json.loads((folder / "t.json").read_text())
    assert journal["target"] == "target-1"
    return journal["state"], (folder / "file").read_text()


@pytest.mark.real
@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ('printf new > "$file"', ("done", "new")),
        ('printf new > "$file"; false; true', ("restored", "old")),
        ('printf new > "$file"; reject "it does not work"', ("failed", "old")),
        ('printf new > "$file"; kill -TERM $$; sleep 1', ("restored", "old")),
    ],
)
def test_how_it_ends_is_in_the_journal(change: str, ends: tuple[str, str], tmp_path: Path) -> None:
    process = begin(tmp_path, change)
    process.communicate(timeout=30)
    assert state(tmp_path) == ends
    assert (process.returncode == 0) == (ends[0] == "done")


@pytest.mark.real
def test_one_that_was_killed_is_undone_by_its_own_script_and_twice_is_as_once(tmp_path: Path) -> None:
    begin(tmp_path, 'printf new > "$file"; kill -9 $$').communicate(timeout=30)
    assert state(tmp_path) == ("began", "new")
    for _ in range(2):
        subprocess.run(["sh", tmp_path / "t.sh", "undo"], check=True, capture_output=True, timeout=30)
        assert state(tmp_path) == ("restored", "old")


@pytest.mark.real
def test_one_that_ended_well_is_undone_with_the_reason_that_showed_later(tmp_path: Path) -> None:
    begin(tmp_path, 'printf new > "$file"').communicate(timeout=30)
    assert state(tmp_path) == ("done", "new")
    undo = ["sh", str(tmp_path / "t.sh"), "undo", "it does not load"]
    subprocess.run(undo, check=True, capture_output=True, timeout=30)
    assert state(tmp_path) == ("failed", "old")
    assert json.loads((tmp_path / "t.json").read_text())["reason"] == "it does not load"


@pytest.mark.real
def test_a_checkpoint_that_fails_changes_nothing_and_journals_nothing(tmp_path: Path) -> None:
    process = begin(tmp_path, 'printf new > "$file"')
    process.communicate(timeout=30)
    (tmp_path / "t.json").unlink()
    (tmp_path / "file").unlink()
    assert subprocess.run(["sh", tmp_path / "t.sh", "change"], capture_output=True, timeout=30).returncode != 0
    assert not (tmp_path / "t.json").exists() and not (tmp_path / "file").exists()


@pytest.mark.real
@pytest.mark.parametrize(("journal", "ends"), [("done", 0), ("began", 143), ("restored", 143), (None, 143)])
def test_a_unit_that_is_called_a_success_is_one_only_where_its_journal_says_so(
    journal: str | None, ends: int, tmp_path: Path
) -> None:
    """systemd-run is SIMULATED: it says yes to everything, as the real one does in a shutdown."""
    (tmp_path / "systemd-run").write_text(f"#!/bin/sh\necho changed > {tmp_path}/t.log\n")
    (tmp_path / "systemd-run").chmod(0o755)
    if journal:
        (tmp_path / "t.json").write_text(f'{{"schema": 1, "state": "{journal}", "target": "target-1", "reason": ""}}\n')
    command = transaction_command(Transaction("t", "true", "true", "true"), "target-1").get_raw_value()
    done = subprocess.run(
        ["sh", "-c", command.replace("/var/lib/gpunode/transactions", str(tmp_path))],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, input="dHJ1ZQo=\n",
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (ends, "changed\n"), done.stderr
    assert ("was stopped from outside" in done.stderr) == bool(ends)


@pytest.mark.real
def test_a_second_request_to_stop_does_not_stop_the_putting_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("new")
    (tmp_path / "t").mkdir()
    transaction = Transaction("t", "true", "kill -TERM $$; sleep 1", 'kill -TERM $$; sleep 0.2; printf old > "$file"')
    text = transaction_text(transaction, "target-1", {"file": str(tmp_path / "file")})
    done = subprocess.run(
        ["sh", "-c", script(text.replace("/var/lib/gpunode/transactions", str(tmp_path), 1)), "sh", "change"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, *state(tmp_path)) == (143, "restored", "old")
