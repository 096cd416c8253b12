"""What of a run that goes wrong ends it on a host, and what does not: pyinfra itself runs, on its @fake hosts."""

from __future__ import annotations

import json
import os
import subprocess
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import ExitCode, Finding
from gpunode.fleet.reports.run_end import HostEnd, ends_of, host_end_from, status_of
from gpunode.fleet.rollout import conduct
from gpunode.fleet.run import events
from gpunode.fleet.run.progress import Progress, after
from gpunode.node.plan import Plan
from tests.support import warm

pytestmark = pytest.mark.pure

HEAD = """
import os, subprocess, time

from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand
from pyinfra.api.exceptions import NestedOperationError
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host
from pyinfra.operations import python

from gpunode.fleet import run_end
from gpunode.operations.failure import fail, node_operation

run_end.takes_part(ctx_host.get())
told = []


@node_operation
def says_no():
    yield fail("not today")


@node_operation
def second_time():
    if host.state.is_executing and not told:
        told.append("once")
        yield fail("the mirror is away")
        return
    yield StringCommand("true")


def goes_on():
    try:
        says_no(name="What a step calls")
    except NestedOperationError:
        pass


@node_operation
def fails_silently():
    yield FunctionCommand(lambda state, host: False, [], {})


@operation()
def raises():
    # No node_operation: an error of somebody else's operation ends pyinfra.
    if host.state.is_executing and host.name == "@fake/a":
        raise LookupError("broken on purpose")
    yield StringCommand("true")


def is_interrupted(state, host):
    if host.name == "@fake/a":
        subprocess.Popen(["sh", "-c", f"kill -INT {os.getpid()}"])
        time.sleep(30)


@node_operation
def interrupted():
    yield FunctionCommand(is_interrupted, [], {})

"""


def run(folder: Path, body: str) -> tuple[subprocess.CompletedProcess[str], Progress, dict[str, HostEnd]]:
    """Run a deploy on two hosts; return the run, how far it told to be at its end, and how each host ended."""
    (folder / "deploy.py").write_text(HEAD + body)
    (folder / "inventory.py").write_text("hosts = [('@fake/a', {}), ('@fake/b', {})]\n")
    files = [warm.CHECKOUT / "config.py", folder / "inventory.py", folder / "deploy.py"]
    environment = {**os.environ, "NO_COLOR": "1", events.EVENTS: str(folder / "events")}
    done = warm.run("pyinfra", "-y", "--json", "--config", *files, env=environment)
    with (folder / "events").open("rb") as file:
        told: list[dict[str, Any]] = events.read(file)[0]
    progress = reduce(after, told, Progress(2))
    assert progress.ends is not None, done.stderr
    return done, progress, {end.name: end for end in map(host_end_from, progress.ends)}


def test_an_error_that_is_ignored_fails_no_host(tmp_path: Path) -> None:
    done, progress, ends = run(tmp_path, "says_no(name='Ask', _ignore_errors=True)\n")
    assert done.returncode == 0, done.stderr
    assert [end.failure for end in ends.values()] == [None, None]
    assert progress.failed == {}
    assert progress.step is not None and sorted(progress.step.ignored) == ["@fake/a", "@fake/b"]
    assert "not today" not in done.stderr.split("Verdict:")[1]


def test_a_step_fails_by_what_it_said_itself_and_not_by_what_went_wrong_before_it(tmp_path: Path) -> None:
    body = (
        "says_no(name='Ask', _ignore_errors=True)\n"
        "second_time(name='Fetch', _retries=1, _retry_delay=0)\n"
        "python.call(name='Go on', function=goes_on)\n"
        "fails_silently(name='Last')\n"
    )
    done, progress, ends = run(tmp_path, body)
    assert done.returncode == 1
    assert all("Last" in str(end.failure and end.failure.what) for end in ends.values())
    assert not any("not today" in str(end.failure) or "mirror" in str(end.failure) for end in ends.values())
    assert set(progress.failed.values()) == {"Last"}


def test_a_step_that_goes_on_behind_what_it_called_is_done_once(tmp_path: Path) -> None:
    done, progress, ends = run(tmp_path, "python.call(name='Go on', function=goes_on)\n")
    assert done.returncode == 0, done.stderr
    assert [end.failure for end in ends.values()] == [None, None] and progress.failed == {}
    assert progress.step is not None and sorted(progress.step.done) == ["@fake/a", "@fake/b"]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events").read_text().splitlines()]
    assert kinds.count("begun") == kinds.count("done") == 2


PLANS: dict[str, Plan | Finding] = {name: Plan((), (), ()) for name in ("@fake/a", "@fake/b")}


@pytest.mark.parametrize(
    ("body", "code", "why"),
    [
        ("run_end.judged(ctx_host.get(), ())\nraises(name='Crash')\nfails_silently(name='Last')\n", 1,
         "broken on purpose"),
        # It exits 0, by which nothing can be told.
        ("interrupted(name='Long')\n", 0, "interrupted"),
    ],
)  # fmt: skip
def test_a_run_that_crashed_or_was_interrupted_looks_good_on_no_host(
    tmp_path: Path, body: str, code: int, why: str
) -> None:
    done, progress, ends = run(tmp_path, body)
    assert done.returncode == code
    assert len(ends) == 2 and all(why in str(end.cut_off) for end in ends.values())
    assert "run.broken-off" in done.stderr
    assert status_of(ends_of(PLANS, progress, code)) is ExitCode.ERROR
    assert conduct.result(tuple(PLANS), code, done.stdout.encode(), "log", progress).keys() == set(PLANS)


def test_a_run_that_stops_where_no_host_is_left_is_told_by_what_failed(tmp_path: Path) -> None:
    done, _, ends = run(tmp_path, "says_no(name='Ask')\nfails_silently(name='Last')\n")
    assert done.returncode == 1
    assert [(end.failure and end.failure.cause, end.cut_off) for end in ends.values()] == [("not today", None)] * 2


def test_where_one_host_failed_those_that_a_crash_cut_off_are_told_beside_it(tmp_path: Path) -> None:
    body = "if host.name == '@fake/b':\n    says_no(name='Ask')\nraises(name='Crash')\n"
    done, progress, _ = run(tmp_path, body)
    found = {end.name: (end.failure is not None, end.cut_off is not None) for end in ends_of(PLANS, progress, 1)}
    assert found == {"@fake/a": (False, True), "@fake/b": (True, False)}, done.stderr
