"""What a transaction promises, each guard by itself: its script is run for real by sh, in a folder of its own."""

from __future__ import annotations

import base64
import json
import os
import signal as signal_numbers
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpunode.facts.transaction import FOLDER, TransactionJournal
from gpunode.operations import files, transaction
from gpunode.operations.failure import OperationRefused
from gpunode.operations.script import script
from gpunode.operations.transaction import (
    ENDED,
    refuse_failed,
    settled,
    target_digest,
    transaction_command,
    transaction_text,
)
from gpunode.system.transaction import Journal, parse_journal
from tests.support.messages import unnamed
from tests.support.simulated_host import Host
from tests.support.transactions import of_bodies

SAVE = 'cp "$file" "$checkpoint/file"'
PUT_BACK = 'cp "$checkpoint/file" "$file"'
BEGAN = '{"schema": 1, "state": "began", "target": "target-1", "reason": ""}\n'


def _hears() -> None:
    """Hear what a unit of systemd's hears: by nohup, or behind a &, a shell would not hear two of these."""
    for each in (signal_numbers.SIGTERM, signal_numbers.SIGINT, signal_numbers.SIGHUP):
        signal_numbers.signal(each, signal_numbers.SIG_DFL)


def told(text: str, *arguments: str, **values: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", text, "sh", *arguments], env={**os.environ, **values}, capture_output=True, text=True, check=False,
        timeout=60, preexec_fn=_hears,
    )  # fmt: skip


def programs(folder: Path, **texts: str) -> str:
    """Write programs, and return a PATH on which they come first."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in texts.items():
        path = folder / "bin" / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return f"{folder}/bin:{os.environ['PATH']}"


def run(folder: Path, change: str, restore: str = PUT_BACK, afterwards: str = ":", **values: str) -> Any:
    """Change `file` in a folder by a transaction, whose own folder is `state` there."""
    (folder / "state").mkdir(exist_ok=True)
    (folder / "file").write_text("old")
    text = transaction_text(
        of_bodies(SAVE, change, restore, afterwards=afterwards), "target-1", {"file": str(folder / "file")}
    )
    text = script(text.replace(FOLDER, str(folder / "state"), 1))
    (folder / "state/t.sh").write_text(text)
    return told(text, "change", **values)


def journal(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "state/t.json").read_text())
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.real
def test_what_is_saved_and_journalled_is_for_root_alone(tmp_path: Path) -> None:
    assert run(tmp_path, "true").returncode == 0
    assert mode(tmp_path / "state/t.json") == 0o600
    assert mode(tmp_path / "state/t") == 0o700


@pytest.mark.real
def test_a_reason_of_any_characters_is_one_line_of_a_journal_that_can_be_read(tmp_path: Path) -> None:
    done = run(tmp_path, 'reject "$(printf \'it\\nsays "no" \\\\ {é}\')"')
    assert done.returncode == 1
    assert journal(tmp_path) == {"schema": 1, "state": "failed", "target": "target-1", "reason": "it says no  "}
    assert 'says "no"' in done.stderr
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.real
def test_what_is_asked_is_not_blamed_where_the_disk_takes_nothing(tmp_path: Path) -> None:
    """head is SIMULATED: it says that there is no space."""
    done = run(tmp_path, 'reject "it does not start"', PATH=programs(tmp_path, head="exit 1"))
    assert done.returncode == 1
    assert (journal(tmp_path)["state"], journal(tmp_path)["reason"]) == ("restored", "")
    assert unnamed(done.stderr, "disk") == []
    assert not (tmp_path / "state/.room").exists()
    assert unnamed(run(tmp_path, 'reject "it does not start"').stderr, "disk") == ["disk"]
    assert not (tmp_path / "state/.room").exists()


@pytest.mark.real
def test_what_cannot_be_put_back_stays_begun_for_the_next_run_and_fails(tmp_path: Path) -> None:
    done = run(tmp_path, 'printf new > "$file"; reject x', restore="exit 1")
    assert done.returncode == 1
    assert journal(tmp_path)["state"] == "began"
    assert (tmp_path / "file").read_text() == "new"
    undo = told((tmp_path / "state/t.sh").read_text(), "undo")
    assert undo.returncode == 1 and journal(tmp_path)["state"] == "began"


@pytest.mark.real
def test_putting_back_goes_on_behind_a_step_that_fails(tmp_path: Path) -> None:
    done = run(tmp_path, 'printf new > "$file"; false; true', restore=f"false\n{PUT_BACK}")
    assert done.returncode == 1
    assert (journal(tmp_path)["state"], (tmp_path / "file").read_text()) == ("restored", "old")


@pytest.mark.real
def test_an_undoing_that_was_asked_for_changes_nothing_anew(tmp_path: Path) -> None:
    assert run(tmp_path, 'printf new > "$file"; echo changed').stdout == "changed\n"
    undo = told((tmp_path / "state/t.sh").read_text(), "undo")
    assert (undo.returncode, undo.stdout) == (0, "")
    assert (journal(tmp_path)["state"], (tmp_path / "file").read_text()) == ("restored", "old")
    assert undo.stderr.startswith("gpunode: ")


@pytest.mark.real
def test_what_a_killed_run_left_is_not_taken_for_what_this_one_saved(tmp_path: Path) -> None:
    for name in ("t.new", "t.before", "t"):
        (tmp_path / "state" / name).mkdir(parents=True)
        (tmp_path / "state" / name / "left").touch()
    (tmp_path / "state/t.sh.77").touch()
    assert run(tmp_path, 'ls "$checkpoint" "$folder"').stdout.split() == [
        f"{tmp_path}/state:", "t", "t.json", "t.sh", f"{tmp_path}/state/t:", "file",
    ]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("save", ["exit 3", "false; true"])
def test_one_that_refuses_to_begin_leaves_nothing_half_saved(tmp_path: Path, save: str) -> None:
    (tmp_path / "state").mkdir()
    text = transaction_text(of_bodies(f': > "$checkpoint/half"; {save}', "echo changed", "true"), "target-1", {})
    done = told(script(text.replace(FOLDER, str(tmp_path / "state"), 1)), "change")
    assert done.returncode != 0 and done.stdout == ""
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.real
@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP"])
def test_a_request_to_stop_between_journal_and_change_begins_no_change(tmp_path: Path, signal: str) -> None:
    """sync is SIMULATED: with its second call (the journal is flushed, not yet in place) the unit is stopped."""
    at = f'echo >> {tmp_path}/calls; [ "$(wc -l < {tmp_path}/calls)" -ne 3 ] || kill -{signal} $PPID'
    done = run(tmp_path, "echo changed", PATH=programs(tmp_path, sync=at))
    assert (done.returncode, done.stdout) == (143, "")
    assert journal(tmp_path)["state"] == "restored"


@pytest.mark.real
@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP"])
def test_a_request_to_stop_within_the_change_puts_back(tmp_path: Path, signal: str) -> None:
    done = run(tmp_path, f'printf new > "$file"; kill -{signal} $$; sleep 5; echo went on')
    assert (done.returncode, done.stdout) == (143, "")
    assert (journal(tmp_path)["state"], (tmp_path / "file").read_text()) == ("restored", "old")


@pytest.mark.real
def test_what_has_time_comes_behind_the_end_and_undoes_nothing_however_it_ends(tmp_path: Path) -> None:
    seen = 'cat "$journal"; false; echo then'
    done = run(tmp_path, 'printf new > "$file"', afterwards=seen)
    assert done.returncode == 0 and '"done"' in done.stdout and done.stdout.endswith("then\n")
    done = run(tmp_path, 'printf new > "$file"', afterwards="kill -TERM $$; sleep 5")
    assert (journal(tmp_path)["state"], (tmp_path / "file").read_text()) == ("done", "new")
    done = run(tmp_path, 'printf new > "$file"', afterwards="exit 4")
    assert (done.returncode, journal(tmp_path)["state"]) == (0, "done")


# --- in its unit ------------------------------------------------------------------------------------------------------

_RUNS = 'while [ "$1" != /bin/sh ]; do echo "$1" >> "{0}/told"; shift; done\nexec "$@"'


def asked(folder: Path, given: str | None = None, **stubs: str) -> subprocess.CompletedProcess[str]:
    """Run a transaction as an operation does; its state is in the folder `state`, systemd is SIMULATED."""
    path = programs(folder, **{"systemd_run": _RUNS.format(folder), **stubs})
    command = transaction_command(of_bodies("true", "echo changed", "true"), "target-1")
    (line,) = command.connector_arguments["_stdin"]
    text = base64.b64decode(line).decode().replace(FOLDER, str(folder / "state"))
    encoded = base64.b64encode(text.encode()).decode() + "\n"
    return subprocess.run(
        ["sh", "-c", command.get_raw_value().replace(FOLDER, str(folder / "state"))], env={**os.environ, "PATH": path},
        input=encoded if given is None else encoded[: len(encoded) // 2] + given, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.real
def test_a_unit_has_the_transaction_s_name_and_time_to_put_back_and_says_who_began_it(tmp_path: Path) -> None:
    done = asked(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "changed\n", "")
    told = (tmp_path / "told").read_text().splitlines()
    assert {"--quiet", "--wait", "--collect", "--unit=gpunode-t", "--property=TimeoutStopSec=900"} <= set(told)
    (description,) = (line for line in told if line.startswith("--description="))
    assert "gpunode's transaction t, begun by " in description and description.endswith(" UTC")
    assert mode(tmp_path / "state/t.log") == 0o600
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["t", "t.json", "t.log", "t.sh"]


@pytest.mark.real
def test_a_script_that_did_not_come_whole_changes_nothing_and_is_no_success(tmp_path: Path) -> None:
    done = asked(tmp_path, given="")
    assert done.returncode != 0 and "changed" not in done.stdout
    assert not list((tmp_path / "state").glob("t.sh*")) and not (tmp_path / "state/t").exists()


@pytest.mark.real
def test_the_script_is_on_the_disk_before_the_unit_begins(tmp_path: Path) -> None:
    (tmp_path / "order").touch()
    order = f'echo "${{0##*/}} $*" >> {tmp_path}/order'
    assert asked(tmp_path, sync=order, systemd_run=f"{order}\n{_RUNS.format(tmp_path)}").returncode == 0
    first, second = (tmp_path / "order").read_text().splitlines()[:2]
    assert first.startswith(f"sync {tmp_path}/state/t.sh.") and second.startswith("systemd-run ")


@pytest.mark.real
def test_what_systemd_says_of_a_unit_that_ran_is_passed_on_and_is_no_other_run(tmp_path: Path) -> None:
    said = f"echo 'there already' >&2\n{_RUNS.format(tmp_path)}"
    done = asked(tmp_path, systemd_run=said, systemctl="exit 1")
    assert (done.returncode, done.stderr) == (0, "there already\n")


@pytest.mark.real
def test_a_systemd_that_starts_no_unit_fails_in_its_own_words_and_nothing_is_left_to_put_back(tmp_path: Path) -> None:
    done = asked(tmp_path, systemd_run="echo 'No bus' >&2; exit 1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("No bus\n") and done.stderr.endswith(f"{ENDED} t\n")
    assert len(done.stderr.splitlines()) == 2
    assert not list((tmp_path / "state").glob("t.sh*"))


def waited(folder: Path, *states: str) -> subprocess.CompletedProcess[str]:
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
    return told(script(f"{stubs}name=t\n{transaction._WAIT}"))


@pytest.mark.real
@pytest.mark.parametrize("state", ["active", "activating", "deactivating", "reloading"])
def test_a_unit_that_is_at_work_is_waited_for(tmp_path: Path, state: str) -> None:
    done = waited(tmp_path, state, state, "inactive")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "slept").read_text() == "\n\n"


@pytest.mark.real
def test_a_unit_that_does_not_end_in_five_minutes_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    done = waited(tmp_path, "active")
    assert done.returncode == 1
    assert unnamed(done.stderr, "5 minutes", "(begun by anna)") == []
    assert len((tmp_path / "slept").read_text()) == 600


@pytest.mark.real
@pytest.mark.parametrize(
    ("code", "ran", "ends", "given_up"),
    [(0, "yes", 0, False), (1, "yes", 0, True), (1, "''", 1, False), (143, "yes", 143, False)],
)
def test_only_what_failed_is_given_up_not_what_was_stopped_or_never_begun(
    tmp_path: Path, code: int, ran: str, ends: int, given_up: bool
) -> None:
    (tmp_path / "t.json").write_text(BEGAN)
    done = told(script(f'folder={tmp_path} name=t code={code} ran={ran}\n{transaction._GIVE_UP}\nexit "$code"'))
    assert done.returncode == ends
    assert (tmp_path / "t.given-up.json").exists() == given_up != (tmp_path / "t.json").exists()
    assert bool(done.stderr) == given_up


# --- what an operation asks for ---------------------------------------------------------------------------------------


@pytest.fixture
def logged(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(host, "log", found.append)
    return found


T = of_bodies("true", "true", "true")


@pytest.mark.pure
def test_one_that_ended_takes_nothing_before_the_next(host: Host, logged: list[str]) -> None:
    for state in ("done", "restored", "failed", None):
        host.readings[TransactionJournal] = Journal(state, "x", None, False)
        assert list(settled(T, meanwhile=lambda: iter(["first"]))) == []
    assert logged == []


@pytest.mark.pure
def test_a_running_one_is_waited_for_by_its_name_and_an_interrupted_one_is_undone(
    host: Host, logged: list[str]
) -> None:
    host.readings[TransactionJournal] = Journal("began", "x", None, True, "begun by anna")
    first, wait = settled(T, meanwhile=lambda: iter(["first"]))
    assert first == "first" and " name=t " in wait.get_raw_value() and "is-active" in wait.get_raw_value()
    assert len(logged) == 1 and logged[0].endswith(": begun by anna")
    host.readings[TransactionJournal] = Journal("began", "x", None, True)
    assert len(list(settled(T))) == 1 and logged[1].endswith(": gpunode-t")
    host.readings[TransactionJournal] = Journal("began", "x", None, False)
    first, undo = settled(T, meanwhile=lambda: iter(["first"]))
    text = undo.get_raw_value()
    assert first == "first" and f" folder={FOLDER} name=t by=" in text and "given-up" not in text
    assert len(logged) == 3 and unnamed(logged[2], "t", "interrupted") == []
    (undo,) = settled(T, gives_up=True)
    assert "given-up" in undo.get_raw_value()


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
    host.readings[TransactionJournal] = Journal("failed", "one", "it does not start", False)
    refuse_failed(T, "other")
    with pytest.raises(
        OperationRefused, match=r"^t: this was tried before and put back: it does not start[.] "
    ) as found:
        refuse_failed(T, "one")
    assert f"{FOLDER}/t.log" in str(found.value) and f"remove {FOLDER}/t.json" in str(found.value)
    host.readings[TransactionJournal] = Journal("failed", "one", None, False)
    with pytest.raises(OperationRefused, match="no reason is recorded"):
        refuse_failed(T, "one")


@pytest.mark.pure
def test_targets_differ_by_where_one_part_ends() -> None:
    assert target_digest("ab", "c") != target_digest("a", "bc") != target_digest("abc")
    assert len(target_digest("é")) == 64


@pytest.mark.pure
def test_who_runs_it_is_named_where_the_user_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "bastion")
    monkeypatch.setattr("getpass.getuser", lambda: "anna")
    assert transaction._runner() == "anna@bastion"

    def none() -> str:
        raise KeyError("getpwuid(): uid not found: 77")

    monkeypatch.setattr("getpass.getuser", none)
    monkeypatch.setattr("os.getuid", lambda: 77)
    assert transaction._runner() == "user 77@bastion"


def lines(unit: str = "inactive", **found: str) -> list[str]:
    text = found.pop("text", None)
    encoded = [f"journal={base64.b64encode(text.encode()).decode()}"] if text else []
    return [f"unit={unit}", *(f"{name}={value}" for name, value in found.items()), *encoded]


@pytest.mark.pure
def test_a_journal_is_read_with_who_is_at_work_only_where_somebody_is() -> None:
    for unit in ("active", "activating", "deactivating", "reloading"):
        assert parse_journal(lines(unit, by="anna")) == Journal(None, None, None, True, "anna")
    for unit in ("inactive", "failed"):
        assert parse_journal(lines(unit, by="anna")) == Journal(None, None, None, False, None)
    text = BEGAN.replace("began", "failed").replace('""', '"it is"')
    assert parse_journal(lines(text=text)) == Journal("failed", "target-1", "it is", False)
    assert parse_journal(lines(text=BEGAN)).reason is None


@pytest.mark.pure
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "systemd did not say"),
        (lines(text="[]", path="/p"), "is not readable .*look at /p and remove it"),
        (lines(text="{", path="/p"), "is not readable"),
        (lines(text='{"state": "done"}', path="/p"), "is not readable"),
        (lines(text=BEGAN.replace("began", "odd"), path="/p"), "says 'odd', which is none of began, .*look at /p"),
    ],
)
def test_a_journal_that_says_nothing_is_not_guessed_at(given: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_journal(given)


# --- whole files ------------------------------------------------------------------------------------------------------


def written(folder: Path, path: Path, text: str, **arguments: str) -> list[str]:
    """Write a file as an operation does, chown SIMULATED; return the programs that ran, in their order."""
    notes = {
        name: f'echo "{name} $*" >> {folder}/order\n{then}'
        for name, then in {"chown": "", "sync": "", "mv": 'exec /bin/mv "$@"', "chmod": 'exec /bin/chmod "$@"'}.items()
    }
    command = files.write_command(str(path), text, **arguments)
    (line,) = command.connector_arguments["_stdin"]
    done = subprocess.run(
        ["sh", "-c", command.get_raw_value()], env={**os.environ, "PATH": programs(folder, **notes)},
        input=f"{line}\n", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "order").read_text().splitlines()


@pytest.mark.real
def test_a_file_is_root_s_has_its_mode_and_is_on_the_disk_before_it_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a/b/file"
    new = f"{path}.gpunode-new"
    assert written(tmp_path, path, "té$xt\n", mode="640") == [
        f"chown root:root {new}", f"chmod 640 {new}", f"sync {new}", f"mv -fT {new} {path}",
    ]  # fmt: skip
    assert (path.read_text(), mode(path)) == ("té$xt\n", 0o640)
    assert [each.name for each in path.parent.iterdir()] == ["file"]
    (tmp_path / "order").unlink()
    assert written(tmp_path, path, "new")[1] == f"chmod 644 {new}"
