"""Where helm and kubectl run: here, or on a host of the inventory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent  # type: ignore[import-untyped]
import pytest
from paramiko import SSHException
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api.exceptions import ConnectError, NoHostError

from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Run
from gpunode.operations import control_plane
from gpunode.settings.kubernetes import KubernetesSettings
from tests.support.messages import unnamed
from tests.support.simulated_host import Host

pytestmark = pytest.mark.pure


class _ControlPlane:
    """Stand for a host of the inventory that is asked by another one."""

    def __init__(self, connected: bool = True, answers: bool = True, **data: Any) -> None:
        self.connected = connected
        self.answers = answers
        self.data = data
        self.breaks: Exception | None = None
        self.seen: list[tuple[StringCommand, dict[str, Any]]] = []

    def connect(self, *, raise_exceptions: bool = False, **_: Any) -> None:
        self.connected = self.answers
        if raise_exceptions and not self.answers:
            raise ConnectError("Could not connect (refused)")

    def run_shell_command(self, command: StringCommand, **arguments: Any) -> tuple[bool, Any]:
        self.seen.append((command, arguments))
        if self.breaks is not None:
            raise self.breaks
        return False, SimpleNamespace(stdout="out", stderr="err")


def _runner(host: Host, run_on: str, there: _ControlPlane | None = None) -> Run:
    def get_host(name: str) -> _ControlPlane:
        if there is None or name != "cp-1":
            raise NoHostError(name)
        return there

    host.state = SimpleNamespace(inventory=SimpleNamespace(get_host=get_host))
    return control_plane.runner(KubernetesSettings.model_validate({"enabled": True, "run_on": run_on}))


def test_a_command_over_ssh_has_its_words_quoted_and_its_values_on_standard_input(host: Host) -> None:
    there = _ControlPlane(_sudo=True, _sudo_user="kube", ssh_user="ops")
    command = Command(("helm", "a b", "$(id)"), {"https_proxy": "http://p:1"}, 7, ("HELM_DRIVER",), "hunter2")
    output = _runner(host, "cp-1", there)(command)
    ((text, arguments),) = there.seen
    assert text.get_raw_value() == "env --unset=HELM_DRIVER https_proxy=http://p:1 helm 'a b' '$(id)'"
    # As the user that the host's own operations run as.
    assert arguments == {"_stdin": ["hunter2"], "_timeout": 7, "_sudo": True, "_sudo_user": "kube"}
    assert (output.status, output.out, output.err) == (1, "out", "err")
    assert isinstance(text.bits[1], QuoteString)


@pytest.mark.parametrize("error", [SSHException("gone"), TimeoutError(), EOFError(), ConnectionResetError("reset")])
def test_a_connection_that_breaks_is_an_answer_and_ends_no_run(host: Host, error: Exception) -> None:
    there = _ControlPlane()
    there.breaks = error
    output = _runner(host, "cp-1", there)(Command(("kubectl", "version"), {}, 7))
    assert output.status == 255 and unnamed(output.err, "cp-1", "kubernetes.run_on") == []
    assert output.err.startswith("Error: ") and output.err.endswith(str(error))
    assert type(error).__name__ not in output.err


def test_no_more_is_asked_at_once_than_one_connection_takes(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    there, at_once = _ControlPlane(), []

    def run_shell_command(_: StringCommand, **arguments: Any) -> tuple[bool, Any]:
        running.append(arguments["_timeout"])
        at_once.append(len(running))
        gevent.sleep(0.01)
        running.remove(arguments["_timeout"])
        return True, SimpleNamespace(stdout="", stderr="")

    running: list[int] = []
    monkeypatch.setattr(there, "run_shell_command", run_shell_command)
    run = _runner(host, "cp-1", there)
    commands = [Command(("kubectl",), {}, seconds) for seconds in [600] * 20 + [30] * 20]
    gevent.joinall([gevent.spawn(run, command) for command in commands], raise_error=True)
    assert len(at_once) == 40 and max(at_once) == 9


def test_a_control_plane_host_that_limit_leaves_out_is_connected_to(host: Host) -> None:
    there = _ControlPlane(connected=False)
    _runner(host, "cp-1", there)(Command(("kubectl", "version"), {}, 7))
    assert there.connected and len(there.seen) == 1


@pytest.mark.parametrize(
    ("there", "why"),
    [(None, ""), (_ControlPlane(connected=False, answers=False), ": Could not connect (refused)")],
    ids=["not in the inventory", "unreachable"],
)
def test_a_control_plane_host_that_is_not_connected(host: Host, there: _ControlPlane | None, why: str) -> None:
    output = _runner(host, "cp-1", there)(Command(("kubectl", "version"), {}, 7))
    assert output.status != 0 and unnamed(output.err, "cp-1", "kubernetes.run_on") == [] and output.err.endswith(why)


def test_a_command_that_hangs_here_is_ended(host: Host) -> None:
    output = _runner(host, "@local")(Command(("sleep", "60"), {}, 0))
    assert output.status == 124 and output.err.startswith("Error: ")
