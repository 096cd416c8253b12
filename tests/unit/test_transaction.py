"""A transaction's script, run for real by sh in a folder of its own: journal and file after each kind of end."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from gpunode.facts.transaction import TransactionJournal
from gpunode.operations.keeping import KEEPING
from gpunode.operations.script import script
from gpunode.operations.transaction import ENDED, Transaction, settled, transaction_command, transaction_text
from gpunode.system.transaction import Journal
from tests.support.simulated_host import Host
from tests.support.transactions import of_bodies


def begin(folder: Path, change: str) -> subprocess.Popen[str]:
    (folder / "file").write_text("old")
    transaction = of_bodies(
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
    undo = ["sh", str(tmp_path / "t.sh"), "undo", "not loaded"]
    subprocess.run(undo, check=True, capture_output=True, timeout=30)
    assert state(tmp_path) == ("failed", "old")
    assert json.loads((tmp_path / "t.json").read_text())["reason"] == "not loaded"


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
    command = transaction_command(of_bodies("true", "true", "true"), "target-1").get_raw_value()
    done = subprocess.run(
        ["sh", "-c", command.replace("/var/lib/gpunode/transactions", str(tmp_path))],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, input="dHJ1ZQo=\n",
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (ends, "changed\n"), done.stderr
    assert ("from outside" in done.stderr) == bool(ends)
    # Where it failed, and what it began is neither at work nor left half done.
    assert (f"{ENDED} t\n" in done.stderr) == (journal in ("restored", None))


@pytest.mark.real
def test_a_second_request_to_stop_does_not_stop_the_putting_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("new")
    (tmp_path / "t").mkdir()
    transaction = of_bodies("true", "kill -TERM $$; sleep 1", 'kill -TERM $$; sleep 0.2; printf old > "$file"')
    text = transaction_text(transaction, "target-1", {"file": str(tmp_path / "file")})
    done = subprocess.run(
        ["sh", "-c", script(text.replace("/var/lib/gpunode/transactions", str(tmp_path), 1)), "sh", "change"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, *state(tmp_path)) == (143, "restored", "old")


@pytest.fixture
def systemd_run(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose systemd-run is SIMULATED: it runs what it is told."""
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin/systemd-run"
    path.write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{path.parent}:{os.environ['PATH']}"}


def ask(folder: Path, environment: dict[str, str], transaction: Transaction, target: str, **variables: str) -> int:
    """Run a transaction as an operation does, in a folder of its own; return its exit status."""
    command = transaction_command(transaction, target, **variables)
    (given,) = command.connector_arguments["_stdin"]
    line = base64.b64decode(given).decode().replace("/var/lib/gpunode/transactions", str(folder))
    text = command.get_raw_value().replace("/var/lib/gpunode/transactions", str(folder))
    done = subprocess.run(
        ["sh", "-c", text], env=environment, input=base64.b64encode(line.encode()).decode() + "\n",
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.returncode


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.real
@pytest.mark.parametrize("refuses", ["exit 1", "false; true", "kill -9 $$"])
def test_a_change_that_refuses_to_begin_leaves_the_way_back_of_the_last_one(
    refuses: str, tmp_path: Path, systemd_run: dict[str, str]
) -> None:
    folder, file = tmp_path / "state", tmp_path / "file"
    file.write_text("old")
    first = of_bodies('cp "$file" "$checkpoint/file"', 'printf new > "$file"; : > "$checkpoint/unproven"',
        'cp "$checkpoint/file" "$file"',
    )  # fmt: skip
    assert ask(folder, systemd_run, first, "target-1", file=str(file)) == 0
    assert sorted(content(folder)) == ["t.json", "t.log", "t.sh", "t/file", "t/unproven"]
    kept = {name: text for name, text in content(folder).items() if name != "t.log"}
    second = of_bodies(f': > "$checkpoint/half"\n{refuses}', 'printf newer > "$file"', "true")
    assert ask(folder, systemd_run, second, "target-2", file=str(file)) != 0
    now = {name: text for name, text in content(folder).items() if name not in ("t.log", "t.new/half")}
    assert now == kept
    undo = ["sh", str(folder / "t.sh"), "undo", "not loaded"]
    subprocess.run(undo, check=True, capture_output=True, timeout=30)
    assert (file.read_text(), json.loads((folder / "t.json").read_text())["state"]) == ("old", "failed")


@pytest.mark.real
def test_a_change_that_began_is_undone_by_its_own_script_and_from_what_it_saved(
    tmp_path: Path, systemd_run: dict[str, str]
) -> None:
    folder, file = tmp_path / "state", tmp_path / "file"
    file.write_text("old")
    restore = 'cp "$checkpoint/file" "$file"'
    for number, (change, ends, text) in enumerate(
        [('printf new > "$file"', "done", "new"), ('printf newer > "$file"; kill -9 $$', "began", "newer")]
    ):
        transaction = of_bodies('cp "$file" "$checkpoint/file"', change, f'{restore}; echo {number} >> "$file"')
        ask(folder, systemd_run, transaction, f"target-{number}", file=str(file))
        assert (json.loads((folder / "t.json").read_text())["state"], file.read_text()) == (ends, text)
        assert sorted(content(folder)) == ["t.json", "t.log", "t.sh", "t/file"]
    subprocess.run(["sh", str(folder / "t.sh"), "undo"], check=True, capture_output=True, timeout=30)
    assert file.read_text() == "new1\n"


@pytest.mark.real
@pytest.mark.parametrize("then", ["undo", "change", "clear"])
@pytest.mark.parametrize("moment", ["/t.before", "/t", "/t.sh"])
def test_one_that_is_killed_as_it_takes_the_place_of_the_last_one_leaves_that_one_s_way_back(
    moment: str, then: str, tmp_path: Path, systemd_run: dict[str, str]
) -> None:
    """mv is SIMULATED: it moves, and the transaction is killed just behind it."""
    folder, file = tmp_path / "state", tmp_path / "file"
    file.write_text("old")
    save, restore = 'cp "$file" "$checkpoint/file"', 'cp "$checkpoint/file" "$file"; printf "%s" "$which" >> "$file"'
    first = of_bodies(save, 'printf new > "$file"', restore)
    assert ask(folder, systemd_run, first, "target-1", file=str(file), which=" by the first") == 0
    mv = tmp_path / "bin/mv"
    mv.write_text(
        '#!/bin/sh\n/bin/mv "$@" || exit; for last; do :; done\n'
        f'case "$*" in -T*|*.sh.*) [ "$last" != {folder}{moment} ] || kill -9 $PPID;; esac\n'
    )
    mv.chmod(0o755)
    second = of_bodies(save, 'printf newer > "$file"', restore)
    assert ask(folder, systemd_run, second, "target-2", file=str(file), which=" by the second") != 0
    mv.unlink()
    assert (file.read_text(), json.loads((folder / "t.json").read_text())["state"]) == ("new", "done")
    if then == "change":
        assert ask(folder, systemd_run, second, "target-2", file=str(file), which=" by the second") == 0
        assert (file.read_text(), (folder / "t/file").read_text()) == ("newer", "new")
        undone = "new by the second"
    else:
        if then == "clear":
            text = script(f"{KEEPING}\nclear_checkpoint {folder} t")
            subprocess.run(["sh", "-c", text], check=True, timeout=30)
            assert (folder / "t/file").read_text() == "old"
        undone = "old by the first"
    done = subprocess.run(
        ["sh", folder / "t.sh", "undo", "not loaded"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, file.read_text()) == (0, undone), done.stderr
    assert json.loads((folder / "t.json").read_text())["state"] == "failed"
    left = {name for name in content(folder) if name.partition("/")[0] not in ("t", "t.json", "t.log", "t.sh")}
    # A script that never began goes with the next change, or by clearing.
    assert left == set() or (then == "undo" and all(name.startswith("t.sh.") for name in left))


@pytest.mark.real
def test_what_a_change_left_that_did_not_begin_is_cleared_but_for_a_script_that_is_about_to_begin(
    tmp_path: Path,
) -> None:
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    left = ("t.new", "t.before", "t.json.new", f"t.sh.{gone}", f"t.sh.{os.getpid()}", "t.json", "t.sh", "other.new")
    (tmp_path / "t").mkdir()
    for name in left:
        (tmp_path / name).write_text("")
    (tmp_path / "t.json.new").unlink()
    text = script(f"{KEEPING}\nclear_checkpoint {tmp_path} t")
    subprocess.run(["sh", "-c", text], check=True, timeout=30)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["other.new", "t", "t.json", "t.sh", f"t.sh.{os.getpid()}"]
    )


@pytest.mark.real
def test_of_two_runs_at_once_the_second_names_who_is_at_work_and_touches_nothing_of_the_first(tmp_path: Path) -> None:
    """systemd-run and systemctl are SIMULATED: another run's unit is at work, as both say in the real ones' words."""
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.log").write_text("the first one's words\n")
    (folder / "t.json").write_text('{"schema": 1, "state": "began", "target": "target-1", "reason": ""}\n')
    (tmp_path / "bin").mkdir()
    programs = {
        "systemd-run": f'for word; do case $word in --description=*) echo "$word" > {tmp_path}/told;; esac; done\n'
        'echo "Failed to start transient service unit: Unit gpunode-t.service was already loaded or has a fragment '
        'file." >&2; exit 1',
        "systemctl": 'echo "Description=gpunode\'s transaction t, begun by anna@bastion on 2026-11-23 06:00:00 UTC"',
    }
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    command = transaction_command(of_bodies("true", "true", "true"), "target-2").get_raw_value()
    done = subprocess.run(
        ["sh", "-c", command.replace("/var/lib/gpunode/transactions", str(folder))],
        env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, input="dHJ1ZQo=\n",
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "another run" in done.stderr
    assert "begun by anna@bastion on 2026-11-23 06:00:00 UTC" in done.stderr and "remedy: run again" in done.stderr
    # What the first one says is not taken for this one's words, nor its end for this one's.
    assert "the first one's words" not in done.stdout + done.stderr and ENDED not in done.stderr
    assert sorted(content(folder)) == ["t.json", "t.log"]
    told = (tmp_path / "told").read_text()
    assert f"{socket.gethostname()} on 20" in told and "begun by " in told


def undo(
    folder: Path, environment: dict[str, str], host: Host, gives_up: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run what an operation runs first, where an earlier change was interrupted."""
    host.readings[TransactionJournal] = Journal("began", "target-1", None, False)
    (command,) = settled(of_bodies("true", "true", "true"), gives_up)
    return subprocess.run(
        ["sh", "-c", command.get_raw_value().replace("/var/lib/gpunode/transactions", str(folder))],
        env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


BEGAN = '{"schema": 1, "state": "began", "target": "target-1", "reason": ""}\n'


@pytest.mark.real
def test_an_interrupted_change_is_undone_as_the_unit_of_the_change(
    tmp_path: Path, systemd_run: dict[str, str], host: Host
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.json").write_text(BEGAN)
    (folder / "t.sh").write_text(f"echo put back; sed -i s/began/restored/ {folder}/t.json\n")
    done = undo(folder, systemd_run, host)
    assert (done.returncode, done.stdout) == (0, "put back\n"), done.stderr
    assert "restored" in (folder / "t.json").read_text()
    assert not (folder / "t.log").exists(), "the change's own log stays"


@pytest.mark.real
def test_what_another_run_has_undone_meanwhile_and_done_anew_is_not_undone_again(
    tmp_path: Path, systemd_run: dict[str, str], host: Host
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.json").write_text(BEGAN.replace("began", "done"))
    (folder / "t.sh").write_text(f"touch {folder}/undone\n")
    assert undo(folder, systemd_run, host).returncode == 0
    assert not (folder / "undone").exists()


@pytest.mark.real
def test_an_undoing_that_was_stopped_is_no_success(tmp_path: Path, systemd_run: dict[str, str], host: Host) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.json").write_text(BEGAN)
    (folder / "t.sh").write_text("exit 0\n")
    done = undo(folder, systemd_run, host)
    assert done.returncode == 143 and "stopped before" in done.stderr


@pytest.mark.real
def test_of_two_runs_that_would_undo_one_does_and_the_other_says_who(tmp_path: Path, host: Host) -> None:
    """systemd-run and systemctl are SIMULATED: another run's unit is at work."""
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.json").write_text(BEGAN)
    (folder / "t.sh").write_text(f"touch {folder}/undone\n")
    (tmp_path / "bin").mkdir()
    programs = {
        "systemd-run": 'echo "Failed to start transient service unit: Unit gpunode-t.service was already loaded" >&2\n'
        "exit 1",
        "systemctl": 'echo "Description=gpunode\'s transaction t, undone by anna@bastion on 2026-11-23 06:00:00 UTC"',
    }
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    done = undo(folder, {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, host)
    assert done.returncode == 1 and "undone by anna@bastion" in done.stderr
    assert not (folder / "undone").exists()


@pytest.fixture
def no_systemd_run(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose systemd-run is SIMULATED: it fails in the real one's words, and runs nothing."""
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin/systemd-run"
    path.write_text("#!/bin/sh\necho 'Failed to connect to bus: No such file or directory' >&2\nexit 1\n")
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{path.parent}:{os.environ['PATH']}"}


@pytest.mark.real
def test_where_no_unit_could_be_begun_an_older_log_is_not_taken_for_its_words(
    tmp_path: Path, no_systemd_run: dict[str, str]
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.log").write_text("the words of last week\n")
    command = transaction_command(of_bodies("true", "true", "true"), "target-1").get_raw_value()
    done = subprocess.run(
        ["sh", "-c", command.replace("/var/lib/gpunode/transactions", str(folder))],
        env=no_systemd_run, input="dHJ1ZQo=\n", capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "No such file" in done.stderr
    assert "last week" not in done.stdout + done.stderr


@pytest.mark.real
def test_what_was_never_tried_to_be_undone_is_not_given_up(
    tmp_path: Path, no_systemd_run: dict[str, str], host: Host
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.json").write_text(BEGAN)
    (folder / "t.sh").write_text("exit 1\n")
    (folder / "t.undo.log").write_text("the words of last week\n")
    done = undo(folder, no_systemd_run, host, gives_up=True)
    assert done.returncode == 1 and "No such file" in done.stderr
    assert (folder / "t.json").read_text() == BEGAN and not (folder / "t.given-up.json").exists()


@pytest.mark.real
def test_what_cannot_be_undone_and_nobody_asks_for_any_more_is_given_up(
    tmp_path: Path, systemd_run: dict[str, str], host: Host
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "t.json").write_text(BEGAN)
    (folder / "t.sh").write_text("echo does not go; exit 1\n")
    assert undo(folder, systemd_run, host).returncode == 1 and (folder / "t.json").exists()
    done = undo(folder, systemd_run, host, gives_up=True)
    assert (done.returncode, done.stdout) == (0, "does not go\n"), done.stderr
    assert not (folder / "t.json").exists() and (folder / "t.given-up.json").read_text() == BEGAN


@pytest.mark.real
def test_journal_and_checkpoint_are_on_the_disk_before_the_change_begins(tmp_path: Path) -> None:
    """sync is SIMULATED: it notes what of the journal stands where at that moment."""
    (tmp_path / "bin").mkdir()
    look = """
if grep -qs began "$folder/t.json"; then journal=there; else journal=absent; fi
if [ -e "$folder/t/file" ]; then copy=there; else copy=absent; fi
"""
    (tmp_path / "bin/sync").write_text(
        f'#!/bin/sh\nfolder={tmp_path}\n{look}\necho "$* $journal $copy" >> {tmp_path}/order\n'
    )
    (tmp_path / "bin/sync").chmod(0o755)
    (tmp_path / "file").write_text("old")
    transaction = of_bodies(
        'cp "$file" "$checkpoint/file"', f'echo change >> {tmp_path}/order; printf new > "$file"', "true"
    )
    text = transaction_text(transaction, "target-1", {"file": str(tmp_path / "file")})
    text = text.replace("folder=/var/lib/gpunode/transactions", f"folder={tmp_path}", 1)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script(text), "sh", "change"], env=environment, check=True, timeout=30)
    assert (tmp_path / "order").read_text().splitlines() == [
        f"{tmp_path}/t.json.new absent absent",
        # What was saved is on the disk before it takes its name, and its name before anything changes.
        f"-f {tmp_path} absent absent",
        f"-f {tmp_path} there there",
        "change",
        f"-f {tmp_path} there there",
        f"{tmp_path}/t.json.new there there",
    ]


def test_a_journal_counts_for_its_own_target_and_while_nobody_is_at_work_on_it() -> None:
    failed = Journal("failed", "one", "it does not work", False)
    assert failed.failed_at("one") and not failed.failed_at("other")
    assert not Journal("restored", "one", None, False).failed_at("one")
    assert Journal("began", "one", None, False).interrupted
    assert not Journal("began", "one", None, True).interrupted
    assert not Journal("done", "one", None, False).interrupted
