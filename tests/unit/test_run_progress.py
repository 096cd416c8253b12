"""How far a run is: what it tells, what becomes of that, and what is shown: golden texts at several widths."""

from __future__ import annotations

import io
import json
import sys
import time
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpunode.cli.live import lines, live
from gpunode.fleet.run import child, events
from gpunode.fleet.run.child import Files
from gpunode.fleet.run.progress import Progress, after, screen, step_line, wait_line
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure
GOLDEN = Path(__file__).parent / "data" / "run_progress"
# What a run of 24 hosts tells until it is in the middle of its second step.
EVENTS = yaml.safe_load((GOLDEN / "events.yaml").read_text())


def _after(told: list[dict[str, Any]]) -> Progress:
    return reduce(after, told, Progress(24))


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_a_terminal_shows_who_is_at_work_since_when_and_who_waits_at_any_width(columns: int) -> None:
    text = "\n".join(screen(_after(EVENTS), 240.0, columns)) + "\n"
    assert text == (GOLDEN / f"{columns}.txt").read_text()
    assert max(map(len, text.splitlines())) <= columns


def test_before_the_first_step_it_says_what_it_waits_for() -> None:
    assert screen(_after(EVENTS[:10]), 0, 80)[0] == "connecting: 9 of 24"
    assert screen(_after(EVENTS[:30]), 0, 80)[0] == "reading and deciding: 6 of 23"


def test_a_thousand_hosts_take_no_more_lines_than_a_few() -> None:
    names = [f"node-{number}-{number * 7919 % 1000}" for number in range(1000)]
    told = [{"kind": "step", "at": 0, "name": "x", "number": 1, "steps": 2, "hosts": names}]
    told += [{"kind": "begun", "at": 0, "host": name} for name in names[:500]]
    assert len(screen(_after(told), 60, 80)) <= 7


def test_a_log_gets_one_line_for_each_step() -> None:
    told: list[str] = []
    watch = lines(told.append)
    progress = Progress(24)
    for event in EVENTS:
        progress = after(progress, event)
        watch(progress)
        watch(progress)
    (line,) = told
    assert line.startswith("[ 1/41] Set apt's proxy: ")
    assert unnamed(line, "gpu-3 to gpu-5", "FAILED on gpu-2", 19, "3 s") == []
    # One that is under way has none yet.
    assert step_line(progress) is None


@pytest.mark.parametrize(
    ("before", "now", "hosts"),
    [(0, 59, ()), (59, 60, ("gpu-1",)), (60, 89, ()), (60, 100, ("gpu-2",)), (119, 120, ("gpu-1",)), (150, 239, ()),
     (0, 240, ("gpu-1", "gpu-2")), (3839, 3840, ("gpu-1",))],
)  # fmt: skip
def test_who_is_waited_for_is_told_after_1_2_4_8_minutes(before: int, now: int, hosts: tuple[str, ...]) -> None:
    line = wait_line({"gpu-1": 1000.0, "gpu-2": 1030.0}, "operation Install", 1000.0 + before, 1000.0 + now)
    assert (line is None) is (hosts == ())
    assert {name for name in ("gpu-1", "gpu-2") if name in (line or "")} == set(hosts)


def test_a_log_names_who_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told, now = list[str](), [1000.0]
    monkeypatch.setattr("gpunode.cli.live.time.time", lambda: now[0])
    watch = lines(told.append)
    progress = _after(_step({"kind": "begun", "host": "a", "at": 1000.0}, at=1000.0))
    for now[0] in (1000.0, 1059.0, 1060.0, 1061.0):
        watch(progress)
    assert len(told) == 1 and unnamed(told[0], "a") == []


def _step(*events: dict[str, Any], at: float = 0) -> list[dict[str, Any]]:
    """Return what a step tells that began on a, b and c, and not on d."""
    first = {"kind": "step", "at": at, "name": "Ask", "number": 1, "steps": 2, "hosts": ["a", "b", "c", "d"]}
    return [first, *({"kind": "begun", "at": 0, "host": name} for name in "abc"), *events]


def test_an_error_that_a_step_ignores_is_no_failure_and_not_as_desired() -> None:
    ends = [{"kind": kind, "at": 1, "host": name} for kind, name in (("ignored", "a"), ("done", "b"), ("failed", "c"))]
    # What failed half way has changed something, too.
    told = _step(*ends, {"kind": "stepped", "at": 2, "changed": ["c"]})
    found = _after(told)
    assert found.step is not None and (found.step.waiting, found.failed) == (("d",), {"c": "Ask"})
    assert unnamed(step_line(found), "changed c", "FAILED on c", "error on a", "1 as desired", "2 s") == []


def test_a_step_in_which_pyinfra_ends_has_its_line_at_the_end() -> None:
    told: list[str] = []
    ends = [{"kind": kind, "at": 1, "host": name} for kind, name in (("failed", "a"), ("done", "b"))]
    events = _step(*ends, at=time.time() - 65)
    # pytest's standard error is no terminal.
    with live(told.append) as watch:
        for number in range(len(events)):
            watch(_after(events[: number + 1]))
        assert told == []
    (line,) = told
    assert unnamed(line, "FAILED on a", "c", "done on b", "d", "1 min 5 s") == []
    with live(told.append) as watch:
        watch(_after([*events, {"kind": "stepped", "at": time.time(), "changed": []}]))
    assert len(told) == 2


class Gone(io.StringIO):
    """Stand in for a terminal whose window is closed."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(5, "Input/output error")])
def test_a_terminal_that_is_gone_costs_no_more_than_the_display(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    monkeypatch.setattr(sys, "stderr", Gone(error))
    monkeypatch.setenv("TERM", "xterm")
    before = sys.stdout
    # By rich's own means it ends the program, with standard output turned to /dev/null.
    with live(print) as watch, pytest.raises(OSError):
        watch(_after(EVENTS))
    assert sys.stdout is before


ANY_EVENT = st.dictionaries(
    st.sampled_from(["kind", "at", "host", "hosts", "name", "number", "steps", "changed", "reason"]),
    st.sampled_from(["connected", "unreached", "judged", "step", "begun", "done", "failed", "stepped", "ended"])
    | st.integers(0, 99) | st.none() | st.lists(st.text(max_size=3), max_size=3),
)  # fmt: skip


@given(st.lists(ANY_EVENT, max_size=20), st.integers(1, 200))
def test_whatever_is_told_is_shown_without_a_traceback(told: list[dict[str, Any]], columns: int) -> None:
    progress = _after([{"kind": "", **event} for event in told])
    screen(progress, 0, columns)
    step_line(progress)


def test_lines_are_read_whole_however_they_come() -> None:
    text = b'{"kind": "begun", "host": "a"}\nno JSON\n[1]\n{"kind": "done", "host": "a"}\n'
    found, rest = [], b""
    for at in range(len(text)):
        more, rest = events.read(io.BytesIO(text[at : at + 1]), rest)
        found += more
    assert [event["kind"] for event in found] == ["begun", "done"] and rest == b""


def test_nothing_is_written_where_no_parent_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(events.EVENTS, raising=False)
    events.tell("begun", host="a")
    monkeypatch.setenv(events.EVENTS, str(tmp_path / "none" / "events"))
    events.tell("begun", host="a")
    monkeypatch.setenv(events.EVENTS, str(tmp_path / "events"))
    events.tell("begun", host="a")
    assert [json.loads(line)["host"] for line in (tmp_path / "events").read_text().splitlines()] == ["a"]


def _told_by(tmp_path: Path, watch: child.Watch, end: str = "") -> tuple[int, Progress]:
    """Run a program that tells of two hosts, one after the other."""
    script = (
        "import os, time\n"
        "for name in ('a', 'b'):\n"
        "    with open(os.environ['GPUNODE_EVENTS'], 'a') as file:\n"
        '        file.write(\'{"kind": "connected", "host": "\' + name + \'"}\\n\')\n'
        f"{end or '    time.sleep(0.3)'}\n"
    )
    files = Files(tmp_path / "log", tmp_path / "printed", tmp_path / "events")
    return child.run([sys.executable, "-c", script], files, "a run", 2, {}, watch)


def test_what_a_run_told_last_is_read_though_it_has_ended(tmp_path: Path) -> None:
    seen: list[int] = []
    code, progress = _told_by(tmp_path, lambda told: seen.append(len(told.connected)), "raise SystemExit(3)")
    assert (code, progress.connected, seen[-1]) == (3, ("a", "b"), 2)


def test_a_display_that_fails_ends_no_run_and_is_told_in_the_log(tmp_path: Path) -> None:
    asked: list[Progress] = []

    def watch(progress: Progress) -> None:
        asked.append(progress)
        raise OSError(5, "Input/output error")

    code, progress = _told_by(tmp_path, watch)
    assert (code, progress.connected, len(asked)) == (0, ("a", "b"), 1)
    assert (tmp_path / "log").read_text().count("[Errno 5] Input/output error") == 1


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_signal_while_it_draws_ends_the_run_all_the_same(tmp_path: Path, end: type[BaseException]) -> None:
    def watch(progress: Progress) -> None:
        raise end

    with pytest.raises(end):
        _told_by(tmp_path, watch)
    assert end.__name__ not in (tmp_path / "log").read_text()
