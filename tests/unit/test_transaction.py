"""A transaction's script, run for real by sh in a folder of its own; systemd is SIMULATED."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import StringCommand

from gpunode.base.decision import target_digest
from gpunode.base.reading import ParseError
from gpunode.facts.transaction import FOLDER, TransactionJournal
from gpunode.operations import node_lock, transaction
from gpunode.operations.failure import OperationRefused
from gpunode.operations.keeping import KEEPING
from gpunode.operations.script import script
from gpunode.operations.transaction import (
    ENDED,
    Transaction,
    refuse_failed,
    settled,
    transaction_command,
    transaction_text,
)
from gpunode.system.transaction import Journal, parse_journal
from tests.support.messages import unnamed
from tests.support.shell import Done, programs, sh
from tests.support.simulated_host import Host
from tests.support.transactions import of_bodies

SAVE, PUT_BACK = 'cp "$file" "$checkpoint/file"', 'cp "$checkpoint/file" "$file"'
CHANGE = 'printf new > "$file"'
BEGAN = '{"schema": 1, "state": "began", "target": "target-1", "reason": ""}\n'
T = of_bodies("true", "true", "true")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the transaction keeps its files; what it changes is beside it."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def run(
    folder: Path, change: str, restore: str = PUT_BACK, save: str = SAVE, afterwards: str = ":", **stubs: str
) -> Done:
    """Change the file by the script alone."""
    (folder.parent / "file").write_text("old")
    bodies = of_bodies(save, change, restore, afterwards=afterwards)
    text = transaction_text(bodies, "target-1", {"file": str(folder.parent / "file")})
    text = script(text.replace(FOLDER, str(folder), 1))
    (folder / "t.sh").write_text(text)
    return sh(text, "change", env={"PATH": programs(folder.parent, **stubs)})


def undo(folder: Path, *reason: str) -> Done:
    return sh((folder / "t.sh").read_text(), "undo", *reason)


def journal(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "t.json").read_text())
    return found


def state(folder: Path) -> tuple[str, str]:
    assert journal(folder)["target"].startswith("target-")
    return journal(folder)["state"], (folder.parent / "file").read_text()


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.real
@pytest.mark.parametrize(
    ("change", "restore", "code", "ends"),
    [
        (CHANGE, PUT_BACK, 0, ("done", "new")),
        (f"{CHANGE}; false; true", PUT_BACK, 1, ("restored", "old")),
        # Putting back goes on behind a step that fails.
        (f"{CHANGE}; false; true", f"false\n{PUT_BACK}", 1, ("restored", "old")),
        # What cannot be put back stays begun for the next run.
        (f"{CHANGE}; reject x", "exit 1", 1, ("began", "new")),
        (f'{CHANGE}; reject "it does not work"', PUT_BACK, 1, ("failed", "old")),
        # What was there before does not work any more either.
        (f'{CHANGE}; reject "it does not start"', f"{PUT_BACK}; not_to_blame", 1, ("restored", "old")),
        *((f"{CHANGE}; kill -{name} $$; sleep 5; echo went on", PUT_BACK, 143, ("restored", "old"))
          for name in ("TERM", "INT", "HUP")),
        # A second request does not stop the putting back.
        (f"{CHANGE}; kill -TERM $$; sleep 1", f"kill -TERM $$; sleep 0.2; {PUT_BACK}", 143, ("restored", "old")),
    ],
)  # fmt: skip
def test_how_it_ends_is_in_the_journal(
    folder: Path, change: str, restore: str, code: int, ends: tuple[str, str]
) -> None:
    done = run(folder, change, restore)
    assert (done.returncode, done.stdout, state(folder)) == (code, "", ends)
    # For root alone.
    assert (mode(folder / "t.json"), mode(folder / "t")) == (0o600, 0o700)
    if ends[0] == "began":
        assert undo(folder).returncode == 1 and state(folder) == ends


@pytest.mark.real
def test_a_reason_of_any_characters_is_one_line_of_a_journal_that_can_be_read(folder: Path) -> None:
    done = run(folder, 'reject "$(printf \'it\\nsays "no" \\\\ {é}\')"')
    found = {"schema": 1, "state": "failed", "target": "target-1", "reason": "it says no  ", "version": ""}
    assert journal(folder) == found
    assert 'says "no"' in done.stderr


@pytest.mark.real
def test_what_is_asked_is_not_blamed_where_the_disk_takes_nothing(folder: Path) -> None:
    """head is SIMULATED: it says that there is no space."""
    done = run(folder, 'reject "no start"', head="exit 1")
    assert (done.returncode, journal(folder)["state"], journal(folder)["reason"]) == (1, "restored", "")
    assert unnamed(done.stderr, "disk") == []
    assert not (folder / ".room").exists()
    assert unnamed(run(folder, 'reject "no start"', head='exec /usr/bin/head "$@"').stderr, "disk") == ["disk"]
    assert not (folder / ".room").exists()


@pytest.mark.real
def test_one_that_was_killed_is_undone_by_its_own_script_and_twice_is_as_once(folder: Path) -> None:
    run(folder, f"{CHANGE}; kill -9 $$")
    assert state(folder) == ("began", "new")
    for _ in range(2):
        assert undo(folder).returncode == 0
        assert state(folder) == ("restored", "old")


@pytest.mark.real
@pytest.mark.parametrize(("reason", "then"), [([], "restored"), (["not loaded"], "failed")])
def test_one_that_ended_well_is_undone_with_the_reason_that_showed_later(
    folder: Path, reason: list[str], then: str
) -> None:
    assert run(folder, f"{CHANGE}; echo changed").stdout == "changed\n"
    done = undo(folder, *reason)
    assert (done.returncode, done.stdout, state(folder)) == (0, "", (then, "old"))
    assert journal(folder)["reason"] == "".join(reason)
    assert done.stderr.startswith("gpunode: ")


@pytest.mark.real
@pytest.mark.parametrize("save", ["exit 3", "false; true"])
def test_a_checkpoint_that_fails_changes_nothing_and_journals_nothing(folder: Path, save: str) -> None:
    done = run(folder, f"{CHANGE}; echo changed", save=f': > "$checkpoint/half"; {save}')
    assert done.returncode != 0 and done.stdout == "" and (folder.parent / "file").read_text() == "old"
    assert list(content(folder)) == ["t.sh"] and not (folder / "t.new").exists()


@pytest.mark.real
def test_what_a_killed_run_left_is_not_taken_for_what_this_one_saved(folder: Path) -> None:
    for name in ("t.new", "t.before", "t"):
        (folder / name).mkdir()
        (folder / name / "left").touch()
    (folder / "t.sh.77").touch()
    assert run(folder, 'ls "$checkpoint" "$folder"').stdout.split() == [
        f"{folder}:", "t", "t.json", "t.sh", f"{folder}/t:", "file",
    ]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP"])
def test_a_request_to_stop_between_journal_and_change_begins_no_change(folder: Path, signal: str) -> None:
    """sync is SIMULATED: with its third call (the journal is in place) the unit is stopped."""
    calls = folder.parent / "calls"
    at = f'echo >> {calls}; [ "$(wc -l < {calls})" -ne 3 ] || kill -{signal} $PPID'
    done = run(folder, "echo changed", sync=at)
    assert (done.returncode, done.stdout, state(folder)[0]) == (143, "", "restored")


@pytest.mark.real
@pytest.mark.parametrize(
    ("afterwards", "code", "printed"),
    [
        ('grep -o done "$journal"; false; echo then', 0, "done\nthen\n"),
        ("kill -TERM $$; sleep 5", -15, ""),
        ("exit 4", 0, ""),
    ],
)
def test_what_has_time_comes_behind_the_end_and_undoes_nothing_however_it_ends(
    folder: Path, afterwards: str, code: int, printed: str
) -> None:
    done = run(folder, CHANGE, afterwards=afterwards)
    assert (done.returncode, done.stdout, state(folder)) == (code, printed, ("done", "new"))


@pytest.mark.real
def test_journal_and_checkpoint_are_on_the_disk_before_the_change_begins(folder: Path) -> None:
    """sync is SIMULATED: it notes what of the journal stands where at that moment."""
    order = folder.parent / "order"
    look = f"""
if grep -qs began "{folder}/t.json"; then journal=there; else journal=absent; fi
if [ -e "{folder}/t/file" ]; then copy=there; else copy=absent; fi
echo "$* $journal $copy" >> {order}"""
    assert run(folder, f"echo change >> {order}", sync=look).returncode == 0
    assert order.read_text().splitlines() == [
        f"{folder}/t.json.new absent absent",
        # What was saved is on the disk before it takes its name, and its name before anything changes.
        f"-f {folder} absent absent",
        f"-f {folder} there there",
        "change",
        f"-f {folder} there there",
        f"{folder}/t.json.new there there",
    ]


# --- in its unit ------------------------------------------------------------------------------------------------------

RUNS = 'while [ "$1" != /bin/sh ]; do echo "$1" >> "{0}/told"; shift; done\nexec "$@"'
NO_BUS = "echo 'No bus' >&2; exit 1"
# In the real one's words.
AT_WORK = """for word; do case $word in --description=*) echo "$word" > {0}/told;; esac; done
echo 'Failed to start transient service unit: Unit gpunode-t.service was already loaded or has a fragment file.' >&2
exit 1"""
BY_ANNA = "begun by anna@bastion on 2026-11-23 06:00:00 UTC"
DESCRIPTION = f'echo "Description=gpunode\'s transaction t, {BY_ANNA}"'


def _systemd(folder: Path, stubs: dict[str, str]) -> dict[str, str]:
    texts = {"systemd_run": RUNS, **stubs}
    there = {name: text.replace("{0}", str(folder.parent)) for name, text in texts.items()}
    return {"PATH": programs(folder.parent, **there)}


def ask(
    folder: Path, of: Transaction = T, target: str = "target-1", cut: bool = False, which: str = "", **stubs: str
) -> Done:
    """Run a transaction as an operation does; its script comes cut off, or whole."""
    command = transaction_command(of, target, file=str(folder.parent / "file"), which=which)
    (line,) = command.connector_arguments["_stdin"]
    encoded = base64.b64encode(base64.b64decode(line).decode().replace(FOLDER, str(folder)).encode()).decode()
    given = encoded[: len(encoded) // 2] if cut else f"{encoded}\n"
    text = command.get_raw_value().replace(FOLDER, str(folder))
    return sh(text, env=_systemd(folder, stubs), given=given)


@pytest.mark.real
@pytest.mark.parametrize(("ended", "ends"), [("done", 0), ("began", 143), ("restored", 143), (None, 143)])
def test_a_unit_that_is_called_a_success_is_one_only_where_its_journal_says_so(
    folder: Path, ended: str | None, ends: int
) -> None:
    """systemd-run says yes to everything, as the real one does in a shutdown."""
    if ended:
        (folder / "t.json").write_text(BEGAN.replace("began", ended))
    done = ask(folder, systemd_run=f"echo changed > {folder}/t.log")
    assert (done.returncode, done.stdout) == (ends, "changed\n"), done.stderr
    assert ("from outside" in done.stderr) == bool(ends)
    # Where it failed, and what it began is neither at work nor left half done.
    assert (f"{ENDED} t\n" in done.stderr) == (ended in ("restored", None))


@pytest.mark.real
@pytest.mark.parametrize("refuses", ["exit 1", "false; true", "kill -9 $$"])
def test_a_change_that_refuses_to_begin_leaves_the_way_back_of_the_last_one(folder: Path, refuses: str) -> None:
    assert ask(folder, of_bodies(SAVE, f'{CHANGE}; : > "$checkpoint/unproven"', PUT_BACK)).returncode == 0
    kept = content(folder)
    assert sorted(kept) == ["t.json", "t.log", "t.sh", "t/file", "t/unproven"]
    second = of_bodies(f': > "$checkpoint/half"\n{refuses}', 'printf newer > "$file"', "true")
    assert ask(folder, second, "target-2").returncode != 0
    left = {"t.new/half"} if "kill" in refuses else set()
    now = {name: text for name, text in content(folder).items() if name not in left}
    assert {**now, "t.log": ""} == {**kept, "t.log": ""}
    assert undo(folder, "not loaded").returncode == 0 and state(folder) == ("failed", "old")


@pytest.mark.real
def test_a_change_that_began_is_undone_by_its_own_script_and_from_what_it_saved(folder: Path) -> None:
    for number, (change, ends) in enumerate(
        [(CHANGE, ("done", "new")), ('printf newer > "$file"; kill -9 $$', ("began", "newer"))]
    ):
        ask(folder, of_bodies(SAVE, change, f'{PUT_BACK}; echo {number} >> "$file"'), f"target-{number}")
        assert state(folder) == ends
        assert sorted(content(folder)) == ["t.json", "t.log", "t.sh", "t/file"]
    assert undo(folder).returncode == 0
    assert state(folder)[1] == "new1\n"


@pytest.mark.real
@pytest.mark.parametrize("then", ["undo", "change", "clear"])
@pytest.mark.parametrize("moment", ["/t.before", "/t", "/t.sh"])
def test_one_that_is_killed_as_it_takes_the_place_of_the_last_one_leaves_that_one_s_way_back(
    folder: Path, moment: str, then: str
) -> None:
    """mv is SIMULATED: it moves, and the transaction is killed just behind it."""
    restore = f'{PUT_BACK}; printf " by the %s" "$which" >> "$file"'
    assert ask(folder, of_bodies(SAVE, CHANGE, restore), which="first").returncode == 0
    killing = (
        '/bin/mv "$@" || exit; for last; do :; done\n'
        f'case "$*" in -T*|*.sh.*) [ "$last" != {folder}{moment} ] || kill -9 $PPID;; esac'
    )
    second = of_bodies(SAVE, 'printf newer > "$file"', restore)
    assert ask(folder, second, "target-2", which="second", mv=killing).returncode != 0
    (folder.parent / "bin/mv").unlink()
    assert state(folder) == ("done", "new")
    undone = "old by the first"
    if then == "change":
        assert ask(folder, second, "target-2", which="second").returncode == 0
        assert (state(folder)[1], (folder / "t/file").read_text()) == ("newer", "new")
        undone = "new by the second"
    elif then == "clear":
        assert sh(script(f"{KEEPING}\nclear_checkpoint {folder} t")).returncode == 0
        assert (folder / "t/file").read_text() == "old"
    done = sh(f"exec sh {folder}/t.sh undo 'not loaded'")
    assert (done.returncode, state(folder)) == (0, ("failed", undone)), done.stderr
    left = {name for name in content(folder) if name.partition("/")[0] not in ("t", "t.json", "t.log", "t.sh")}
    # A script that never began goes with the next change, or by clearing.
    assert left == set() or (then == "undo" and all(name.startswith("t.sh.") for name in left))


@pytest.mark.real
def test_what_a_change_left_that_did_not_begin_is_cleared_but_for_a_script_that_is_about_to_begin(
    folder: Path,
) -> None:
    gone = sh("echo $$").stdout.strip()
    (folder / "t").mkdir()
    for name in ("t.new", "t.before", f"t.sh.{gone}", f"t.sh.{os.getpid()}", "t.json", "t.sh", "other.new"):
        (folder / name).write_text("")
    assert sh(script(f"{KEEPING}\nclear_checkpoint {folder} t")).returncode == 0
    assert {path.name for path in folder.iterdir()} == {"other.new", "t", "t.json", "t.sh", f"t.sh.{os.getpid()}"}


@pytest.mark.real
def test_of_two_runs_at_once_the_second_names_who_is_at_work_and_touches_nothing_of_the_first(folder: Path) -> None:
    (folder / "t.log").write_text("the first one's words\n")
    (folder / "t.json").write_text(BEGAN)
    done = ask(folder, target="target-2", systemd_run=AT_WORK, systemctl=DESCRIPTION)
    assert done.returncode == 1 and "another run" in done.stderr
    assert BY_ANNA in done.stderr and "remedy: run again" in done.stderr
    # What the first one says is not taken for this one's words, nor its end for this one's.
    assert "the first one's" not in done.stdout + done.stderr and ENDED not in done.stderr
    assert sorted(content(folder)) == ["t.json", "t.log"]
    told = (folder.parent / "told").read_text()
    assert f"{socket.gethostname()} on 20" in told and "begun by " in told


@pytest.mark.real
def test_where_no_unit_could_be_begun_an_older_log_is_not_taken_for_its_words(folder: Path) -> None:
    (folder / "t.log").write_text("the words of last week\n")
    done = ask(folder, systemd_run=NO_BUS)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"No bus\n{ENDED} t\n")
    assert list(content(folder)) == ["t.log"]


@pytest.mark.real
def test_a_unit_has_the_transaction_s_name_and_time_to_put_back_and_says_who_began_it(folder: Path) -> None:
    done = ask(folder, of_bodies("true", "echo changed", "true"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "changed\n", "")
    told = (folder.parent / "told").read_text().splitlines()
    assert {"--quiet", "--wait", "--collect", "--unit=gpunode-t", "--property=TimeoutStopSec=900"} <= set(told)
    (description,) = (line for line in told if line.startswith("--description="))
    assert "gpunode's transaction t, begun by " in description and description.endswith(" UTC")
    assert mode(folder / "t.log") == 0o600
    assert sorted(path.name for path in folder.iterdir()) == ["t", "t.json", "t.log", "t.sh"]


@pytest.mark.real
def test_a_script_that_did_not_come_whole_changes_nothing_and_is_no_success(folder: Path) -> None:
    done = ask(folder, of_bodies("true", "echo changed", "true"), cut=True)
    assert done.returncode != 0 and "changed" not in done.stdout
    assert not list(folder.glob("t.sh*")) and not (folder / "t").exists()


@pytest.mark.real
def test_the_script_is_on_the_disk_before_the_unit_begins(folder: Path) -> None:
    order = f'echo "${{0##*/}} $*" >> {folder.parent}/order'
    assert ask(folder, sync=order, systemd_run=f"{order}\n{RUNS}").returncode == 0
    first, second = (folder.parent / "order").read_text().splitlines()[:2]
    assert first.startswith(f"sync {folder}/t.sh.") and second.startswith("systemd-run ")


@pytest.mark.real
def test_what_systemd_says_of_a_unit_that_ran_is_passed_on_and_is_no_other_run(folder: Path) -> None:
    done = ask(folder, systemd_run=f"echo 'there already' >&2\n{RUNS}", systemctl="exit 1")
    assert (done.returncode, done.stderr) == (0, "there already\n")


def waited(folder: Path, *states: str) -> Done:
    """Run what waits for a unit that is in these states, one look after the other, and then in the last for ever."""
    (folder / "states").write_text(" ".join(states) + "\n")
    # Functions: it looks 600 times.
    stubs = f"""
systemctl() {{
  if [ "$1" = show ]; then echo "Description=begun by anna"; return; fi
  read -r state rest < {folder}/states; echo "$state"
  [ -z "$rest" ] || echo "$rest" > {folder}/states
  return 3
}}
sleep() {{ echo >> {folder}/slept; }}
"""
    return sh(script(f"{stubs}name=t\n{transaction._WAIT}"))


@pytest.mark.real
def test_a_unit_that_is_at_work_is_waited_for(folder: Path) -> None:
    done = waited(folder, "active", "activating", "deactivating", "reloading", "inactive")
    assert (done.returncode, done.stderr, (folder / "slept").read_text()) == (0, "", "\n" * 4)


@pytest.mark.real
def test_a_unit_that_does_not_end_in_five_minutes_is_named_and_nothing_is_changed(folder: Path) -> None:
    done = waited(folder, "active")
    assert done.returncode == 1
    assert unnamed(done.stderr, "5 minutes", "(begun by anna)") == []
    assert len((folder / "slept").read_text()) == 600


# --- what a later run does first --------------------------------------------------------------------------------------


def undo_first(folder: Path, host: Host, gives_up: bool = False, **stubs: str) -> Done:
    """Run what an operation runs first, where an earlier change was interrupted."""
    host.readings[TransactionJournal] = Journal("began", "target-1", None, False)
    (command,) = settled(T, gives_up)
    assert isinstance(command, StringCommand)
    return sh(command.get_raw_value().replace(FOLDER, str(folder)), env=_systemd(folder, stubs))


@pytest.mark.real
def test_of_two_runs_that_would_undo_one_does_and_the_other_says_who(folder: Path, host: Host) -> None:
    (folder / "t.json").write_text(BEGAN)
    (folder / "t.sh").write_text(f"touch {folder}/undone\n")
    done = undo_first(folder, host, systemd_run=AT_WORK, systemctl=DESCRIPTION)
    assert done.returncode == 1 and BY_ANNA in done.stderr
    assert "undone by " in (folder.parent / "told").read_text() and not (folder / "undone").exists()


@pytest.mark.real
def test_what_was_never_tried_to_be_undone_is_not_given_up(folder: Path, host: Host) -> None:
    (folder / "t.json").write_text(BEGAN)
    (folder / "t.sh").write_text("exit 1\n")
    (folder / "t.undo.log").write_text("the words of last week\n")
    done = undo_first(folder, host, gives_up=True, systemd_run=NO_BUS)
    assert (done.returncode, done.stderr) == (1, "No bus\n")
    assert (folder / "t.json").read_text() == BEGAN and not (folder / "t.given-up.json").exists()


RESTORES = "echo put back; sed -i s/began/restored/ {0}/t.json"
FAILS = "echo does not go; exit 1"


@pytest.mark.real
@pytest.mark.parametrize(
    ("before", "undoing", "gives_up", "code", "printed", "then"),
    [
        ("began", RESTORES, False, 0, "put back\n", "restored"),
        ("began", RESTORES, True, 0, "put back\n", "restored"),
        # Another run has done it meanwhile, and ended a change of its own.
        ("done", RESTORES, False, 0, "", "done"),
        # Stopped before all was put back: no success, and not given up.
        ("began", "exit 0", False, 143, "", "began"),
        ("began", "exit 143", True, 143, "", "began"),
        ("began", FAILS, False, 1, "does not go\n", "began"),
        ("began", FAILS, True, 0, "does not go\n", None),
    ],
)
def test_an_interrupted_change_is_undone_as_the_unit_of_the_change_or_given_up_where_nobody_asks_for_it(
    folder: Path, host: Host, before: str, undoing: str, gives_up: bool, code: int, printed: str, then: str | None
) -> None:
    (folder / "t.json").write_text(BEGAN.replace("began", before))
    (folder / "t.sh").write_text(undoing.format(folder))
    done = undo_first(folder, host, gives_up)
    assert (done.returncode, done.stdout) == (code, printed), done.stderr
    # The script itself says why it failed; of what was stopped, or is given up, only this can tell.
    assert bool(done.stderr) == (undoing == "exit 0" or then is None)
    given_up = folder / "t.given-up.json"
    assert given_up.read_text() == BEGAN if then is None else not given_up.exists()
    assert not (folder / "t.json").exists() if then is None else journal(folder)["state"] == then
    assert not (folder / "t.log").exists(), "the change's own log stays"


# --- what an operation asks for ---------------------------------------------------------------------------------------


@pytest.fixture
def logged(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(host, "log", found.append)
    return found


def first_of(host: Host, *journal: Any, gives_up: bool = False) -> list[Any]:
    host.readings[TransactionJournal] = Journal(*journal)
    found = list(settled(T, gives_up, meanwhile=lambda: iter(["first"])))
    return [each if isinstance(each, str) else each.get_raw_value() for each in found]


@pytest.mark.pure
def test_an_earlier_one_is_waited_for_by_its_name_or_undone_and_nothing_comes_before_the_next_where_it_ended(
    host: Host, logged: list[str]
) -> None:
    for state in ("done", "restored", "failed", None):
        assert first_of(host, state, "x", None, False) == []
    assert logged == []
    first, wait = first_of(host, "began", "x", None, True, "begun by anna")
    assert first == "first" and " name=t " in wait and "is-active" in wait
    assert len(first_of(host, "began", "x", None, True)) == 2
    assert [line.rpartition(": ")[2] for line in logged] == ["begun by anna", "gpunode-t"]
    first, undoing = first_of(host, "began", "x", None, False)
    assert first == "first" and f" folder={FOLDER} name=t by=" in undoing and "given-up" not in undoing
    assert len(logged) == 3 and unnamed(logged[2], "t") == []
    assert "given-up" in first_of(host, "began", "x", None, False, gives_up=True)[1]


@pytest.mark.pure
def test_it_is_the_journal_of_this_transaction_that_is_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[type, dict[str, str]]] = []

    def get_fact(fact: type, **arguments: str) -> Journal:
        asked.append((fact, arguments))
        return Journal(None, None, None, False)

    monkeypatch.setattr(host, "get_fact", get_fact)
    refuse_failed(T, "one")
    assert asked == [(TransactionJournal, {"transaction": "t"})]


@pytest.mark.pure
def test_the_very_target_that_failed_is_refused_with_its_reason_and_another_is_not(host: Host) -> None:
    host.readings[TransactionJournal] = Journal("failed", "one", "no start", False)
    refuse_failed(T, "other")
    with pytest.raises(OperationRefused) as refused:
        refuse_failed(T, "one")
    assert unnamed(str(refused.value), "t", "no start", f"{FOLDER}/t.log", "gpunode apply --retry") == []
    host.readings[TransactionJournal] = Journal("failed", "one", None, False)
    with pytest.raises(OperationRefused) as refused:
        refuse_failed(T, "one")
    assert "None" not in str(refused.value)


@pytest.mark.pure
def test_targets_differ_by_where_one_part_ends() -> None:
    assert target_digest("ab", "c") != target_digest("a", "bc") != target_digest("abc")
    assert len(target_digest("é")) == 64


@pytest.mark.pure
def test_who_runs_it_is_named_where_the_user_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "bastion")
    monkeypatch.setattr("getpass.getuser", lambda: "anna")
    assert node_lock.runner() == "anna@bastion"

    def none() -> str:
        raise KeyError("getpwuid(): uid not found: 77")

    monkeypatch.setattr("getpass.getuser", none)
    monkeypatch.setattr("os.getuid", lambda: 77)
    assert node_lock.runner() == "user 77@bastion"


@pytest.mark.pure
def test_a_journal_counts_for_its_own_target_and_while_nobody_is_at_work_on_it() -> None:
    failed = Journal("failed", "one", "it does not work", False)
    assert failed.failed_at("one") and not failed.failed_at("other")
    assert not Journal("restored", "one", None, False).failed_at("one")
    assert Journal("began", "one", None, False).interrupted
    assert not Journal("began", "one", None, True).interrupted
    assert not Journal("done", "one", None, False).interrupted


def lines(text: str = "", **found: str) -> list[str]:
    encoded = {"journal": base64.b64encode(text.encode()).decode()} if text else {}
    return [f"{name}={value}" for name, value in {"unit": "inactive", **found, **encoded}.items()]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("given", "found"),
    [
        *((lines(unit=unit, by="anna"), Journal(None, None, None, True, "anna"))
          for unit in ("active", "activating", "deactivating", "reloading")),
        *((lines(unit=unit, by="anna"), Journal(None, None, None, False)) for unit in ("inactive", "failed")),
        (lines(BEGAN.replace("began", "failed").replace('""', '"x"')), Journal("failed", "target-1", "x", False)),
        (lines(BEGAN), Journal("began", "target-1", None, False)),
    ],
)  # fmt: skip
def test_a_journal_is_read_with_who_is_at_work_only_where_somebody_is(given: list[str], found: Journal) -> None:
    assert parse_journal(given) == found


@pytest.mark.pure
@pytest.mark.parametrize(
    "given",
    [[], *(lines(text, path="/p") for text in ("[]", "{", '{"state": "done"}', BEGAN.replace("began", "odd")))],
)
def test_a_journal_that_says_nothing_is_not_guessed_at(given: list[str]) -> None:
    with pytest.raises(ParseError) as refused:
        parse_journal(given)
    assert not given or unnamed(str(refused.value), "/p") == []
