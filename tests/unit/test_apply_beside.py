"""`gpunode apply` beside rollouts, runs of the same inventory, and whoever stops looking. SIMULATED: pyinfra."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpunode.base.findings import Finding
from gpunode.cli import plan as plans
from gpunode.fleet.rollout import place as rollouts
from gpunode.node.plan import Plan
from tests.support.apply import CAN, REFUSED, apply, at_a_terminal, lab, runs_before_its_end, telling
from tests.support.messages import unnamed
from tests.support.rollout_command import SECONDS, until
from tests.support.simulated_rollout import Lab

__all__ = ["lab"]


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


def _waiting(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, Plan | Finding], now: dict[str, Plan | Finding]
) -> None:
    """Have another run be at work until it has been waited for once; and the plan before, and the one behind it."""
    at_work = contextlib.ExitStack()
    at_work.enter_context(rollouts.run_lock(rollouts.place("fleet.py"), print, "`gpunode apply fleet.py`"))
    monkeypatch.setattr(rollouts, "time", SimpleNamespace(sleep=lambda _: at_work.close()))
    found = iter([before, now])
    monkeypatch.setattr(plans, "live_plans", lambda *_: next(found))


def test_behind_another_run_the_plan_is_made_anew_and_what_it_says_now_is_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    _waiting(monkeypatch, {"gpu-1": CAN, "gpu-2": CAN}, {"gpu-1": REFUSED, "gpu-2": CAN})
    done = apply("--yes")
    assert lab.runs == [["gpu-2"]]
    assert "waiting: `gpunode apply fleet.py`" in done.stderr
    assert done.stdout.index("gpu-1, gpu-2: ") < done.stdout.index(":\ngpu-1: refused") and done.exit_code == 2


def test_behind_another_run_the_same_plan_is_not_shown_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _waiting(monkeypatch, {"gpu-1": CAN}, {"gpu-1": CAN})
    done = apply("--yes")
    assert (done.exit_code, lab.runs) == (0, [["gpu-1"]])
    assert done.stdout.count("gpu-1: nothing") == 1 and "same" in done.stderr


@pytest.mark.parametrize(("answers", "runs"), [("y\nn\n", 0), ("y\ny\n", 1)])
def test_a_person_is_asked_again_where_the_plan_is_another_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, answers: str, runs: int
) -> None:
    _waiting(monkeypatch, {"gpu-1": CAN, "gpu-2": CAN}, {"gpu-1": REFUSED, "gpu-2": CAN})
    at_a_terminal(monkeypatch)
    done = apply(answer=answers)
    assert len(lab.runs) == runs
    assert unnamed(done.output, "on 2 nodes", "on 1 node (gpu-2); 1 stay") == []


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
    assert (": BrokenPipeError" in log.read_text()) is (gone == "reader")
