"""`gpunode apply`: what it asks, what it runs, and what it says at the end. SIMULATED: pyinfra is a program of ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.verdicts import Refusal
from gpunode.cli import apply as command
from gpunode.cli import plan as plans
from gpunode.fleet.reports.run_end import Failure, HostEnd
from gpunode.fleet.run import child
from gpunode.node.plan import Plan
from tests.unit.simulated_rollout import Lab
from tests.unit.test_rollout_command import SECONDS, alive, pyinfra_of, until, with_default_signals

pytestmark = pytest.mark.starts_programs
GOOD = (Finding("driver", FindingClass.OK, "flavour", "open", "open"),)
WAITS = Finding("driver", FindingClass.REBOOT_PENDING, "loaded module", "570", "580", disruption=Disruption.reboot)
CAN = Plan((), (), ())
REFUSED = Plan(
    (Refusal("mig", "an L4 has no MIG", "the table", "take mig.config away", "preflight.mig-has-none"),), (), ()
)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child, "program", lambda: str(tmp_path / "bin" / "pyinfra"))
    _plan(monkeypatch, {f"gpu-{number}": CAN for number in range(1, 5)})
    _end(found, *(HostEnd(f"gpu-{number}", findings=GOOD) for number in range(1, 5)))
    return found


def _plan(monkeypatch: pytest.MonkeyPatch, found: dict[str, Plan | str]) -> None:
    monkeypatch.setattr(plans, "live_plans", lambda inventory, limit: found)


def _end(lab: Lab, *ends: HostEnd) -> None:
    (lab.folder / "ended.json").write_text(json.dumps([end.to_json() for end in ends]))


def apply(*options: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli.gpunode, ["apply", *options, "fleet.py"], input=answer)


def test_it_shows_the_plan_runs_on_all_and_says_how_they_are(lab: Lab) -> None:
    done = apply("--yes")
    assert done.exit_code == 0, done.output
    assert lab.runs == [["gpu-1", "gpu-2", "gpu-3", "gpu-4"]]
    assert done.stdout.splitlines()[0] == "gpu-1: nothing to do"
    assert done.stdout.splitlines()[-3:] == [
        "gpu-1 to gpu-4: ok, 1 of 1 as desired", "4 nodes: 4 ok", "Nothing is left to do.",
    ]  # fmt: skip
    (log,) = lab.folder.glob(".apply/fleet-*/*/run.log")
    assert "SIMULATED pyinfra -y --json --limit gpu-1" in log.read_text()
    assert log.parent.stat().st_mode & 0o077 == 0, "settings may be secret"


def test_without_yes_and_without_a_terminal_nothing_is_run(lab: Lab) -> None:
    done = apply()
    assert done.exit_code == 2 and "give --yes" in done.stderr
    assert lab.runs == []


@pytest.mark.parametrize(("answer", "runs"), [("n\n", 0), ("\n", 0), ("y\n", 1)])
def test_a_person_is_asked_and_may_say_no(lab: Lab, monkeypatch: pytest.MonkeyPatch, answer: str, runs: int) -> None:
    class Terminal:
        """Stand in for sys, whose standard input is a terminal."""

        stdin = type("In", (), {"isatty": staticmethod(lambda: True)})()
        exit = sys.exit

    monkeypatch.setattr(command, "sys", Terminal)
    done = apply(answer=answer)
    assert (done.exit_code, len(lab.runs)) == (0, runs)
    assert "Run this on 4 nodes (gpu-1 to gpu-4)?" in done.output
    assert ("nothing was done" in done.output) is not bool(runs)


def test_a_refused_and_a_silent_node_are_left_out_and_told_at_the_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plan(monkeypatch, {"gpu-1": CAN, "gpu-2": REFUSED, "gpu-3": "timed out", "gpu-4": CAN})
    done = apply("--yes")
    assert done.exit_code == 1
    assert lab.runs == [["gpu-1", "gpu-4"]]
    assert "gpu-2: unsupported\ngpu-3: unreachable\n4 nodes: 2 ok, 1 unsupported, 1 unreachable" in done.stdout
    assert "take mig.config away" in done.stdout


def test_where_no_node_can_be_changed_nothing_is_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _plan(monkeypatch, {"gpu-2": REFUSED})
    assert apply("--yes").exit_code == 2
    _plan(monkeypatch, {"gpu-2": "timed out"})
    assert apply("--yes").exit_code == 1
    assert lab.runs == []


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (HostEnd("gpu-1", findings=(*GOOD, WAITS)), 2),
        (HostEnd("gpu-1", failure=Failure("Install it", "no space left")), 1),
        (HostEnd("gpu-1", unreached="timed out"), 1),
    ],
)
def test_the_exit_status_is_the_verdict(lab: Lab, end: HostEnd, status: int) -> None:
    _end(lab, end, *(HostEnd(f"gpu-{number}", findings=GOOD) for number in range(2, 5)))
    done = apply("--yes")
    assert done.exit_code == status
    assert "log: .apply/" in done.stderr


def test_a_run_that_ended_without_a_word_is_told_with_the_end_of_its_log(lab: Lab) -> None:
    (lab.folder / "ended.json").unlink()
    done = apply("--yes")
    assert done.exit_code == 1
    assert "before it could say how the nodes are" in done.stderr and "SIMULATED pyinfra" in done.stderr


def test_a_folder_that_cannot_be_written_is_told_without_a_traceback(lab: Lab) -> None:
    (lab.folder / ".apply").write_text("")
    done = apply("--yes")
    assert done.exit_code == 1 and ".apply" in done.stderr and "Traceback" not in done.output


def test_a_setting_of_the_command_line_reaches_the_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUNODE_SET", "")
    program = lab.folder / "bin" / "pyinfra"
    told = 'print(os.environ["GPUNODE_SET"], file=sys.stderr)\nlimits = ['
    program.write_text(program.read_text().replace("limits = [", told, 1))
    assert apply("--yes", "--set", "driver.branch=580").exit_code == 0
    (log,) = lab.folder.glob(".apply/fleet-*/*/run.log")
    assert '{"driver": {"branch": "580"}}' in log.read_text()


@pytest.mark.builds
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_pyinfra_and_says_how_to_go_on(lab: Lab, number: signal.Signals) -> None:
    lab.hang()
    root = Path(__file__).parents[2]
    path = f"{lab.folder}/bin:{os.environ['PATH']}"
    with subprocess.Popen(
        [root / ".venv/bin/python", "-m", "tests.unit.simulated_rollout", "apply", "--yes", "fleet.py"],
        cwd=lab.folder, env={**os.environ, "PYTHONPATH": str(root), "PATH": path}, text=True,
        preexec_fn=with_default_signals, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as controller:  # fmt: skip
        try:
            until(lambda: bool(lab.runs))
            pyinfra = pyinfra_of(lab)
            controller.send_signal(number)
            out, err = controller.communicate(timeout=SECONDS)
        finally:
            lab.hang(False)
            controller.kill()
    assert controller.returncode == 1, out + err
    assert "`gpunode apply fleet.py` goes on" in err and "Traceback" not in err
    assert not alive(pyinfra)
