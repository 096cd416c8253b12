"""`gpunode apply`: what it asks, what it runs, and what it says at the end. SIMULATED: pyinfra is a program of ours."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import CLUSTER, Finding
from gpunode.cli import plan as plans
from gpunode.fleet.access import errors
from gpunode.fleet.reports.run_end import HostEnd, failure_of
from gpunode.fleet.rollout import journal as rollouts
from gpunode.node.plan import Plan, PlannedStep
from tests.support.apply import (
    CAN,
    DONE,
    GOOD,
    REFUSED,
    WAITS,
    _end,
    _plan,
    apply,
    at_a_terminal,
    lab,
    runs_before_its_end,
    telling,
)  # fmt: skip
from tests.support.messages import unnamed
from tests.support.rollout_command import SECONDS, alive, pyinfra_of, until
from tests.support.simulated_rollout import Lab
from tests.support.terminal import Terminal

__all__ = ["lab"]
OTHERS = tuple(HostEnd(f"gpu-{number}", findings=GOOD) for number in range(2, 5))
BRANCH = ("--yes", "--limit", "gpu-*", "--set", "driver.branch=580")
AGAIN = "gpunode apply fleet.py --limit 'gpu-*' --set driver.branch=580"
BROKEN_OFF = "[run.broken-off]"


def log_of(lab: Lab) -> str:
    (log,) = lab.folder.glob(".apply/fleet-*/*/run.log")
    assert log.parent.stat().st_mode & 0o077 == 0, "settings may be secret"
    return log.read_text()


def test_it_shows_the_plan_runs_on_all_and_says_how_they_are(lab: Lab) -> None:
    done = apply("--yes")
    assert done.exit_code == 0, done.output
    assert lab.runs == [["gpu-1", "gpu-2", "gpu-3", "gpu-4"]]
    lines = done.stdout.splitlines()
    assert lines[0].startswith("gpu-1 to gpu-4: ")
    assert lines[-3:-1] == ["gpu-1 to gpu-4: ok, 1 of 1 as desired", "4 nodes: 4 ok"]
    assert "SIMULATED pyinfra -y --json --limit gpu-1" in log_of(lab) and "# with" not in log_of(lab)


def test_without_yes_and_without_a_terminal_nothing_is_run(lab: Lab) -> None:
    done = apply()
    assert done.exit_code == 2 and "--yes" in done.stderr and lab.runs == []


@pytest.mark.parametrize(("answer", "runs"), [("n\n", 0), ("\n", 0), ("y\n", 1)])
def test_a_person_is_asked_and_may_say_no(lab: Lab, monkeypatch: pytest.MonkeyPatch, answer: str, runs: int) -> None:
    at_a_terminal(monkeypatch)
    done = apply(answer=answer)
    # No node is as desired by this command: a script that goes on behind `apply` must not.
    assert (done.exit_code, len(lab.runs)) == (0 if runs else 2, runs)
    assert unnamed(done.output, "4 nodes", "(gpu-1 to gpu-4)?") == []
    assert ("nothing was done" in done.output) is not bool(runs)


@pytest.mark.parametrize(
    ("name", "other", "runs"),
    [
        ("gpu-2", DONE, 1),
        ("gpu-2", CAN, 0),
        ("gpu-2", REFUSED, 0),
        ("gpu-2", errors.unreached("timed out"), 0),
        (CLUSTER, replace(DONE, cluster="prod"), 1),
        (CLUSTER, replace(CAN, cluster="prod"), 0),
    ],
)
def test_where_nothing_is_to_do_nobody_is_asked_and_the_nodes_are_verified(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str, other: Plan | Finding, runs: int
) -> None:
    _plan(monkeypatch, {"gpu-1": DONE, name: other})
    at_a_terminal(monkeypatch)
    done = apply(answer="n\n")
    assert (done.exit_code, len(lab.runs)) == (0 if runs else 2, runs)


def test_a_no_is_in_the_document_and_its_exit_code(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_terminal(monkeypatch)
    done = apply("--json", answer="n\n")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["exit_code"], lab.runs) == (2, 2, [])
    assert list(document["left_alone"]) == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def test_a_refused_and_a_silent_node_are_left_out_and_told_at_the_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = errors.unreached("timed out")
    _plan(monkeypatch, {"gpu-1": CAN, "gpu-2": REFUSED, "gpu-3": silent, "gpu-4": CAN})
    done = apply("--yes")
    assert (done.exit_code, lab.runs) == (1, [["gpu-1", "gpu-4"]])
    assert "gpu-2: unsupported\ngpu-3: unreachable\n4 nodes: 2 ok, 1 unsupported, 1 unreachable" in done.stdout
    assert REFUSED.refusals[0].remedy in done.stdout
    for alone, status in ((REFUSED, 2), (silent, 1)):
        _plan(monkeypatch, {"gpu-2": alone})
        assert apply("--yes").exit_code == status
    assert len(lab.runs) == 1


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ({"findings": (*GOOD, WAITS)}, 2, WAITS.code),
        ({"failure": failure_of("Install it", ["no space left"])}, 1, "no space left"),
        ({"unreached": "timed out"}, 1, "timed out"),
        ({"left_alone": "a cordon of others"}, 2, "a cordon of others"),
        ({"unverified": "an image"}, 0, "an image"),
    ],
)
def test_the_exit_status_is_the_verdict(lab: Lab, end: dict[str, Any], status: int, said: str) -> None:
    _end(lab, HostEnd("gpu-1", **end), *OTHERS)
    done = apply("--yes")
    assert done.exit_code == status and said in done.stdout and "4 ok" not in done.stdout
    assert "log: .apply/" in done.stderr and BROKEN_OFF not in done.stderr


def test_a_run_that_ended_without_a_word_is_an_error_told_with_the_end_of_its_log(lab: Lab) -> None:
    assert json.loads(apply("--yes", "--output", "json").stdout)["errors"] == []
    (lab.folder / "ended.json").unlink()
    done = apply("--yes", "--output", "json")
    (error,) = json.loads(done.stdout)["errors"]
    assert (done.exit_code, error["code"]) == (1, "run.broken-off") and "pyinfra" in error["error"]
    assert unnamed(done.stderr, BROKEN_OFF, "SIMULATED pyinfra") == []


NO_REPORT = {"kind": "ended", "hosts": [end.to_json() for end in (HostEnd("gpu-1"), *OTHERS)]}
GOOD_REPORT = {"kind": "ended", "hosts": [end.to_json() for end in (HostEnd("gpu-1", findings=GOOD), *OTHERS)]}
MIDWAY: tuple[dict[str, object], ...] = (
    {"kind": "unreached", "host": "gpu-1", "reason": "timed out"},
    {"kind": "step", "at": 1, "name": "Install it", "number": 1, "steps": 2, "hosts": ["gpu-2", "gpu-3"]},
    {"kind": "failed", "host": "gpu-2"},
)


@pytest.mark.parametrize(
    ("events", "end", "ended", "told"),
    [
        ((NO_REPORT,), "sys.exit(0)", r"exited 0\.", ["gpu-1 [run.broken-off]", "\ngpu-2 to gpu-4: ok"]),
        ((NO_REPORT,), "sys.exit(1)", r"exited 1\.", ["gpu-1 [run.broken-off]", "\ngpu-2 to gpu-4: ok"]),
        # It failed by no node, and so on all.
        ((GOOD_REPORT,), "sys.exit(1)", r"exited 1\.", ["gpu-1 to gpu-4 [run.broken-off]", "4 nodes: 4 error"]),
        (MIDWAY, "os.kill(os.getpid(), 9)", r".*signal 9 ", [
            "gpu-1 [node.connection]", "gpu-2 [run.operation-failed]", "2 nodes: gpu-3, gpu-4 [run.broken-off]",
        ]),
    ],
)  # fmt: skip
def test_a_pyinfra_that_breaks_off_is_an_error_of_the_nodes_that_it_told_nothing_of(
    lab: Lab, events: tuple[dict[str, object], ...], end: str, ended: str, told: list[str]
) -> None:
    runs_before_its_end(lab, f"{telling(*events)}\n{end}")
    done = apply("--yes")
    assert done.exit_code == 1 and [text for text in told if text not in done.stdout] == []
    assert "4 ok" not in done.stdout and "SIMULATED pyinfra" in done.stderr
    assert re.search(rf"pyinfra {ended}.* \[run.broken-off\]\n", done.stderr)


@pytest.mark.parametrize("name", [".apply", ".rollout"])
def test_a_log_or_a_lock_that_cannot_be_had_is_told_with_its_file_and_who_needs_it(lab: Lab, name: str) -> None:
    (lab.folder / name).write_text("")
    done = apply("--yes")
    assert done.exit_code == 1 and lab.runs == [] and isinstance(done.exception, SystemExit)
    assert name in done.stderr and "Traceback" not in done.output
    assert name == ".apply" or (done.stderr.count(f"{name}/fleet-") >= 1 and done.stderr.count(name) >= 2)
    assert "error:" not in done.stderr


def test_a_setting_of_the_command_line_reaches_the_run_and_how_it_was_called(lab: Lab) -> None:
    names = ("GPUNODE_SET", "GPUNODE_CALL")
    runs_before_its_end(lab, "\n".join(f'print(os.environ["{name}"], file=sys.stderr)' for name in names))
    assert apply(*BRANCH).exit_code == 0
    assert '{"driver": {"branch": "580"}}' in log_of(lab)
    assert (
        '{"inventory": "fleet.py", "limit": ["gpu-*"], "settings": ["driver.branch=580"], "operations": [], '
        '"options": []}' in log_of(lab)
    )


def test_the_log_begins_with_what_was_set_but_for_what_may_be_secret(lab: Lab) -> None:
    words = ["--set", "driver.branch=580", "--set", "proxy.https=http://me:hunter2@proxy:3128"]
    assert apply("--yes", *words).exit_code == 0
    assert log_of(lab).splitlines()[1] == "# with --set driver.branch=580 --set 'proxy.https=<not shown>'"
    assert "hunter2" not in log_of(lab)


def test_what_is_left_to_do_names_the_limit_and_the_settings(lab: Lab) -> None:
    _end(lab, HostEnd("gpu-1", failure=failure_of("Install it", ["no space left"])))
    done = apply(*BRANCH)
    assert f"\n  {AGAIN}\n" in done.stdout and f"`{AGAIN}`" in done.stdout


@pytest.mark.tier2
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_pyinfra_and_says_how_to_go_on(lab: Lab, number: signal.Signals) -> None:
    lab.hang()
    words = ("-m", "tests.support.simulated_rollout", "apply", "--output", "plain", *BRANCH, "fleet.py")
    terminal = Terminal(lab.folder, sys.executable, *words, printed=lab.folder / "printed")
    try:
        until(lambda: bool(lab.runs))
        pyinfra = pyinfra_of(lab)
        terminal.process.send_signal(number)
        status, _, shown = terminal.end()
    finally:
        lab.hang(False)
    assert status == 1 and f"`{AGAIN}`" in shown and "Traceback" not in shown and not alive(pyinfra)


# Beside rollouts, runs of the same inventory, and whoever stops looking.


@pytest.mark.parametrize("begins", ["before the plan", "behind it"])
def test_while_a_rollout_of_the_inventory_is_at_work_nothing_is_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    asked: list[str] = []
    with contextlib.ExitStack() as at_work:

        def planned(*_: object) -> dict[str, Plan | Finding]:
            asked.append("plan")
            if begins == "behind it":
                at_work.enter_context(rollouts.controller_lock(rollouts.place("fleet.py"), "fleet.py"))
            return {"gpu-1": CAN}

        monkeypatch.setattr(plans, "live_plans", planned)
        if begins == "before the plan":
            at_work.enter_context(rollouts.controller_lock(rollouts.place("fleet.py"), "fleet.py"))
        done = apply("--yes")
    assert (done.exit_code, lab.runs, len(asked)) == (1, [], begins == "behind it")
    assert unnamed(done.stderr, "rollout of fleet.py", f"(process {os.getpid()})") == []
    monkeypatch.setattr(plans, "live_plans", lambda *_: {"gpu-1": CAN})
    assert apply("--yes").exit_code == 0


def test_the_cluster_s_plan_is_shown_and_is_no_node(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    step = PlannedStep("device_plugin", "ask", "not known", "known", Disruption.nothing, True, fails=True)
    _plan(monkeypatch, {"gpu-1": CAN, CLUSTER: Plan((), (), (step,), cluster="prod")})
    done = apply("--yes")
    assert lab.runs == [["gpu-1"]] and done.exit_code == 0
    assert unnamed(done.stdout, "the cluster prod: would fail") == []


@pytest.mark.tier2
@pytest.mark.parametrize("gone", ["window", "reader"])
def test_whoever_stops_looking_ends_no_run_and_the_verdict_comes(lab: Lab, gone: str) -> None:
    step = {"kind": "step", "at": 1, "name": "Install it", "number": 1, "steps": 1, "hosts": ["gpu-1"]}
    tells = telling(step, {"kind": "stepped", "at": 2, "changed": []})
    runs_before_its_end(lab, f"{tells}\ntime.sleep(1)")
    lab.hang()
    # No pipe: whoever else is forked meanwhile would hold its end for a while.
    ours, theirs = pty.openpty() if gone == "window" else [end.detach() for end in socket.socketpair()]
    root = Path(__file__).parents[2]
    path = f"{lab.folder}/bin:{os.environ['PATH']}"
    with subprocess.Popen(
        [root / ".venv/bin/python", "-m", "tests.support.simulated_rollout", "apply", "--yes", "fleet.py"],
        cwd=lab.folder, env={**os.environ, "PYTHONPATH": str(root), "PATH": path, "TERM": "xterm"}, text=True,
        stdout=subprocess.PIPE, stderr=theirs,
    ) as controller:  # fmt: skip
        try:
            os.close(theirs)
            until(lambda: bool(lab.runs))
            if gone == "reader":
                with socket.socket(fileno=os.dup(ours)) as reader:
                    reader.shutdown(socket.SHUT_RDWR)
            os.close(ours)
            lab.hang(False)
            out, _ = controller.communicate(timeout=SECONDS)
        finally:
            lab.hang(False)
            controller.kill()
    assert controller.returncode == 0, out
    assert out.splitlines()[-1].startswith("Nothing is left")
    (log,) = lab.folder.glob(".apply/*/*/run.log")
    # rich asks whether its terminal is one, and draws nothing where that is gone.
    assert ("Broken pipe" in log.read_text()) is (gone == "reader")
