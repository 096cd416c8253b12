"""A node that runs commands by other means than most: what such nodes really said, and what becomes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from paramiko import RSAKey, SSHException
from pyinfra.api import State
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.sshuserclient.client import StrictPolicy
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.findings import FindingClass
from gpunode.base.messages import REMEDY, split_remedy
from gpunode.base.reading import Unknown
from gpunode.base.run_context import COMMAND_ERROR
from gpunode.fleet.access import connecting, connection, errors
from gpunode.fleet.drift import contained_report
from gpunode.fleet.nodes import Answer
from gpunode.fleet.reports.run_end import HostEnd, report_of
from gpunode.settings import settings_from
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure


def test_an_explanation_is_parted_again_and_one_far_behind_is_a_command_s_own() -> None:
    said = ["sudo: a password is required"]
    found = errors.explained(said)
    assert found is not None and split_remedy(f"{found.cause}{REMEDY}{found.remedy}") == (found.cause, found.remedy)
    assert errors.explained([*["x"] * 50, *said]) is None


def _of_pyinfra() -> str:
    with pytest.raises(SSHException) as refused:
        StrictPolicy().missing_host_key(SSHClient(), "10.0.0.7", RSAKey.generate(1024))
    return f"SSH error ({refused.value})"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (_of_pyinfra, ["`ssh-keyscan 10.0.0.7`"]),
        (lambda: "Could not resolve hostname ([Errno -2] Name or service not known)", ["ssh_hostname"]),
        (lambda: "Authentication error (no password or key)", []),
    ],
)
def test_who_is_not_reached_is_told_with_what_to_do_by_drift_and_at_the_end_of_a_run(
    said: Callable[[], str], named: list[str]
) -> None:
    text = said()
    cause, remedy = split_remedy(errors.with_remedy(text))
    assert cause == text and (remedy is None) is (not named) and unnamed(remedy, *named) == []
    (of_drift,) = contained_report(Answer("gpu-1", settings_from({}), None, errors.with_remedy(text))).findings
    ended = report_of(HostEnd("gpu-1", unreached=text))
    assert ended is not None
    for item in (of_drift, *ended.findings):
        assert item.cause == text and item.remedy and unnamed(item.remedy, *named) == []


def test_drift_has_the_remedy_beside_the_cause() -> None:
    known = (f"sudo asks{REMEDY}stop it", "sudo asks", "stop it")
    for reason, cause, remedy in (known, ("bad ELF", "bad ELF", None)):
        (finding,) = contained_report(Answer("gpu-1", settings_from({}), Unknown(), reason)).findings
        assert (finding.finding_class, finding.cause) == (FindingClass.ERROR, cause)
        assert finding.remedy and remedy in (None, finding.remedy)


def output(stdout: str = "", stderr: str = "") -> CommandOutput:
    return CommandOutput(
        [*(OutputLine("stdout", line) for line in stdout.splitlines()),
         *(OutputLine("stderr", line) for line in stderr.splitlines())]
    )  # fmt: skip


def test_a_failure_to_run_anything_ends_with_its_explanation_and_a_success_does_not() -> None:
    words = "sudo: a password is required"
    answers = [(False, output(stderr=words)), (True, output(words)), (False, output("one\n\ntwo"))]
    run = partial(connection.explained, lambda self: answers.pop(0))
    connector = SimpleNamespace(host=SimpleNamespace(name="gpu-1"), state=State())
    good, said = run(connector)
    assert not good and said.stderr_lines[0] == words and REMEDY in said.stderr_lines[1]
    # It is the reason of the reading that failed, until a command succeeds.
    assert COMMAND_ERROR.of(connector.host) == said.stderr_lines[1]
    assert run(connector)[1].output_lines == [words] and COMMAND_ERROR.of(connector.host) == ""
    assert not run(connector)[0] and COMMAND_ERROR.of(connector.host) == "one; two"


def test_a_command_or_file_fails_where_its_connection_broke_and_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cut(_: object) -> bool:
        raise EOFError

    connector = SimpleNamespace(host=SimpleNamespace(name="gpu-1"), state=State())
    with pytest.raises(EOFError):
        connection.carried(cut, connector)
    monkeypatch.setattr(connecting, "is_broken", lambda *_: True)
    assert connection.carried(cut, connector) is False
    good, said = connection.explained(cut, connector)
    finding = errors.unreached(said.stderr)
    assert not good and (finding.code, finding.finding_class) == (errors.BROKEN.code, FindingClass.UNREACHABLE)


def test_a_connection_whose_shell_refused_a_command_gets_it_again_and_all_others_in_the_neutral_form() -> None:
    sent: list[str] = []

    class Client(SSHClient):
        def __init__(self) -> None: ...

    def exec_command(self: SSHClient, command: str) -> CommandOutput:
        sent.append(command)
        return output(connection.MARK) if command.startswith(connection.GUARD) else output("done")

    execute = partial(connection.exec_command, exec_command)
    run = partial(connection.any_login_shell, lambda self, command: (True, execute(self.client, command)))
    odd, other = SimpleNamespace(client=Client()), SimpleNamespace(client=Client())
    assert run(odd, "id")[1].stdout_lines == ["done"]
    assert run(odd, "ls")[1].stdout_lines == ["done"]
    assert sent == [connection.GUARD + "id", connection.neutral("id"), connection.neutral("ls")]
    run(other, "id")
    # Another connection is asked anew.
    assert sent[3] == connection.GUARD + "id"


def test_nobody_is_asked_for_a_password_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def with_sudo_retry(_: object, __: object, run: Callable[[], object]) -> object:
        asked.append("asked")
        return run()

    execute = partial(connection.asks_on_a_terminal, with_sudo_retry)
    monkeypatch.setattr(connection, "_has_terminal", lambda: False)
    assert execute(None, {}, lambda: (1, "no")) == (1, "no")
    assert not asked
    monkeypatch.setattr(connection, "_has_terminal", lambda: True)
    execute(None, {}, lambda: (0, ""))
    assert asked == ["asked"]


def test_of_several_processes_none_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_asks", True)
    # This process's own, whatever runs the test.
    monkeypatch.setattr("gpunode.fleet.access.connection.os.open", lambda *_: os.dup(2))
    assert connection._has_terminal()
    connection.ask_nobody()
    assert not connection._has_terminal()


def test_a_terminal_is_looked_for_as_getpass_does() -> None:
    first = "import sys; import gpunode.base.fast_import; from gpunode.fleet.access import connection; "
    command = [sys.executable, "-c", f"{first}sys.exit(connection._has_terminal())"]
    subprocess.run(command, stdin=subprocess.DEVNULL, start_new_session=True, check=True)


def test_the_program_that_says_a_password_stands_where_programs_may_be_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    command = connection.Askpass().format(str(tmp_path / "absent"), "PASSWORD")
    told = {"PATH": os.environ["PATH"], "HOME": str(home)}
    made = subprocess.run(["sh", "-c", command], env=told, capture_output=True, text=True, check=True)
    program = Path(made.stdout.strip())
    assert program.parent == home
    assert "it's" not in program.read_text()
    said = subprocess.run([program], env={**told, "PASSWORD": "it's $0"}, capture_output=True, text=True, check=True)
    assert said.stdout == "it's $0\n"
    assert len(list(home.iterdir())) == 1
