"""--output on every command: which mode prints what, where, and in which colours. SIMULATED nodes, real terminals."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.cli import live
from gpunode.cli.output import VARIABLE
from gpunode.fleet import drift
from gpunode.fleet.run.progress import Progress, Step
from gpunode.reference.output import SCHEMAS, WITHOUT, commands
from tests.support.output_modes import GOOD, Job
from tests.support.simulated_rollout import Lab

pytestmark = pytest.mark.pure
CHECKOUT = Path(__file__).parents[2]
KNOW = Finding("driver", FindingClass.OK, "held packages", "held", "held", "the kernel is not held", "set hold_kernel")
BAD = Finding(
    "containerd", FindingClass.DRIFT, "default runtime", "runc", "nvidia",
    "somebody edited /etc/containerd/config.toml after gpunode did, and nobody has run gpunode since then", "run it",
)  # fmt: skip


def test_every_command_knows_the_modes_or_has_a_reason_why_not() -> None:
    lacking = set()
    for name, command in commands():
        options = {option for parameter in command.params for option in parameter.opts}
        if "--output" not in options:
            lacking.add(name)
            assert "There is no --output" in (command.help or ""), name
        else:
            assert name in SCHEMAS, f"{name} prints JSON: gpunode/reference/output.py lacks its schema"
            (option,) = [parameter for parameter in command.params if parameter.name == "output"]
            assert isinstance(option.type, click.Choice) and option.envvar == VARIABLE
            assert list(option.type.choices) == ["auto", "tty", "plain", "quiet", "json"]
    assert lacking == set(WITHOUT)
    assert set(SCHEMAS) | set(WITHOUT) == {name for name, _ in commands()}


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    reports = (NodeReport("gpu-1", (GOOD, KNOW)), NodeReport("gpu-2", (GOOD, BAD)), NodeReport("gpu-3", (GOOD,)))
    monkeypatch.setattr(drift, "inspect", lambda *_, **__: reports)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "60")

    def run(*options: str, **environment: str) -> Result:
        # In colour: click's own runner takes colours out of what no terminal gets, as click does.
        return CliRunner().invoke(cli.gpunode, ["drift", *options, "fleet.py"], env=environment)

    return run


def widest(text: str) -> int:
    return max(len(line) for line in click.unstyle(text).splitlines())


def test_where_nobody_looks_nothing_is_coloured_or_folded(printed: Callable[..., Result]) -> None:
    for done in (printed(), printed("--output", "plain"), printed(GPUNODE_OUTPUT="plain")):
        assert done.exit_code == 2 and "\x1b" not in done.stdout
        assert f"  cause    {BAD.cause}\n" in done.stdout


def test_tty_folds_and_colours_whatever_the_stream_is(printed: Callable[..., Result]) -> None:
    for done in (printed("--output", "tty"), printed(GPUNODE_OUTPUT="tty")):
        assert "\x1b[31mdrift\x1b[0m" in done.stdout and widest(done.stdout) <= 60
        assert str(BAD.cause) in " ".join(click.unstyle(done.stdout).split())


@pytest.mark.parametrize(("value", "coloured"), [("1", False), ("0", False), ("", True)])
def test_no_color_takes_the_colours_out_of_every_mode(
    printed: Callable[..., Result], value: str, coloured: bool
) -> None:
    done = printed("--output", "tty", NO_COLOR=value)
    assert ("\x1b" in done.stdout) is coloured and widest(done.stdout) <= 60


def test_quiet_has_what_is_not_ok_and_nothing_else(printed: Callable[..., Result]) -> None:
    done = printed("--output", "quiet")
    assert done.exit_code == 2 and done.stderr == ""
    assert done.stdout.splitlines()[0] == "containerd: default runtime: drift, gpu-2 [containerd.default-runtime]"
    assert done.stdout.splitlines()[-1] == "gpu-2: drift, 1 of 2 as desired"
    assert "gpu-1" not in done.stdout and "caution" not in done.stdout and "nodes:" not in done.stdout


def test_quiet_says_nothing_where_all_is_well(printed: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "inspect", lambda *_, **__: (NodeReport("gpu-1", (GOOD, KNOW)),))
    done = printed("--output", "quiet")
    assert (done.exit_code, done.output) == (0, "")


def test_json_is_one_document_and_its_short_form_is_the_same(printed: Callable[..., Result]) -> None:
    documents = [printed("--output", "json"), printed("--json"), printed(GPUNODE_OUTPUT="json")]
    found = [json.loads(done.stdout) for done in documents]
    assert [each.pop("at") is not None for each in found] == [True] * 3
    assert found[0] == found[1] == found[2] and found[0]["exit_code"] == documents[0].exit_code == 2


def test_the_command_line_counts_before_the_variable(printed: Callable[..., Result]) -> None:
    assert json.loads(printed("--json", GPUNODE_OUTPUT="quiet").stdout)["hosts"]
    assert "\ngpu-1: ok" in printed("--output", "plain", GPUNODE_OUTPUT="json").stdout


@pytest.mark.parametrize(
    ("options", "variable", "says"),
    [
        (("--json", "--output", "quiet"), "", "--json and --output quiet are two ways of printing"),
        (("--output", "quiet", "--json"), "", "--json and --output quiet are two ways of printing"),
        (("--output", "loud"), "", "'loud' is not one of 'auto', 'tty', 'plain', 'quiet', 'json'"),
        ((), "loud", "GPUNODE_OUTPUT"),
    ],
)
def test_a_mode_that_there_is_not_or_two_of_them_are_wrong_usage(
    printed: Callable[..., Result], options: tuple[str, ...], variable: str, says: str
) -> None:
    done = printed(*options, GPUNODE_OUTPUT=variable)
    assert done.exit_code == 2 and says in done.stderr
    assert isinstance(done.exception, SystemExit)
    # Whoever asks for JSON reads JSON.
    assert says in json.loads(done.stdout)["error"] if "--json" in options else done.stdout == ""


def test_all_names_every_node_and_without_it_a_line_of_them(
    printed: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"node-{letter}{number}" for number in range(10) for letter in "abc"]
    monkeypatch.setattr(drift, "inspect", lambda *_, **__: tuple(NodeReport(name, (BAD,)) for name in names))
    text = " ".join(printed("--output", "tty", NO_COLOR="1").stdout.split())
    assert re.search(r"node-\w\d and \d\d more nodes: drift", text) and "node-c9" not in text
    for done in (printed("--output", "tty", "--all", NO_COLOR="1"), printed("--output", "plain")):
        assert "more nodes" not in done.stdout and all(name in done.stdout for name in names)


def watched(*options: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Return what is told of a step, and what is drawn, by a command that was given these options."""
    told: list[str] = []
    from rich import live as rich_live

    drawn: list[str] = []

    class Display:
        """Stand in for rich's, and note what is drawn."""

        def __init__(self, **_: object) -> None: ...
        def __enter__(self) -> Display:
            return self

        def __exit__(self, *_: object) -> None: ...
        def update(self, text: object, refresh: bool) -> None:
            drawn.append(str(text))

    monkeypatch.setattr(rich_live, "Live", Display)
    step = Step("Install it", 1, 0.0, ("gpu-1",), done=("gpu-1",), ended=1.0)

    def run(*_: object, **__: object) -> tuple[NodeReport, ...]:
        with live.live(told.append) as watch:
            watch(Progress(1, ("gpu-1",), steps=1, step=step))
        return ()

    monkeypatch.setattr(drift, "inspect", run)
    CliRunner().invoke(cli.gpunode, ["drift", *options, "fleet.py"], catch_exceptions=False)
    return told, drawn


def test_a_run_is_drawn_anew_told_by_lines_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["[1/1] Install it: 1 as desired (1 s)"]
    assert watched("--output", "plain", monkeypatch=monkeypatch) == (line, [])
    assert watched("--json", monkeypatch=monkeypatch) == (line, [])
    assert watched("--output", "quiet", monkeypatch=monkeypatch) == ([], [])
    told, drawn = watched("--output", "tty", monkeypatch=monkeypatch)
    assert told == [] and "Install it" in drawn[0]


def at_a_terminal(*words: str, **environment: str) -> str:
    """Return what a command writes to a real terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", VARIABLE)}
    controller, terminal = pty.openpty()
    program = "from gpunode.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], cwd=CHECKOUT, stdout=terminal, stderr=terminal,
        stdin=subprocess.DEVNULL, env={**kept, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "50", **environment},
    ) as command:  # fmt: skip
        os.close(terminal)
        said = chunk = b""
        # Not every kernel tells the reader that nobody writes any more.
        while command.poll() is None or select.select([controller], [], [], 0)[0]:
            if select.select([controller], [], [], 0.1)[0] and not (chunk := _read(controller)):
                break
            said += chunk
            chunk = b""
    os.close(controller)
    return said.decode().replace("\r\n", "\n")


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 65536)
    except OSError:
        # Linux says so at the end of a terminal.
        return b""


def test_auto_is_tty_at_a_terminal_and_plain_is_plain_there(tmp_path: Path) -> None:
    (tmp_path / "fleet.py").write_text(
        "nodes = [('gpu-1', {'ssh_hostname': '127.0.0.1', 'ssh_port': 1, 'ssh_connect_retries': 0})]\n"
    )
    words = ("drift", str(tmp_path / "fleet.py"))
    said = at_a_terminal(*words)
    assert "\x1b[31munreachable\x1b[0m" in said
    assert max(map(len, click.unstyle(said).split("\n")[-6:])) <= 50
    plain = at_a_terminal(*words, "--output", "plain")
    assert "\x1b" not in plain and "unreachable" in plain
    assert "\x1b[31m" not in at_a_terminal(*words, NO_COLOR="1")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drift, "inspect", found.inspect)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return found


def test_a_quiet_rollout_tells_the_nodes_that_failed_and_why_it_stopped(lab: Lab) -> None:
    lab.fail("gpu-1")
    done = CliRunner().invoke(cli.gpunode, ["rollout", "--output", "quiet", "fleet.py"])
    assert done.exit_code == 2 and done.stderr == ""
    first, last = done.stdout.splitlines()
    assert (
        first.startswith("gpu-1: failed: the run was cut off")
        and last == "stopped: the canary gpu-1 failed [rollout.stopped]"
    )


def test_a_quiet_rollout_that_goes_well_says_nothing(lab: Lab) -> None:
    done = CliRunner().invoke(cli.gpunode, ["rollout", "--output", "quiet", "fleet.py"])
    assert (done.exit_code, done.output) == (0, "")


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
    assert "SIMULATED pyinfra on 3\nmore\n" in plain.stdout and "up: ok, 1 of 1 as desired" in plain.stdout
    told = job.ci("--output", "json")
    assert "SIMULATED pyinfra" in told.stderr
    items = json.loads(told.stdout)["hosts"]["up"]["findings"]
    assert [item["component"] for item in items][-2:] == ["run", "driver"]
    quiet = job.ci("--output", "quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_a_run_that_fails_is_told_in_quiet_by_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Job(tmp_path, monkeypatch, 1).ci("--output", "quiet")
    assert done.exit_code == 1 and "SIMULATED pyinfra on 3\nmore\n" in done.stderr
