"""With --json a command prints one document, whatever becomes of it. SIMULATED nodes and pyinfra; real terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import psutil  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.findings import NodeReport
from gpunode.cli.interruption import documented
from gpunode.cli.output import output_option, say_document
from gpunode.fleet import drift
from tests.reference.output import SCHEMAS
from tests.reference.schemas import error_schema
from tests.support import warm
from tests.support.apply import GOOD, lab
from tests.support.command_line import gpunode as command_line
from tests.support.messages import unnamed
from tests.support.one_document import CHECKOUT, silent
from tests.support.output_modes import Job
from tests.support.simulated_rollout import Lab
from tests.support.terminal import Terminal, gpunode

__all__ = ["lab", "silent"]
pytestmark = pytest.mark.pure
NOBODY = '{"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_connect_retries": 0}'
# What can be opened, and never written.
FULL = "/dev/full"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.gpunode, list(words))


def error_of(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed)
    jsonschema.validate(found, error_schema())
    return found


# Reports that cannot be written.


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (("drift", "--junit", FULL), 2),
        (("drift", "--prometheus", FULL), 2),
        (("drift", "--html", FULL), 2),
        (("plan", "--html", FULL), 0),
        (("rollout", "--html", FULL), 0),
        (("rollout", "--dry", "--html", FULL), 0),
    ],
)
@pytest.mark.usefixtures("lab")
def test_a_report_that_cannot_be_written_is_an_error_of_the_one_document(words: tuple[str, ...], without: int) -> None:
    good = run(*words[:-2], "--json", "fleet.py")
    assert (good.exit_code, json.loads(good.stdout)["errors"]) == (without, [])
    done = run(*words, "--json", "fleet.py")
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMAS[words[0]]())
    assert done.exit_code == found["exit_code"] == 1 and ("hosts" in found or "waves" in found)
    ((said, code),) = [each.values() for each in found["errors"]]
    assert code == "report.not-written" and unnamed(said, FULL, os.strerror(28)) == []
    assert done.stderr.endswith(f"{said} [{code}]\n")


def test_a_ci_job_whose_report_cannot_be_written_has_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, monkeypatch, 0)
    for report, status in ((job.junit, 0), (Path(FULL), 1)):
        job.junit = report
        found = json.loads(job.ci("--output", "json").stdout)
        assert (found["exit_code"], len(found["errors"])) == (status, status)


def test_each_report_is_tried_and_a_person_reads_the_result_before_what_failed(lab: Lab) -> None:
    done = run("drift", "--junit", FULL, "--prometheus", "node.prom", "--html", FULL, "fleet.py")
    assert done.exit_code == 1 and (lab.folder / "node.prom").is_file()
    assert "4 nodes: 4 drift" in done.stdout and done.stderr.count("[report.not-written]") == 2
    assert done.output.index("4 nodes") < done.output.index("[report.not-written]")


# What an inventory prints.

PRINTS = f"""
import os, subprocess, sys
print("print")
sys.stdout.write("stream\\n")
os.write(1, b"descriptor\\n")
subprocess.run(["echo", "program"])
nodes = [('gpu-1', {NOBODY})]
"""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("drift", "--json"), 1),
        (("drift", "--json", "--processes", "2"), 1),
        (("plan", "--json"), 1),
        (("check", "--json"), 0),
        (("check",), 0),
        (("cluster", "--json"), 2),
        (("facts",), 1),
        (("rollout", "--json", "--dry"), 1),
    ],
)
def test_what_an_inventory_prints_is_no_part_of_the_result(tmp_path: Path, words: tuple[str, ...], status: int) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "all.py").write_text('print("group")\n')
    (tmp_path / "fleet.py").write_text(PRINTS)
    done = warm.run("gpunode", *words, "fleet.py", cwd=tmp_path)
    assert done.returncode == status, done.stderr
    if words == ("check",):
        assert len(done.stdout.splitlines()) == 1
    else:
        assert json.loads(done.stdout)["exit_code"] == status
    assert {"print", "stream", "descriptor", "program", "group"} <= set(done.stderr.splitlines())


def test_what_an_inventory_leaves_in_a_stream_is_not_printed_later(tmp_path: Path) -> None:
    (tmp_path / "fleet.py").write_text('import sys\nsys.__stdout__.write("no whole line")\nnodes = ["gpu-1"]\n')
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        gpunode("check", "--json", "fleet.py"), cwd=tmp_path, capture_output=True, text=True,
        env={**environment, "PYTHONPATH": str(CHECKOUT)}, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["ok"] and "no whole line" in done.stderr


# Crashes.


def test_a_crash_is_a_message_and_a_document_where_json_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "inspect", lambda *_, **__: 1 / 0)
    done = command_line("drift --json fleet.py")
    assert (done.status, done.document.code, done.document.inventory) == (1, "gpunode.crashed", "fleet.py")
    assert "division by zero" in done.document.error
    assert done.error == f"{done.document.error} [gpunode.crashed]\n"
    plain = command_line("drift fleet.py")
    assert (plain.status, plain.output, plain.error) == (1, "", done.error)


def test_a_crash_behind_the_document_prints_no_other() -> None:
    @click.command()
    @output_option("", "")
    @click.pass_context
    def command(context: click.Context) -> None:
        with documented(context, ()):
            say_document({"exit_code": 0}, indent=None)
            raise LookupError("too late")

    done = CliRunner().invoke(command, ["--json"])
    assert json.loads(done.stdout) == {"exit_code": 0} and isinstance(done.exception, LookupError)


# Interruptions, at a real terminal.

# Shown once the nodes are connected to, in the mode in which a display is drawn.
READS = (b"Reading nodes", b"0/2")
CTRL_C, CTRL_D = b"\x03", b"\x04"
INTERRUPTED = "interrupted [gpunode.interrupted]\n"
NOTHING_DONE = "interrupted: nothing was done"


@pytest.mark.tier2
@pytest.mark.parametrize(
    ("how", "processes"),
    [(CTRL_C, 1), (CTRL_C, 2), (signal.SIGTERM, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 1)],
)
def test_a_reading_that_is_ended_leaves_a_document_a_line_and_no_process(
    tmp_path: Path, silent: str, how: bytes | signal.Signals, processes: int
) -> None:
    (tmp_path / "fleet.py").write_text(f"nodes = [('gpu-1', {silent}), ('gpu-2', {silent})]\n")
    words = gpunode("drift", "--json", "--processes", str(processes), "fleet.py")
    terminal = Terminal(tmp_path, *words, printed=tmp_path / "printed")
    terminal.wait(lambda: all(each in terminal.shown for each in READS))
    children: list[psutil.Process] = psutil.Process(terminal.process.pid).children(recursive=True)
    if isinstance(how, bytes):
        terminal.type(how)
    else:
        terminal.process.send_signal(how)
    status, printed, shown = terminal.end()
    found = error_of(printed)
    assert (status, found["exit_code"], found["code"], found["inventory"]) == (1, 1, "gpunode.interrupted", "fleet.py")
    assert shown.endswith(INTERRUPTED) and (how != CTRL_C or shown.endswith("\n" + INTERRUPTED)), shown
    assert not any(word in shown for word in ("KeyboardInterrupt", "Greenlet", "Traceback", "Interrupted")), shown
    assert len(children) == (2 if processes == 2 else 0)
    assert psutil.wait_procs(children, timeout=5)[1] == []


@pytest.mark.tier2
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check",), "interrupted"),
        (("apply", "--output", "json"), NOTHING_DONE),
        (("rollout", "--output", "json"), NOTHING_DONE),
    ],
)
def test_ctrl_c_while_an_inventory_is_executed_is_no_error_of_the_inventory(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "deploys").mkdir()
    (tmp_path / "deploys" / "gpu_node.py").touch()
    (tmp_path / "fleet.py").write_text("import time\nprint('looking', flush=True)\ntime.sleep(600)\n")
    terminal = Terminal(tmp_path, *gpunode(*words, "fleet.py"), printed=tmp_path / "printed")
    terminal.wait(lambda: b"looking\r\n" in terminal.shown)
    terminal.type(CTRL_C)
    status, printed, shown = terminal.end()
    assert (status, shown) == (1, f"looking\n^C\n{said} [gpunode.interrupted]\n")
    assert error_of(printed)["error"] == said if "json" in words else printed == ""


@pytest.mark.tier2
@pytest.mark.parametrize("keys", [CTRL_C, CTRL_D])
@pytest.mark.parametrize("mode", ["json", "plain"])
def test_whoever_does_not_answer_apply_s_question_is_told_that_nothing_was_done(
    tmp_path: Path, keys: bytes, mode: str
) -> None:
    lab, result = Lab(tmp_path), tmp_path / "printed"
    words = (sys.executable, "-m", "tests.support.simulated_rollout", "apply", "--output", mode, "fleet.py")
    terminal = Terminal(tmp_path, *words, printed=result)
    # The question is a result where no document is one.
    terminal.wait(lambda: b"[y/N]" in terminal.shown + result.read_bytes())
    terminal.type(keys)
    status, printed, shown = terminal.end()
    assert status == 1 and lab.runs == []
    assert shown.endswith(f"\n{NOTHING_DONE} [gpunode.interrupted]\n") and "Traceback" not in shown
    assert mode == "plain" or error_of(printed)["error"] == NOTHING_DONE


def test_an_ignored_ctrl_c_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> tuple[NodeReport, ...]:
        os.kill(os.getpid(), signal.SIGINT)
        return (NodeReport("gpu-1", GOOD),)

    monkeypatch.setattr(drift, "inspect", interrupted)
    # As of a job in the background.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = command_line("drift --json fleet.py")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.status, done.document.counts.hosts["ok"]) == (0, 1)
