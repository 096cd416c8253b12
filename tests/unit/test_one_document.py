"""With --json a command prints one document, whatever becomes of it. SIMULATED nodes and pyinfra; real terminals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jsonschema
import psutil  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.document import error_schema
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.cli import plan as plans
from gpunode.cli.no_result import documented
from gpunode.cli.output import output_option, say_document
from gpunode.fleet import drift
from gpunode.fleet.run import child
from gpunode.reference.output import SCHEMAS
from tests.support import warm
from tests.support.apply import CAN
from tests.support.ci_judgement import Machines
from tests.support.one_document import CHECKOUT, silent
from tests.support.output_modes import Job
from tests.support.simulated_rollout import Lab

# Fixtures.
__all__ = ["silent"]

pytestmark = pytest.mark.pure
NOBODY = '{"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_connect_retries": 0}'
# What can be opened, and never written.
FULL = "/dev/full"
SECONDS = 120


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.gpunode, list(words))


def error_of(printed: str) -> dict[str, Any]:
    """Return the one document that was printed, which is an error's."""
    found: dict[str, Any] = json.loads(printed)
    jsonschema.validate(found, error_schema())
    return found


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    # --set stands in the environment.
    monkeypatch.setenv("GPUNODE_SET", "")
    monkeypatch.setenv("GPUNODE_SET_LIMIT", "")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drift, "inspect", found.inspect)
    monkeypatch.setattr(plans, "live_plans", lambda *_: {"gpu-1": CAN})
    monkeypatch.setattr(child, "program", lambda: str(tmp_path / "bin" / "pyinfra"))
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
def test_a_report_that_cannot_be_written_is_told_by_the_one_document(
    lab: Lab, words: tuple[str, ...], without: int
) -> None:
    command, *options = words
    said = f"{FULL}: the report was not written: No space left on device"
    good = run(command, *options[:-2], "--json", "fleet.py")
    assert (good.exit_code, json.loads(good.stdout)["errors"]) == (without, [])
    done = run(*words, "--json", "fleet.py")
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMAS[command]())
    assert (done.exit_code, found["exit_code"]) == (1, 1)
    assert found["errors"] == [{"error": said, "code": "report.not-written"}]
    assert done.stderr.endswith(f"{said} [report.not-written]\n")
    assert "hosts" in found or "waves" in found, "what was found stands there all the same"


def test_a_ci_job_whose_report_cannot_be_written_says_so_in_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: Machines = Job(tmp_path, monkeypatch, 0)
    assert job.ci("--output", "json").exit_code == 0
    job.junit = Path(FULL)
    done = job.ci("--output", "json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["exit_code"], len(found["errors"])) == (1, 1, 1)


def test_each_report_is_tried_and_a_person_reads_the_result_before_what_failed(lab: Lab) -> None:
    done = run("drift", "--junit", FULL, "--prometheus", "node.prom", "--html", FULL, "fleet.py")
    assert done.exit_code == 1 and (lab.folder / "node.prom").is_file()
    assert "4 nodes: 4 drift" in done.stdout and done.stderr.count("[report.not-written]") == 2
    assert done.output.index("4 nodes") < done.output.index("[report.not-written]")


# What an inventory prints.

PRINTS = """
import os, subprocess, sys
print("by print")
sys.stdout.write("by the stream\\n")
os.write(1, b"by the descriptor\\n")
subprocess.run(["echo", "by a program"])
"""


@pytest.fixture
def talker(tmp_path: Path) -> Path:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "all.py").write_text('print("by group data")\n')
    path = tmp_path / "fleet.py"
    path.write_text(f"{PRINTS}\nnodes = [('gpu-1', {NOBODY})]\n")
    return path


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("drift", "--json"), 1),
        (("drift", "--json", "--processes", "2"), 1),
        (("plan", "--json"), 1),
        (("check", "--json"), 0),
        (("cluster", "--json"), 2),
        (("facts",), 1),
        (("rollout", "--json", "--dry"), 1),
    ],
)
def test_what_an_inventory_prints_is_no_part_of_the_document(talker: Path, words: tuple[str, ...], status: int) -> None:
    done = warm.run("gpunode", *words, talker, cwd=talker.parent)
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (status, status), done.stderr
    for way in ("print", "the stream", "the descriptor", "a program", "group data"):
        assert f"by {way}" in done.stderr


def test_what_an_inventory_prints_is_no_part_of_the_text(talker: Path) -> None:
    done = warm.run("gpunode", "check", talker)
    assert done.stdout == "settings of 1 host are right: gpu-1\n" and "by a program" in done.stderr


def test_what_an_inventory_leaves_in_a_stream_is_not_printed_later(tmp_path: Path) -> None:
    (tmp_path / "fleet.py").write_text('import sys\nsys.__stdout__.write("no whole line")\nnodes = ["gpu-1"]\n')
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, *gpunode("check", "--json", "fleet.py")], cwd=tmp_path, capture_output=True, text=True,
        env={**environment, "PYTHONPATH": str(CHECKOUT)}, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["ok"] and "no whole line" in done.stderr


def test_an_inventory_that_cannot_be_executed_leaves_standard_output_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "fleet.py").write_text("print('first')\nraise ValueError('second')\n")
    done = warm.run("gpunode", "check", "--json", tmp_path / "fleet.py")
    assert "second" in json.loads(done.stdout)["error"] and done.stderr.startswith("first\n")


# What an error's document is of.


@pytest.mark.parametrize(
    ("words", "limit", "settings"),
    [
        (("drift", "--limit", "gpu-*", "--set", "driver.branch=580"), ["gpu-*"], ["driver.branch=580"]),
        (("plan", "--limit", "gpu-*", "--set", "driver.branch=580"), ["gpu-*"], ["driver.branch=580"]),
        (("apply", "--yes", "--limit", "gpu-*", "--set", "driver.branch=580"), ["gpu-*"], ["driver.branch=580"]),
        (("check", "--limit", "a", "--limit", "b"), ["a", "b"], []),
        (("facts", "--limit", "gpu-*"), ["gpu-*"], []),
        (("rollout", "--set", "proxy.https=http://me:hunter2@proxy:1"), [], ["proxy.https=<not shown>"]),
        (("cluster",), [], []),
        (("ci",), [], []),
    ],
)
def test_an_error_s_document_names_inventory_hosts_and_settings(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], limit: list[str], settings: list[str]
) -> None:
    monkeypatch.chdir(CHECKOUT)
    done = run(*words, "--output", "json", "no/such.py")
    found = error_of(done.stdout)
    assert (found["inventory"], found["limit"], found["set"]) == ("no/such.py", limit, settings)
    assert found["exit_code"] == done.exit_code == 1 and "hunter2" not in done.output


def test_an_error_s_document_names_the_inventory_where_the_settings_of_the_environment_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "fleet.py").write_text("nodes = ['gpu-1']\n")
    monkeypatch.setenv("GPUNODE_SET", "{")
    found = error_of(run("check", "--json", "--limit", "gpu-1", str(tmp_path / "fleet.py")).stdout)
    assert (found["code"], found["limit"], found["set"]) == ("settings.override", ["gpu-1"], [])


def test_an_error_s_document_of_no_inventory_says_so_or_names_its_source_or_lab(tmp_path: Path) -> None:
    words = ("--facts", str(tmp_path / "none.json"), "--settings", str(tmp_path / "none.yaml"))
    planned = run("plan", "--json", *words)
    found = error_of(planned.stdout)
    assert (found["inventory"], found["limit"], found["set"]) == (None, [], [])
    made = run("init", str(tmp_path), "--from-ansible", str(tmp_path / "none.json"), "--output", "json")
    assert error_of(made.stdout)["source"] == str(tmp_path / "none.json")
    assert error_of(run("lab", "list", "--lab", "NO", "--json").stdout)["lab"] == "NO"


def test_what_init_wrote_is_told_with_where_the_machines_are_from(tmp_path: Path) -> None:
    hosts = {"_meta": {"hostvars": {"gpu-1": {}}}, "all": {"hosts": ["gpu-1"]}}
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    words = ("init", str(tmp_path / "mine"), "--from-ansible", str(tmp_path / "hosts.json"), "--output", "json")
    assert json.loads(run(*words).stdout)["source"] == str(tmp_path / "hosts.json")
    assert json.loads(run("init", str(tmp_path / "plain"), "--output", "json").stdout)["source"] is None


def test_check_and_facts_name_the_hosts_that_they_are_of(tmp_path: Path) -> None:
    (tmp_path / "fleet.py").write_text(f"nodes = [('gpu-1', {NOBODY}), ('gpu-2', {NOBODY})]\n")
    words = ("--limit", "gpu-1", str(tmp_path / "fleet.py"))
    assert json.loads(run("check", "--json", *words).stdout)["limit"] == ["gpu-1"]
    assert json.loads(warm.run("gpunode", "facts", *words).stdout)["limit"] == ["gpu-1"]


# Wrong usage.


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("drift", "--json"), "Missing argument 'INVENTORY'.", "gpunode.usage"),
        (("drift", "--no-such", "--json", "fleet.py"), "'--no-such'", "gpunode.usage"),
        (("drift", "--no-such", "--output", "json", "fleet.py"), "'--no-such'", "gpunode.usage"),
        (("drift", "--no-such", "--output=json", "fleet.py"), "'--no-such'", "gpunode.usage"),
        (("drift", "--timeout", "soon", "fleet.py", "--json"), "'soon'", "gpunode.usage"),
        (("plan", "--json"), "give either INVENTORY", "gpunode.usage"),
        (("explain", "--json", "no.such"), "no message with the code 'no.such'", "explain.unknown"),
        (("drift", "--json", "fleet.py", "--set", "driver"), "give COMPONENT.SETTING=VALUE", "settings.override"),
        (("drfit", "--json"), "Did you mean 'drift'?", "gpunode.usage"),
        (("--json", "drift"), "'--json'", "gpunode.usage"),
    ],
)
def test_wrong_usage_is_a_document_where_json_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str, code: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpunode", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    found = error_of(printed.out)
    assert ended.value.code == found["exit_code"] == 64
    assert says in found["error"] and found["code"] == code and f"[{code}]" not in found["error"]
    assert printed.err.count(f"[{code}]") == 1


def test_wrong_usage_names_the_inventory_as_far_as_it_was_read() -> None:
    assert error_of(run("drift", "--timeout", "soon", "fleet.py", "--json").stdout)["inventory"] == "fleet.py"


def test_the_variable_asks_for_json_and_the_command_line_counts_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUNODE_OUTPUT", "json")
    assert error_of(run("drift").stdout)["code"] == "gpunode.usage"
    assert run("drift", "--output", "plain", "--no-such").stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("drift",),
        ("drift", "--no-such", "--", "--json"),
        # They have no --output.
        ("runtime", "render", "--json"),
        ("man", "--json"),
    ],
)
def test_wrong_usage_is_no_document_where_no_json_is_asked_for(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("words", [(), ("lab",), ("--help",), ("drift", "--json", "--help")])
def test_help_is_text_in_every_mode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GPUNODE_OUTPUT", "json")
    monkeypatch.setattr(sys, "argv", ["gpunode", *words])
    # click ends with 0 by returning, where nobody reads what it exits with.
    status = 0
    try:
        cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    printed = capsys.readouterr()
    text = printed.out if words and words[-1] == "--help" else printed.err
    assert text.startswith("Usage: ") and "[gpunode.usage]" not in text and (printed.out + printed.err) == text
    assert status == (0 if text == printed.out else 64)


# Crashes.


def test_a_crash_is_a_document_and_a_message(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise LookupError("nothing there")

    monkeypatch.setattr(drift, "inspect", crash)
    monkeypatch.setattr(sys, "argv", ["gpunode", "drift", "--json", "fleet.py"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    found = error_of(printed.out)
    assert ended.value.code == found["exit_code"] == 1 and found["code"] == "gpunode.crashed"
    assert found["inventory"] == "fleet.py" and "LookupError: nothing there" in found["error"]
    assert printed.err == f"{found['error']} [gpunode.crashed]\n"


def test_a_crash_behind_the_document_prints_no_other() -> None:
    @click.command()
    @output_option("", "", short=True)
    @click.pass_context
    def command(context: click.Context) -> None:
        with documented(context, ()):
            say_document({"exit_code": 0}, indent=None)
            raise LookupError("too late")

    done = CliRunner().invoke(command, ["--json"])
    assert json.loads(done.stdout) == {"exit_code": 0} and isinstance(done.exception, LookupError)


def test_a_crash_is_no_document_where_no_json_is_asked_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "inspect", lambda *_, **__: 1 / 0)
    assert run("drift", "fleet.py").stdout == ""


# Interruptions, at a real terminal.


def _at_its_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A job in the background has ignored the one, and nohup the other.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """Run a Python program at a terminal of its own, with standard output beside it; type there."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._printed = folder / "printed"
        self.shown = b""
        self._terminal, theirs = pty.openpty()
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                [sys.executable, *words], cwd=folder, env=environment, stdin=theirs, stdout=printed, stderr=theirs,
                preexec_fn=_at_its_terminal,
            )  # fmt: skip
        os.close(theirs)

    def type(self, keys: bytes, when: Callable[[bytes], bool]) -> None:
        """Type the keys once what is shown is as awaited."""
        self._await(when)
        os.write(self._terminal, keys)

    def send(self, number: signal.Signals, when: Callable[[bytes], bool]) -> list[psutil.Process]:
        """Send the program, and nobody else, a signal once what is shown is as awaited; return its children."""
        self._await(when)
        children: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(number)
        return children

    def _await(self, when: Callable[[bytes], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not when(self.shown):
            assert time.monotonic() < end and self._read(), f"it did not happen: {self.shown!r}"
        # A signal that comes right before Python begins to read is heeded with the next key.
        time.sleep(1)

    def end(self) -> tuple[int, str, str]:
        """Return exit status, standard output, and what was shown."""
        end = time.monotonic() + SECONDS
        while self._process.poll() is None or select.select([self._terminal], [], [], 0)[0]:
            if not self._read():
                break
            if time.monotonic() > end:
                self._process.kill()
                raise AssertionError(f"it did not end: {self.shown!r}")
        os.close(self._terminal)
        status = self._process.wait(timeout=SECONDS)
        return status, self._printed.read_text(), self.shown.decode().replace("\r\n", "\n")

    def _read(self) -> bool:
        """Read what is shown by now, if anything; return whether more may come."""
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return True
        try:
            more = os.read(self._terminal, 65536)
        except OSError:
            # Linux says so at the end of a terminal.
            return False
        self.shown += more
        return bool(more)


def gpunode(*words: str) -> tuple[str, ...]:
    return ("-c", "from gpunode.cli import main; main()", *words)


# Shown once the nodes are connected to, in the mode in which a display is drawn.
READS = (b"Reading nodes", b"0/2")
CTRL_C, CTRL_D = b"\x03", b"\x04"
INTERRUPTED = "interrupted [gpunode.interrupted]\n"


@pytest.mark.tier2
@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_while_nodes_are_read_is_a_document_and_a_line(tmp_path: Path, silent: str, processes: str) -> None:
    (tmp_path / "fleet.py").write_text(f"nodes = [('gpu-1', {silent}), ('gpu-2', {silent})]\n")
    terminal = Terminal(tmp_path, *gpunode("drift", "--json", "--processes", processes, "fleet.py"))
    terminal.type(CTRL_C, lambda shown: all(each in shown for each in READS))
    status, printed, shown = terminal.end()
    found = error_of(printed)
    assert (status, found["exit_code"], found["code"], found["inventory"]) == (1, 1, "gpunode.interrupted", "fleet.py")
    assert shown.endswith("\n" + INTERRUPTED), shown
    assert not any(word in shown for word in ("KeyboardInterrupt", "Greenlet", "Traceback", "Interrupted")), shown


@pytest.mark.tier2
@pytest.mark.parametrize(("number", "processes"), [(signal.SIGTERM, "1"), (signal.SIGTERM, "2"), (signal.SIGHUP, "1")])
def test_a_job_that_is_ended_from_outside_leaves_a_document_and_no_process(
    tmp_path: Path, silent: str, number: signal.Signals, processes: str
) -> None:
    (tmp_path / "fleet.py").write_text(f"nodes = [('gpu-1', {silent}), ('gpu-2', {silent})]\n")
    terminal = Terminal(tmp_path, *gpunode("drift", "--json", "--processes", processes, "fleet.py"))
    children = terminal.send(number, lambda shown: all(each in shown for each in READS))
    status, printed, shown = terminal.end()
    found = error_of(printed)
    assert (status, found["exit_code"], found["code"]) == (1, 1, "gpunode.interrupted")
    assert shown.endswith(INTERRUPTED), shown
    assert not any(word in shown for word in ("Greenlet", "Traceback", "Interrupted")), shown
    # What reads for it is ended with it.
    assert len(children) == (2 if processes == "2" else 0)
    assert psutil.wait_procs(children, timeout=5)[1] == []


@pytest.mark.tier2
def test_ctrl_c_while_an_inventory_is_executed_is_no_error_of_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "fleet.py").write_text("import time\nprint('looking', flush=True)\ntime.sleep(600)\n")
    terminal = Terminal(tmp_path, *gpunode("check", "fleet.py"))
    terminal.type(CTRL_C, lambda shown: b"looking\r\n" in shown)
    assert terminal.end() == (1, "", f"looking\n^C\n{INTERRUPTED}")


@pytest.mark.tier2
@pytest.mark.parametrize("command", ["apply", "rollout"])
def test_ctrl_c_before_anything_was_done_says_that_nothing_was(tmp_path: Path, command: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "deploys").mkdir()
    (tmp_path / "deploys" / "gpu_node.py").touch()
    (tmp_path / "fleet.py").write_text("import time\nprint('looking', flush=True)\ntime.sleep(600)\n")
    terminal = Terminal(tmp_path, *gpunode(command, "--output", "json", "fleet.py"))
    terminal.type(CTRL_C, lambda shown: b"looking\r\n" in shown)
    status, printed, shown = terminal.end()
    found = error_of(printed)
    assert (status, found["error"], found["code"]) == (1, "interrupted: nothing was done", "gpunode.interrupted")
    assert shown == "looking\n^C\ninterrupted: nothing was done [gpunode.interrupted]\n"


@pytest.mark.tier2
@pytest.mark.parametrize("keys", [CTRL_C, CTRL_D])
@pytest.mark.parametrize("mode", ["json", "plain"])
def test_whoever_does_not_answer_apply_s_question_is_told_that_nothing_was_done(
    tmp_path: Path, keys: bytes, mode: str
) -> None:
    lab = Lab(tmp_path)
    words = ("-m", "tests.support.simulated_rollout", "apply", "--output", mode, "fleet.py")
    terminal = Terminal(tmp_path, *words)
    # The question is a result where no document is one.
    asked = tmp_path / "printed"
    terminal.type(keys, lambda shown: b"[y/N]" in shown or (asked.exists() and "[y/N]" in asked.read_text()))
    status, printed, shown = terminal.end()
    assert status == 1 and lab.runs == []
    assert shown.endswith("\ninterrupted: nothing was done [gpunode.interrupted]\n") and "Traceback" not in shown
    if mode == "json":
        assert error_of(printed)["error"] == "interrupted: nothing was done"


def test_an_ignored_ctrl_c_stays_ignored(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # As of a job in the background.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr(drift, "inspect", reports_in_spite_of_ctrl_c)
        monkeypatch.setattr(sys, "argv", ["gpunode", "drift", "--json", "fleet.py"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 0 and json.loads(capsys.readouterr().out)["counts"]["hosts"] == {"ok": 1}


def reports_in_spite_of_ctrl_c(*_: object, **__: object) -> tuple[NodeReport, ...]:
    os.kill(os.getpid(), signal.SIGINT)
    return (NodeReport("gpu-1", (Finding("driver", FindingClass.OK, "flavour", "open", "open"),)),)
