"""`gpunode apply`: what it asks, what it runs, and what it says at the end. SIMULATED: pyinfra is a program of ours."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from gpunode.fleet import no_answer
from gpunode.fleet.reports.run_end import Failure, HostEnd
from tests.support.apply import CAN, GOOD, REFUSED, WAITS, _end, _plan, apply, at_a_terminal, lab
from tests.support.rollout_command import SECONDS, alive, pyinfra_of, until, with_default_signals
from tests.support.simulated_rollout import Lab

# Fixtures.
__all__ = ["lab"]


def test_it_shows_the_plan_runs_on_all_and_says_how_they_are(lab: Lab) -> None:
    done = apply("--yes")
    assert done.exit_code == 0, done.output
    assert lab.runs == [["gpu-1", "gpu-2", "gpu-3", "gpu-4"]]
    assert done.stdout.splitlines()[0] == "gpu-1 to gpu-4: nothing to do"
    assert done.stdout.splitlines()[-3:-1] == ["gpu-1 to gpu-4: ok, 1 of 1 as desired", "4 nodes: 4 ok"]
    (log,) = lab.folder.glob(".apply/fleet-*/*/run.log")
    assert "SIMULATED pyinfra -y --json --limit gpu-1" in log.read_text()
    assert log.parent.stat().st_mode & 0o077 == 0, "settings may be secret"


def test_without_yes_and_without_a_terminal_nothing_is_run(lab: Lab) -> None:
    done = apply()
    assert done.exit_code == 2 and "give --yes" in done.stderr
    assert lab.runs == []


@pytest.mark.parametrize(("answer", "runs"), [("n\n", 0), ("\n", 0), ("y\n", 1)])
def test_a_person_is_asked_and_may_say_no(lab: Lab, monkeypatch: pytest.MonkeyPatch, answer: str, runs: int) -> None:
    at_a_terminal(monkeypatch)
    done = apply(answer=answer)
    assert (done.exit_code, len(lab.runs)) == (0, runs)
    assert "Run this on 4 nodes (gpu-1 to gpu-4)?" in done.output
    assert ("nothing was done" in done.output) is not bool(runs)


def test_a_refused_and_a_silent_node_are_left_out_and_told_at_the_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plan(monkeypatch, {"gpu-1": CAN, "gpu-2": REFUSED, "gpu-3": no_answer.unreached("timed out"), "gpu-4": CAN})
    done = apply("--yes")
    assert done.exit_code == 1
    assert lab.runs == [["gpu-1", "gpu-4"]]
    assert "gpu-2: unsupported\ngpu-3: unreachable\n4 nodes: 2 ok, 1 unsupported, 1 unreachable" in done.stdout
    assert "take mig.config away" in done.stdout


def test_where_no_node_can_be_changed_nothing_is_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _plan(monkeypatch, {"gpu-2": REFUSED})
    assert apply("--yes").exit_code == 2
    _plan(monkeypatch, {"gpu-2": no_answer.unreached("timed out")})
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
    assert "[run.broken-off]" in done.stderr and "SIMULATED pyinfra" in done.stderr


def test_a_run_that_was_broken_off_is_an_error_of_the_document(lab: Lab) -> None:
    assert json.loads(apply("--yes", "--output", "json").stdout)["errors"] == []
    (lab.folder / "ended.json").unlink()
    (error,) = json.loads(apply("--yes", "--output", "json").stdout)["errors"]
    assert error["code"] == "run.broken-off" and "pyinfra" in error["error"]


def _tell(lab: Lab, events: list[dict[str, object]], code: int) -> None:
    """Have pyinfra tell these of itself, and exit so."""
    program = lab.folder / "bin" / "pyinfra"
    told = "".join(json.dumps(event) + "\n" for event in events)
    ends = f'open(os.environ["GPUNODE_EVENTS"], "a").write({told!r})\nsys.exit({code})\n'
    program.write_text(program.read_text().replace("failing = set(", ends + "failing = set(", 1))


@pytest.mark.parametrize("code", [0, 1])
def test_a_node_that_came_without_a_report_is_an_error(lab: Lab, code: int) -> None:
    ends = [HostEnd("gpu-1"), *(HostEnd(f"gpu-{number}", findings=GOOD) for number in range(2, 5))]
    _tell(lab, [{"kind": "ended", "hosts": [end.to_json() for end in ends]}], code)
    done = apply("--yes")
    assert done.exit_code == 1
    assert "run: cut off: error, gpu-1 [run.broken-off]\n" in done.stdout and "no operation failed" not in done.stdout
    assert f"pyinfra exited {code} before" in done.stdout
    assert "gpu-2 to gpu-4: ok" in done.stdout
    assert re.search(rf"pyinfra exited {code}\..* \[run.broken-off\]\n", done.stderr)
    assert "SIMULATED pyinfra" in done.stderr


def test_a_pyinfra_that_failed_by_no_node_is_an_error_on_all(lab: Lab) -> None:
    ends = [HostEnd(f"gpu-{number}", findings=GOOD) for number in range(1, 5)]
    _tell(lab, [{"kind": "ended", "hosts": [end.to_json() for end in ends]}], 1)
    done = apply("--yes")
    assert done.exit_code == 1
    assert "run: cut off: error, 4 nodes: gpu-1 to gpu-4 [run.broken-off]\n" in done.stdout
    assert "4 nodes: 4 error" in done.stdout and "4 ok" not in done.stdout
    assert re.search(r"pyinfra exited 1\..* \[run.broken-off\]\n", done.stderr)


def test_where_one_node_was_not_reached_and_pyinfra_crashed_the_others_are_lost_and_told(lab: Lab) -> None:
    step = {"kind": "step", "at": 1, "name": "Install it", "number": 1, "steps": 2, "hosts": ["gpu-2", "gpu-3"]}
    told: list[dict[str, object]] = [
        {"kind": "unreached", "host": "gpu-1", "reason": "timed out"}, step, {"kind": "failed", "host": "gpu-2"},
    ]  # fmt: skip
    _tell(lab, told, -9)
    program = lab.folder / "bin" / "pyinfra"
    program.write_text(program.read_text().replace("sys.exit(-9)", "os.kill(os.getpid(), 9)"))
    done = apply("--yes")
    assert done.exit_code == 1
    assert "node: connection: unreachable, gpu-1 [node.connection]\n" in done.stdout
    assert "run: “Install it”: error, gpu-2 [run.operation-failed]\n" in done.stdout
    assert "run: cut off: error, 2 nodes: gpu-3, gpu-4 [run.broken-off]\n" in done.stdout
    assert re.search(r"pyinfra .*signal 9 .* \[run.broken-off\]\n", done.stderr)
    assert "SIMULATED pyinfra" in done.stderr


@pytest.mark.parametrize(
    ("end", "status"), [({"left_alone": "somebody else's cordon"}, 2), ({"unverified": "an image is made here"}, 0)]
)
def test_a_node_that_was_left_alone_waits_and_an_image_is_made(lab: Lab, end: dict[str, str], status: int) -> None:
    _end(lab, HostEnd("gpu-1", **end), *(HostEnd(f"gpu-{number}", findings=GOOD) for number in range(2, 5)))  # type: ignore[arg-type]
    done = apply("--yes")
    assert done.exit_code == status
    assert next(iter(end.values())) in done.stdout and "4 ok" not in done.stdout
    assert "[run.broken-off]" not in done.stderr


def test_a_folder_that_cannot_be_written_is_told_without_a_traceback(lab: Lab) -> None:
    (lab.folder / ".apply").write_text("")
    done = apply("--yes")
    assert done.exit_code == 1 and ".apply" in done.stderr and "Traceback" not in done.output


def test_a_lock_that_cannot_be_had_is_told_with_its_file_and_who_needs_it(lab: Lab) -> None:
    (lab.folder / ".rollout").write_text("")
    done = apply("--yes")
    assert done.exit_code == 1 and lab.runs == []
    assert ".rollout/fleet-" in done.stderr and "cannot be opened" in done.stderr
    assert done.stderr.count(".rollout") >= 2
    assert "error:" not in done.stderr and isinstance(done.exception, SystemExit)


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUNODE_SET", "")
    monkeypatch.setenv("GPUNODE_SET_LIMIT", "")


@pytest.mark.usefixtures("unset")
def test_a_setting_of_the_command_line_reaches_the_run_and_how_it_was_called(lab: Lab) -> None:
    program = lab.folder / "bin" / "pyinfra"
    told = "".join(f'print(os.environ["{name}"], file=sys.stderr)\n' for name in ("GPUNODE_SET", "GPUNODE_CALL"))
    program.write_text(program.read_text().replace("limits = [", told + "limits = [", 1))
    assert apply("--yes", "--limit", "gpu-*", "--set", "driver.branch=580").exit_code == 0
    (log,) = lab.folder.glob(".apply/fleet-*/*/run.log")
    assert '{"driver": {"branch": "580"}}' in log.read_text()
    assert '{"inventory": "fleet.py", "limit": ["gpu-*"], "settings": ["driver.branch=580"]}' in log.read_text()


@pytest.mark.usefixtures("unset")
def test_the_log_begins_with_what_was_set_but_for_what_may_be_secret(lab: Lab) -> None:
    words = ["--set", "driver.branch=580", "--set", "proxy.https=http://me:hunter2@proxy:3128"]
    assert apply("--yes", *words).exit_code == 0
    (log,) = lab.folder.glob(".apply/fleet-*/*/run.log")
    assert log.read_text().splitlines()[1] == "# with --set driver.branch=580 --set 'proxy.https=<not shown>'"
    assert "hunter2" not in log.read_text()


def test_without_settings_the_log_has_no_such_line(lab: Lab) -> None:
    assert apply("--yes").exit_code == 0
    (log,) = lab.folder.glob(".apply/fleet-*/*/run.log")
    assert "# with" not in log.read_text()


@pytest.mark.usefixtures("unset")
def test_what_is_left_to_do_names_the_limit_and_the_settings(lab: Lab) -> None:
    _end(lab, HostEnd("gpu-1", failure=Failure("Install it", "no space left")))
    done = apply("--yes", "--limit", "gpu-*", "--set", "driver.branch=580")
    again = "gpunode apply fleet.py --limit 'gpu-*' --set driver.branch=580"
    assert f"then run\n  {again}\n" in done.stdout and f"mend that, and run `{again}`" in done.stdout


@pytest.mark.tier2
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_pyinfra_and_says_how_to_go_on(lab: Lab, number: signal.Signals) -> None:
    lab.hang()
    root = Path(__file__).parents[2]
    path = f"{lab.folder}/bin:{os.environ['PATH']}"
    with subprocess.Popen(
        [root / ".venv/bin/python", "-m", "tests.support.simulated_rollout", "apply", "--yes", "fleet.py",
         "--limit", "gpu-*", "--set", "driver.branch=580"],
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
    assert "`gpunode apply fleet.py --limit 'gpu-*' --set driver.branch=580` goes on" in err and "Traceback" not in err
    assert not alive(pyinfra)
