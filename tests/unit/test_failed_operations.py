"""Whatever fails an operation, its host's finding has code, cause and remedy: pyinfra itself runs, on @fake and @local.

One run has all hosts, each of which fails in its own way.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.errors import in_words
from gpunode.base.findings import Finding, FindingClass
from gpunode.fleet.reports.run_end import report_of, run_ends
from gpunode.fleet.rollout import conduct
from gpunode.fleet.run import events
from gpunode.fleet.run.progress import Progress, after
from tests.support import warm

pytestmark = pytest.mark.pure

DEPLOY = """
import gevent
from paramiko import SSHException
from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.context import ctx_host
from pyinfra.operations import files, python, server

from gpunode.base.findings import Finding, FindingClass
from gpunode.base.run_context import FAILURE_REASONS
from gpunode.fleet import run_end
from gpunode.operations.failure import explained_command
from gpunode.operations.failure import OperationRefused, fail, node_operation

run_end.takes_part(ctx_host.get())
HOW = host.name.removeprefix("@fake/")


@node_operation
def yields(*commands):
    yield from commands


@node_operation
def refused():
    raise OperationRefused("the node says nothing. Remedy: look at it")
    yield


def breaks(error):
    def run_shell_command(*args, **kwargs):
        raise error
    if host.state.is_executing:
        host.connector.run_shell_command = run_shell_command


@operation()
def over_a_lost_connection(error):
    breaks(error)
    yield StringCommand("apt-get update")


def calls_a_shell():
    server.shell(name="Inner", commands=["inner"])


def ignores_a_shell():
    server.shell(name="Inner", commands=["inner"], _ignore_errors=True)


def raises():
    raise LookupError("no such thing")


def explains(state, host):
    own = Finding("node", FindingClass.UNREACHABLE, "connection", cause="the cable is cut", remedy="mend the cable",
                  code="node.connection")
    FAILURE_REASONS.of(host).append(own)
    return False


def logs(state, host):
    from pyinfra import logger
    host.log_styled("no room on the device", fg="red", log_func=logger.error)
    return False


def cleans_up():
    try:
        server.shell(name="Inner", commands=["inner"])
    finally:
        server.shell(name="Clean", commands=["true"])


OPERATIONS = {
    "python": lambda: yields(fail("no such version [run.broken-off]"), name="Step"),
    "refused": lambda: refused(name="Step"),
    "shell": lambda: server.shell(name="Step", commands=["shell"]),
    "stdout": lambda: server.shell(name="Step", commands=["stdout"]),
    "said": lambda: yields(StringCommand("said"), name="Step"),
    "remedy": lambda: yields(StringCommand("remedy"), name="Step"),
    "apt": lambda: yields(explained_command(StringCommand("apt")), name="Step"),
    "mute": lambda: server.shell(name="Step", commands=["mute"]),
    "slow": lambda: python.call(name="Step", function=lambda: gevent.sleep(9), _timeout=1),
    "closed": lambda: over_a_lost_connection(EOFError(), name="Step"),
    "broken": lambda: over_a_lost_connection(SSHException("SSH session not active"), name="Step"),
    "nested": lambda: python.call(name="Step", function=calls_a_shell),
    "cleaned": lambda: python.call(name="Step", function=cleans_up),
    "raises": lambda: python.call(name="Step", function=raises),
    "explains": lambda: yields(FunctionCommand(explains, [], {}), name="Step"),
    "logs": lambda: yields(FunctionCommand(logs, [], {}), name="Step"),
    "retried": lambda: server.shell(name="Step", commands=["retried"], _retries=1, _retry_delay=0),
    "long": lambda: server.shell(name="Step", commands=["long"]),
    "ignored": lambda: server.shell(name="Ask", commands=["shell"], _ignore_errors=True),
    "inside": lambda: python.call(name="Ask", function=ignores_a_shell),
    "@local": lambda: server.shell(name="Step", commands=["echo begun; sleep 9"], _timeout=1),
}
OPERATIONS[HOW]()
if HOW in ("ignored", "inside"):
    yields(FunctionCommand(lambda state, host: False, [], {}), name="Step")
"""
FAILS: dict[str, dict[str, Any]] = {
    "shell": {"stdout": "Reading lists", "stderr": ["W: a mirror is old", "", "E: no room left"]},
    "stdout": {"stdout": ["Reading lists", "\x1b[31mno room\x1b[0m at http://me:secret@mirror/x", "10%\r100%"]},
    "said": {
        "stdout": ["gpunode: cause: the GPU is in use by python3 (12)", "gpunode: remedy: stop it"],
        "stderr": ["noise", "gpunode: putting back what was there before", "gpunode: ended: the transaction x"],
    },
    "remedy": {"stderr": ["the key is another one", "gpunode: remedy: pin the new key"]},
    "apt": {"stderr": "dpkg: error: unable to write /var/x: No space left on device"},
    "mute": {},
    "inner": {"stderr": "the inner reason"},
    "retried": {"stderr": "the mirror is down"},
    "long": {"stderr": ["the first line", *(f"{at:0>99}" for at in range(99)), "the last line"]},
}
# Host -> its finding: texts that the cause holds or lacks, and the remedy names.
FINDINGS: dict[str, dict[str, Any]] = {
    "python": {"holds": ("no such version",), "lacks": ("run.broken-off",), "code": "run.broken-off"},
    "refused": {"holds": ("the node says nothing",), "lacks": ("look at it",), "remedy": "look at it"},
    "shell": {"holds": ("E: no room left", "W: a mirror is old"), "lacks": ("Reading lists",)},
    "stdout": {
        "holds": ("Reading lists", "no room at http://***@mirror/x", "100%"),
        "lacks": ("secret", "10%\r", "[31m"),
    },
    "said": {
        "holds": ("the GPU is in use by python3 (12)",),
        "lacks": ("gpunode:", "ended"),
        "remedy": "stop it",
    },
    "remedy": {"holds": ("the key is another one",), "lacks": ("pin the new key",), "remedy": "pin the new key"},
    "apt": {"holds": ("disk",), "lacks": ("dpkg: error",), "remedy": "room"},
    "mute": {},
    "slow": {"holds": ("1 s",)},
    "closed": {"holds": ("connection broke",), "lacks": ("EOFError",)},
    "broken": {"holds": ("SSH session not active",)},
    "nested": {"holds": ("the inner reason",)},
    "cleaned": {"holds": ("the inner reason",)},
    "raises": {"holds": ("no such thing",)},
    "explains": {"holds": ("the cable is cut",), "remedy": "mend the cable", "code": "node.connection"},
    "logs": {"holds": ("no room on the device",)},
    "retried": {"holds": ("the mirror is down",)},
    "long": {"holds": ("the first line", "the last line", "left out")},
    "ignored": {"lacks": ("no room",)},
    "inside": {"lacks": ("the inner reason",)},
    "@local": {"holds": ("1 s",)},
}  # fmt: skip


def made(folder: Path, deploy: str, hosts: object) -> tuple[subprocess.CompletedProcess[str], Progress]:
    """Run a deploy on hosts; return the run, and how far it was at its end."""
    (folder / "deploy.py").write_text(deploy)
    (folder / "inventory.py").write_text(f"hosts = {hosts!r}\n")
    files = [warm.CHECKOUT / "config.py", folder / "inventory.py", folder / "deploy.py"]
    environment = {**os.environ, "NO_COLOR": "1", events.EVENTS: str(folder / "events")}
    done = warm.run("pyinfra", "-y", "--json", "--config", *files, env=environment)
    with (folder / "events").open("rb") as file:
        return done, reduce(after, events.read(file)[0], Progress(2))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Progress]:
    failing = {command: {**output, "success": False} for command, output in FAILS.items()}
    data = {"fake_responses": failing, "fake_delay": 0, "fake_delay_jitter": 0}
    hosts = [(name if name == "@local" else f"@fake/{name}", data) for name in FINDINGS]
    return made(tmp_path_factory.mktemp("failed"), DEPLOY, hosts)


@pytest.fixture(scope="module")
def found(run: tuple[subprocess.CompletedProcess[str], Progress]) -> Mapping[str, Finding]:
    done, progress = run
    names = [name if name == "@local" else f"@fake/{name}" for name in FINDINGS]
    reports = {end.name: report_of(end) for end in run_ends(names, progress, done.returncode, "run.log")}
    assert all(report is not None and len(report.findings) == 1 for report in reports.values()), done.stderr
    return {name.removeprefix("@fake/"): report.findings[0] for name, report in reports.items() if report}


@pytest.mark.parametrize("how", FINDINGS)
def test_each_failing_operation_has_code_cause_remedy_and_log(how: str, found: Mapping[str, Finding]) -> None:
    finding, expected = found[how], FINDINGS[how]
    cause, remedy = finding.cause or "", finding.remedy or ""
    assert cause and remedy and "Step" in finding.what and finding.log == "run.log"
    assert finding.code == expected.get("code", "run.operation-failed")
    assert finding.finding_class is (FindingClass.UNREACHABLE if how == "explains" else FindingClass.ERROR)
    assert [text for text in expected.get("holds", ()) if text not in cause] == [], cause
    assert [text for text in expected.get("lacks", ()) if text in cause] == [], cause
    assert expected.get("remedy", "the same command") in remedy
    # The last attempt alone counts.
    assert cause.count("the mirror is down") == (how == "retried")


def test_a_rollout_names_the_operation_that_failed(run: tuple[subprocess.CompletedProcess[str], Progress]) -> None:
    done, progress = run
    result = conduct.result(
        ("@fake/shell", "@fake/nested"), done.returncode, done.stdout.encode(), "wave-1.log", progress
    )
    assert {name: ("Step" in item.what, item.code, item.log) for name, item in result.items()} == {
        name: (True, "run.operation-failed", "wave-1.log") for name in ("@fake/shell", "@fake/nested")
    }


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("import gpunode\n\n\nraise LookupError('broken on purpose')\n", ("deploy.py", "line 4", "broken on purpose")),
        ("import gpunode\nfrom pyinfra.operations import server\nserver.shell(comands=['true'])\n",
         ("deploy.py", "line 3", "commands")),
        ("import gpunode\nx = (\n", ("deploy.py", "line 2")),
        # pyinfra asks for the file when it carries the operation out, which no line of the deploy file is part of.
        ("from gpunode.fleet import run_end\nfrom pyinfra import host\nfrom pyinfra.operations import files\n"
         "run_end.takes_part(host)\nfiles.put(name='Mine', src='nowhere', dest='/x')\n",
         ("Mine", "nowhere")),
    ],
)  # fmt: skip
def test_an_error_of_a_deploy_file_is_reported_on_every_host(tmp_path: Path, body: str, cause: tuple[str, ...]) -> None:
    done, progress = made(tmp_path, body, [("@fake/a", {"fake_delay": 0}), ("@fake/b", {"fake_delay": 0})])
    reports = [report_of(end) for end in run_ends(("@fake/a", "@fake/b"), progress, done.returncode)]
    findings = [item for report in reports if report for item in report.findings]
    assert [item.code for item in findings] == ["run.broken-off"] * 2, done.stderr
    assert all(str(item.cause).count(text) == 1 for item in findings for text in cause), findings
    assert json.dumps([item.to_json() for item in findings]) and done.returncode == 1


@pytest.mark.parametrize(("module", "is_ours"), [("gpunode.x", True), (None, False)])
def test_an_error_of_a_user_s_file_is_no_defect_of_gpunode(module: str | None, is_ours: bool) -> None:
    names: dict[str, Any] = {"__name__": module}
    exec(compile("def fails():\n    return {}['x']\n", "own.py", "exec"), names)
    with pytest.raises(KeyError) as raised:
        names["fails"]()
    words = in_words(raised.value)
    assert ("gpunode" in words and "own.py, line 2" in words) is is_ours and ("KeyError" in words) is not is_ours
