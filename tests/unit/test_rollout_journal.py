"""A rollout's journal: whatever of it a crash leaves, it can be gone on with; one rollout of an inventory at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.fleet.call import Call
from gpunode.fleet.inventory import fingerprints
from gpunode.fleet.rollout.conduct import Hands, conduct, exit_code
from gpunode.fleet.rollout.entries import Ended, Outcome, Resumed, WaveBegun, WaveEnded
from gpunode.fleet.rollout.journal import (
    Journal,
    JournalError,
    LockedError,
    begin,
    controller_lock,
    latest,
    place,
    refuse_beside_rollout,
)
from gpunode.fleet.rollout.opening import Asked, ChangedError, difference, refuse_beside, resumable
from gpunode.fleet.rollout.progress import Progress, Wave
from gpunode.settings import settings_from
from tests.reference.schemas import journal_schema
from tests.support.messages import unnamed
from tests.support.rollout_waves import AT, PASSED, report, rollout

pytestmark = pytest.mark.pure

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
FAILED = Outcome(finding_class=FindingClass.DRIFT, passed=False, reason="ä\n\x00\u2028", remedy="run the deploy")
ENTRIES = (
    rollout(5, most=2, budget=1).begun,
    WaveBegun(number=1, kind="canary", nodes=("gpu-1",), at=AT),
    WaveEnded(number=1, outcomes={"gpu-1": PASSED}, at=AT),
    Ended(how="paused", at=AT),
    Resumed(at=AT),
    WaveBegun(number=2, kind="wave", nodes=("gpu-2", "gpu-3"), at=AT),
    WaveEnded(number=2, outcomes={"gpu-2": PASSED, "gpu-3": FAILED}, at=AT),
    WaveBegun(number=3, kind="wave", nodes=("gpu-4",), at=AT),
)  # fmt: skip


def written(folder: Path) -> tuple[bytes, list[Progress]]:
    """Write a whole journal; return its bytes, and how far it was after each entry."""
    journal = Journal(folder / "whole")
    known = [journal.append(entry) for entry in ENTRIES]
    return (folder / "whole").read_bytes(), known


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    content, known = written(tmp_path)
    assert Journal(tmp_path / "whole").progress == known[-1]
    assert content.count(b"\n") == len(ENTRIES)
    for line in content.splitlines():
        jsonschema.validate(json.loads(line), journal_schema())
    assert (tmp_path / "whole").stat().st_mode & 0o777 == 0o600


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_cut_at_any_byte_it_is_what_it_was_before_that_entry_and_can_be_written_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    content, known = written(folder)
    ends = [each.end() for each in re.finditer(rb"\n", content)]
    length = data.draw(st.sampled_from([0, *ends, *(end - 1 for end in ends)]) | st.integers(0, len(content)))
    # What a loss of power may leave behind the last whole line.
    torn = data.draw(st.sampled_from([b"", b"\0" * 40]))
    (folder / "cut").write_bytes(content[:length] + torn)
    journal = Journal(folder / "cut")
    whole = content[:length].count(b"\n")
    assert journal.progress == (known[whole - 1] if whole else None)
    for number, entry in enumerate(ENTRIES[whole:], whole + 1):
        journal.append(entry)
        assert (folder / "cut").read_bytes() == b"".join(content.splitlines(keepends=True)[:number])


@pytest.mark.parametrize("line", [b"{}", b"nonsense", b'{"entry":"begun"}', b'{"entry":"resumed","at":"2026-01-02"}'])
def test_a_whole_line_that_is_not_to_be_understood_is_refused_with_its_place(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(line + b"\n")
    with pytest.raises(JournalError) as refused:
        Journal(path)
    assert unnamed(str(refused.value), "journal", "line 1", "--anew") == []


def test_an_entry_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal")
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((tmp_path / "journal").read_bytes()))
    journal.append(ENTRIES[0])
    # The file, and then the folder that names it.
    assert len(synced) == 2 and synced[0].endswith(b"\n")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(JournalError, match="No space left"):
        journal.append(ENTRIES[1])
    assert journal.progress is not None and journal.progress.under_way is None


class Nodes:
    """Simulated nodes: a run makes each as desired but for `failing`, and is interrupted in the wave `killed_in`."""

    def __init__(self, folder: Path, failing: tuple[str, ...] = (), killed_in: int = 0, budget: int = 0) -> None:
        self.failing, self.killed_in = failing, killed_in
        self.runs: list[tuple[str, ...]] = []
        self.told: list[str] = []
        self.slept: list[float] = []
        self.change: str | None = None
        self.journal = Journal(folder / "journal")
        self.journal.append(rollout(5, most=2, budget=budget).begun)

    def run(self, wave: Wave) -> dict[str, Finding]:
        # Its nodes are in the journal before its run.
        assert Journal(self.journal.path).known.under_way is not None
        self.runs.append(wave.nodes)
        if wave.number == self.killed_in:
            self.killed_in = 0
            raise SystemExit
        return {}

    def read(self, nodes: Sequence[str]) -> tuple[NodeReport, ...]:
        return tuple(report(name, FindingClass.DRIFT if name in self.failing else FindingClass.OK) for name in nodes)

    def changed(self) -> str | None:
        return self.change if self.runs else None

    def conduct(self, **how: Any) -> Progress:
        hands = Hands(self.run, self.read, self.changed, self.told.append, sleep=self.slept.append)
        return conduct(self.journal, hands, **how)


ALL = [("gpu-1",), ("gpu-2", "gpu-3"), ("gpu-4", "gpu-5")]


def ending(progress: Progress) -> tuple[Any, int]:
    return progress.ended and progress.ended.how, exit_code(progress)


def test_all_nodes_are_done_in_waves_and_the_journal_says_so(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    known = nodes.conduct(interval=2.5)
    assert (nodes.runs, nodes.slept, ending(known)) == (ALL, [2.5, 2.5], ("finished", 0))
    assert Journal(tmp_path / "journal").progress == known


def test_a_canary_that_fails_its_gate_leaves_all_others_untouched(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, failing=("gpu-1",), budget=3)
    assert ending(nodes.conduct()) == ("stopped", 2) and nodes.runs == ALL[:1]
    assert [line for line in nodes.told if "gpu-1: " in line and line.endswith(" [driver.loaded-module]")]


def test_interrupted_in_wave_two_it_repeats_that_wave_and_no_node_that_was_done(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, killed_in=2)
    with pytest.raises(SystemExit):
        nodes.conduct()
    nodes.journal = Journal(tmp_path / "journal")
    assert ending(nodes.journal.known) == ("interrupted", 1)
    nodes.journal.append(Resumed(at=AT))
    nodes.conduct()
    assert nodes.runs == [*ALL[:2], *ALL[1:]]


def test_a_pause_comes_after_each_wave_and_not_after_the_last(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    for how in ("paused", "paused", "finished"):
        assert ending(nodes.conduct(pauses=True)) == (how, 0)
        nodes.journal.append(Resumed(at=AT))


def test_an_inventory_that_changes_on_the_way_stops_the_rollout_before_the_next_wave(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    nodes.change = "new: gpu-9"
    with pytest.raises(ChangedError, match="new: gpu-9"):
        nodes.conduct()
    assert nodes.runs == ALL[:1] and ending(nodes.journal.known)[0] == "stopped"


def test_a_change_of_hosts_settings_or_address_is_told_by_name() -> None:
    asked = {name: settings_from({}) for name in ("a", "b")}
    before = fingerprints(asked, {"a": {"ssh_hostname": "10.0.0.1"}, "b": {}})
    moved = fingerprints(asked, {"a": {"ssh_hostname": "10.0.0.2"}, "b": {}})
    assert unnamed(difference(before, moved), "a") == []
    reset = fingerprints({**asked, "b": settings_from({"driver": {"branch": "570"}})}, {"a": {}, "b": {}})
    assert unnamed(difference(before, reset), "a, b") == []


NOBODY = Asked({}, frozenset(), 1)


def refused(
    journal: Journal | None, desired: Asked = NOBODY, gpunode: str = "1", settings: tuple[str, ...] = ()
) -> str:
    """Return why a rollout cannot be gone on with."""
    with pytest.raises((JournalError, ChangedError)) as caught:
        resumable(journal, Call("x.py", settings=settings), desired, gpunode)
    return f"{caught.value} {caught.value.code}"


def test_only_a_rollout_of_this_inventory_that_is_not_at_its_end_can_be_gone_on_with(tmp_path: Path) -> None:
    assert unnamed(refused(None), "--resume", JournalError.code) == []
    nodes = Nodes(tmp_path)
    journal = nodes.journal
    desired = Asked(journal.known.begun.hosts, frozenset(), 1)
    assert resumable(journal, Call("x.py"), desired, "1") == (journal, journal.known)
    assert unnamed(refused(journal), "gone", "gpu-1", "--anew", ChangedError.code) == []
    assert unnamed(refused(journal, desired, "2"), 1, 2, ChangedError.code) == []
    nodes.conduct()
    assert unnamed(refused(journal, desired), JournalError.code) == []


OF_580, HIDDEN = ("driver.branch=580",), ("proxy.https=<not shown>",)


@pytest.mark.parametrize(
    ("begun_with", "given", "named"),
    [
        (OF_580, (), ["`gpunode rollout --resume x.py --set driver.branch=580`"]),
        ((), OF_580, ["--set", "`gpunode rollout --resume x.py`"]),
        (None, (), ["--set", "--resume"]),
        (HIDDEN, HIDDEN, ["--set", *HIDDEN]),
        (OF_580, OF_580, ["--resume"]),
    ],
)
def test_a_resumption_with_another_set_names_the_one_that_the_rollout_was_begun_with(
    tmp_path: Path, begun_with: tuple[str, ...] | None, given: tuple[str, ...], named: list[str]
) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append(rollout(3).begun.model_copy(update={"settings": begun_with}))
    found = refused(Journal(journal.path), settings=given)
    assert unnamed(found, *named) == [] and ("--set" in found) is ("--set" in "".join(named))


def test_a_rollout_that_no_wave_can_come_of_is_not_gone_on_with_and_the_remedy_named(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    journal = nodes.journal = Journal(tmp_path / "another")
    journal.append(rollout(3, most=1, away=1).begun)
    assert not nodes.conduct().passed
    desired = Asked(journal.known.begun.hosts, frozenset(), 1)
    assert unnamed(refused(journal, desired), "away-0", "--max-unavailable", JournalError.code) == []
    refuse_beside(journal, Call())


def test_another_rollout_is_not_begun_beside_one_that_was_broken_off(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, failing=("gpu-1",))
    with pytest.raises(JournalError) as caught:
        refuse_beside(nodes.journal, Call())
    assert unnamed(str(caught.value), "2026-01-02 00:00 UTC", "--resume", "--anew") == []
    refuse_beside(None, Call())
    nodes.conduct()
    refuse_beside(nodes.journal, Call())


def test_an_inventory_has_one_place_by_whatever_path_and_each_rollout_a_newer_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "pröd.py").touch()
    folder = place(str(tmp_path / "pröd.py"), tmp_path / ".rollout")
    assert place(str(tmp_path / "sub/../pröd.py"), tmp_path / ".rollout") == folder
    assert place("a,b", tmp_path) != place("a_b", tmp_path)
    folder.mkdir(parents=True)
    assert latest(folder) is None
    # Within one second.
    journals = [begin(folder) for _ in range(4)]
    names = [each.path.parent.name for each in journals]
    assert names == sorted(set(names))
    # Nothing was begun.
    assert latest(folder) is None
    journals[-1].append(ENTRIES[0])
    found = latest(folder)
    assert found is not None and found.path == journals[-1].path


def test_a_run_or_a_rollout_beside_a_rollout_is_refused_and_none_behind_it(tmp_path: Path) -> None:
    refuse_beside_rollout(tmp_path / "none", "x.py")
    with controller_lock(tmp_path, "x.py"):
        with pytest.raises(LockedError) as run:
            refuse_beside_rollout(tmp_path, "x.py")
        with pytest.raises(LockedError) as other, controller_lock(tmp_path, "x.py"):
            pass
    for each in (run, other):
        assert unnamed(str(each.value), "rollout of x.py", f"(process {os.getpid()})") == []
    assert " since 2" in str(run.value) and "`gpunode rollout --resume x.py`" in str(run.value)
    refuse_beside_rollout(tmp_path, "x.py")
    with controller_lock(tmp_path, "x.py"):
        pass


@pytest.mark.parametrize("which", ["folder", "parent"])
@pytest.mark.parametrize("harm", ["mode", pytest.param("owner", marks=needs_root)])
def test_a_lock_that_another_user_may_have_written_is_refused(tmp_path: Path, which: str, harm: str) -> None:
    folder = tmp_path / ".rollout" / "x"
    with controller_lock(folder, "x.py"):
        pass
    changed = folder if which == "folder" else folder.parent
    if harm == "mode":
        changed.chmod(0o777)
    else:
        os.chown(changed, 65534, 65534)
    with pytest.raises(JournalError), controller_lock(folder, "x.py"):
        pass
    with pytest.raises(JournalError):
        refuse_beside_rollout(folder, "x.py")
