"""--output on every command: which mode prints what, where, and in which colours. SIMULATED nodes, real terminals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from unittest.mock import MagicMock

import click
import pytest
from click.testing import CliRunner

from gpunode import cli
from gpunode.base.findings import NodeReport
from gpunode.cli import live
from gpunode.cli.output import VARIABLE
from gpunode.fleet import drift
from gpunode.fleet.run.progress import OperationProgress, Progress
from tests.reference.output import SCHEMAS, WITHOUT, commands
from tests.support.apply import lab
from tests.support.command_line import gpunode as command_line
from tests.support.messages import unnamed
from tests.support.output_modes import NAMES, Job
from tests.support.simulated_rollout import Lab
from tests.support.terminal import Terminal, gpunode

__all__ = ["lab"]
pytestmark = pytest.mark.pure


def test_every_command_knows_the_modes_or_has_a_reason_why_not() -> None:
    lacking = set()
    for name, command in commands():
        options = {option for parameter in command.params for option in parameter.opts}
        if "--output" not in options:
            lacking.add(name)
            assert "There is no --output" in (command.help or ""), name
        else:
            assert name in SCHEMAS, f"{name} prints JSON: tests/reference/output.py lacks its schema"
            (option,) = [parameter for parameter in command.params if parameter.name == "output"]
            assert isinstance(option.type, click.Choice) and option.envvar == VARIABLE
            assert list(option.type.choices) == ["auto", "tty", "plain", "quiet", "json"]
    assert lacking == set(WITHOUT)
    assert set(SCHEMAS) | set(WITHOUT) == {name for name, _ in commands()}


def test_all_names_every_node_and_without_it_a_line_of_them() -> None:
    found = "tests.support.output_modes.MANY"
    text = " ".join(command_line("drift --output tty fleet.py", found=found).output.split())
    assert re.search(r"node-\w\d and \d\d more nodes: .*drift", text) and NAMES[-1] not in text
    for mode in ("tty --all", "plain"):
        done = command_line(f"drift --output {mode} fleet.py", found=found)
        assert "more nodes" not in done.output and unnamed(done.output, *NAMES) == []


@pytest.mark.parametrize(
    ("options", "lines", "is_drawn"),
    [(("--output", "plain"), 1, 0), (("--json",), 1, 0), (("--output", "quiet"), 0, 0), (("--output", "tty"), 0, 1)],
)
def test_a_run_is_drawn_anew_told_by_lines_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], lines: int, is_drawn: int
) -> None:
    told: list[str] = []
    step = OperationProgress("Install it", 1, 0.0, ("gpu-1",), done=("gpu-1",), ended=1.0)

    def run(*_: object, **__: object) -> tuple[NodeReport, ...]:
        with live.live(told.append) as watch:
            watch(Progress(1, ("gpu-1",), steps=1, step=step))
        return ()

    display = MagicMock()
    display.__enter__.return_value = display
    monkeypatch.setattr("rich.live.Live", lambda **_: display)
    monkeypatch.setattr(drift, "inspect", run)
    CliRunner().invoke(cli.gpunode, ["drift", *options, "fleet.py"], catch_exceptions=False)
    assert told == ["[1/1] Install it: 1 as desired (1 s)"] * lines
    drawn = [str(call.args[0]) for call in display.update.call_args_list]
    assert bool(drawn) == is_drawn and all("Install it" in each for each in drawn[:1])


def test_auto_is_tty_at_a_terminal_and_plain_is_plain_there(tmp_path: Path) -> None:
    (tmp_path / "fleet.py").write_text(
        "nodes = [('gpu-1', {'ssh_hostname': '127.0.0.1', 'ssh_port': 1, 'ssh_connect_retries': 0})]\n"
    )

    def said(*options: str, **environment: str) -> str:
        words = gpunode("drift", "fleet.py", *options)
        return Terminal(tmp_path, *words, environment={"COLUMNS": "50", **environment}).end()[2]

    text = said()
    assert "\x1b[31munreachable\x1b[0m" in text
    assert max(map(len, click.unstyle(text).split("\n")[-6:])) <= 50
    plain = said("--output", "plain")
    assert "\x1b" not in plain and "unreachable" in plain
    assert "\x1b[31m" not in said(NO_COLOR="1")


def test_a_quiet_rollout_tells_the_nodes_that_failed_and_why_it_stopped_and_nothing_else(lab: Lab) -> None:
    words = ["rollout", "--output", "quiet", "fleet.py"]
    lab.fail("gpu-1")
    done = CliRunner().invoke(cli.gpunode, words)
    assert (done.exit_code, done.stderr) == (2, "")
    first, last = done.stdout.splitlines()
    assert first.startswith("gpu-1: failed: ") and last.startswith("stopped: ")
    assert unnamed(last, "gpu-1", "[rollout.stopped]") == []
    lab.fail()
    well = CliRunner().invoke(cli.gpunode, [*words, "--anew"])
    assert (well.exit_code, well.output) == (0, "")


def test_equal_nodes_of_a_wave_are_one_line_that_fits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    options = ["--output", "tty", "--max-unavailable", "3", "fleet.py"]
    done = CliRunner().invoke(cli.gpunode, ["rollout", *options])
    assert "wave 2: gpu-2 to gpu-4\n" in done.stdout and "  gpu-2 to gpu-4: ok\n" in done.stdout
    # A path stands whole.
    assert all(len(line) <= 50 or "/" in line for line in done.stdout.splitlines())


def test_ci_prints_its_run_where_the_mode_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, monkeypatch, 0)
    plain = job.ci("--output", "plain")
    assert "SIMULATED pyinfra on 3\nmore\n" in plain.stdout and "\nup: ok" in plain.stdout
    told = job.ci("--output", "json")
    assert "SIMULATED pyinfra" in told.stderr
    items = json.loads(told.stdout)["hosts"]["up"]["findings"]
    assert [item["component"] for item in items][-2:] == ["run", "driver"]
    quiet = job.ci("--output", "quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")
    (tmp_path / "pyinfra").write_text("#!/bin/sh\necho more >&2\nexit 1\n")
    failed = job.ci("--output", "quiet")
    assert failed.exit_code == 1 and "more\n" in failed.stderr, "the last lines of a run that fails"
