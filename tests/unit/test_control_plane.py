"""Where helm and kubectl run: here, or on a host of the inventory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api.exceptions import NoHostError

from gpunode.helm.commands import Command
from gpunode.helm.session import Run
from gpunode.settings.kubernetes import KubernetesSettings
from operations import control_plane
from tests.unit.simulated_host import Host

pytestmark = pytest.mark.pure


class _ControlPlane:
    """Stand for a host of the inventory that is asked by another one."""

    def __init__(self, connected: bool = True, answers: bool = True) -> None:
        self.connected = connected
        self.answers = answers
        self.seen: list[tuple[StringCommand, dict[str, Any]]] = []

    def connect(self, **_: Any) -> None:
        self.connected = self.answers

    def run_shell_command(self, command: StringCommand, **arguments: Any) -> tuple[bool, Any]:
        self.seen.append((command, arguments))
        return False, SimpleNamespace(stdout="out", stderr="err")


def _runner(host: Host, run_on: str, there: _ControlPlane | None = None) -> Run:
    def get_host(name: str) -> _ControlPlane:
        if there is None or name != "cp-1":
            raise NoHostError(name)
        return there

    host.state = SimpleNamespace(inventory=SimpleNamespace(get_host=get_host))
    return control_plane.runner(KubernetesSettings.model_validate({"enabled": True, "run_on": run_on}))


def test_a_command_over_ssh_has_its_words_quoted_and_its_values_on_standard_input(host: Host) -> None:
    there = _ControlPlane()
    command = Command(("helm", "a b", "$(id)"), {"https_proxy": "http://p:1"}, 7, ("HELM_DRIVER",), "hunter2")
    output = _runner(host, "cp-1", there)(command)
    ((text, arguments),) = there.seen
    assert text.get_raw_value() == "env --unset=HELM_DRIVER https_proxy=http://p:1 helm 'a b' '$(id)'"
    assert arguments == {"_stdin": ["hunter2"], "_timeout": 7}
    assert (output.status, output.out, output.err) == (1, "out", "err")
    assert isinstance(text.bits[1], QuoteString)


def test_a_control_plane_host_that_limit_leaves_out_is_connected_to(host: Host) -> None:
    there = _ControlPlane(connected=False)
    _runner(host, "cp-1", there)(Command(("kubectl", "version"), {}, 7))
    assert there.connected and len(there.seen) == 1


@pytest.mark.parametrize(
    "there", [None, _ControlPlane(connected=False, answers=False)], ids=["not in the inventory", "unreachable"]
)
def test_a_control_plane_host_that_is_not_connected_is_said_to_be_so(host: Host, there: _ControlPlane | None) -> None:
    output = _runner(host, "cp-1", there)(Command(("kubectl", "version"), {}, 7))
    assert output.status != 0 and output.err == "Error: cp-1 (kubernetes.run_on) is not connected"


def test_a_command_that_hangs_here_is_ended(host: Host) -> None:
    output = _runner(host, "@local")(Command(("sleep", "60"), {}, 0))
    assert (output.status, output.err) == (124, "Error: timed out after 0 s")
