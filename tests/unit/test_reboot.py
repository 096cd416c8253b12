"""Reboots: when, whether that is safe, and what proves a new boot. No node: readings and the clock are made up."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyinfra.api import FunctionCommand
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.context import ctx_host

from gpunode.base.probe_output import END
from gpunode.base.reading import ParseError
from gpunode.deploys import reboot as reboot_deploy
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.system import Boot, OperatingSystem
from gpunode.facts.system import RunningBoot as RunningBootFact
from gpunode.node.reboot import awaited, target
from gpunode.operations import driver, reboot
from gpunode.operations.node_lock import PULL
from gpunode.settings import settings_from
from gpunode.system.pci import PciGpus
from gpunode.system.running_boot import RECORD, RunningBoot, parse_running_boot
from tests.support.messages import unnamed
from tests.support.reboot import NEW, OLD, in_turn
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

PENDING = replace(GOOD, driver=replace(GOOD.driver, loaded_version="570.172.08"))
LINES = ["boot_id=aaaa", "UserspaceTimestampMonotonic=5000000", "SystemState=running"]


@example([("boot_id", "0"), ("UserspaceTimestampMonotonic", "²")])
@given(st.lists(st.tuples(st.sampled_from([line.split("=")[0] for line in LINES] + ["attempt"]), st.text())))
def test_garbage_is_a_boot_or_a_parse_error(pairs: list[tuple[str, str]]) -> None:
    try:
        found = parse_running_boot([f"{key}={value}" for key, value in pairs])
    except ParseError:
        return
    assert found.boot_id and found.init_started >= 0


class Connection:
    """Stand in for pyinfra's SSH connector: it answers with lines, raises, or hangs."""

    def __init__(self, answer: Callable[[], list[str]]) -> None:
        self.answer, self.opened, self.closed = answer, 0, 0
        self.client = SimpleNamespace(close=self.close)

    def close(self) -> None:
        self.closed += 1

    def connect(self) -> None:
        self.opened += 1

    def run_shell_command(self, command: object) -> tuple[bool, Any]:
        return True, SimpleNamespace(stdout_lines=self.answer())


def look(answer: Callable[[], list[str]], seconds: float = 5.0) -> tuple[RunningBoot | str, Connection]:
    connection = Connection(answer)
    return reboot._look(connection, seconds), connection  # type: ignore[arg-type]


def test_a_look_is_a_new_connection_that_stays_open_where_a_boot_answers() -> None:
    found, connection = look(lambda: [*LINES, "container=yes", "", END])
    assert found == OLD
    # The one of before is closed first: it may be dead, or of the old boot.
    assert (connection.opened, connection.closed) == (1, 1)


def _cut() -> list[str]:
    raise EOFError


def _hangs() -> list[str]:
    gevent.sleep(60)
    return []


@pytest.mark.parametrize(
    "answer, said",
    [(_cut, "no reason"), (lambda: LINES, "truncated"), (lambda: ["rubbish", END], "key=value"), (_hangs, "no answer")],
)
def test_whatever_goes_wrong_with_a_look_is_no_answer_and_hangs_up(answer: Callable[[], list[str]], said: str) -> None:
    found, connection = look(answer, seconds=0.2)
    assert isinstance(found, str) and said in found
    assert (connection.opened, connection.closed) == (1, 2)


class RebootingHost(Host):
    """Stand in for a host that can be let go of."""

    def __init__(self) -> None:
        system: dict[type, Any] = {Boot: GOOD.boot, OperatingSystem: GOOD.operating_system}
        super().__init__({DriverFact: PENDING.driver, RunningBootFact: OLD, **system})
        self.connector: Any = object.__new__(SSHConnector)
        self.connector_data: dict[str, Any] = {"sudo_askpass_path__/tmp": "/tmp/pyinfra-sudo-askpass-x"}
        self.connected = True

    def disconnect(self) -> None:
        """Let go, as pyinfra does: what must be removed on the node is removed over this connection."""
        assert not any(self.connector_data.values()), "it would talk to a node that goes down"
        self.connected = False


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[RebootingHost]:
    current = RebootingHost()
    ctx_host.set(current)
    yield current
    ctx_host.reset()


def carried_out(host: RebootingHost, boots_into: str = "", parameters: Mapping[str, str] = {}) -> list[str]:
    """Run the operation as pyinfra does, up to a failure; return its shell commands."""
    found = []
    for command in reboot.rebooted._inner(allowed=True, timeout=30, parameters=parameters):
        if isinstance(command, FunctionCommand):
            if boots_into:
                host.readings[DriverFact] = replace(host.readings[DriverFact], loaded_version=boots_into)
            if not command.function(host.state, host, *command.args):
                break
        else:
            found.append(command.get_raw_value())
    return found


def comes_back(monkeypatch: pytest.MonkeyPatch, *answers: RunningBoot | str) -> None:
    time = in_turn(*answers)
    monkeypatch.setattr(reboot, "_look", lambda connector, seconds: time.look(seconds))
    monkeypatch.setattr(reboot, "_hang_up", lambda connector: None)
    monkeypatch.setattr(reboot, "awaited", partial(awaited, clock=lambda: time.now, sleep=time.sleep))


def test_a_reboot_is_recorded_and_detached_and_the_record_goes_when_it_has_helped(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_back(monkeypatch, OLD, "refused", NEW)
    first, last = carried_out(host, boots_into="580.95.05")
    assert first.index("attempt") < first.index("systemd-run") < first.index("systemctl reboot")
    assert OLD.attempt(target(PENDING.driver)) in first
    assert "rm -f" in last and RECORD in last
    assert host.connected and not host.refusals


def test_a_node_that_does_not_come_back_has_failed_and_is_not_connected(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_back(monkeypatch, OLD, "refused")
    assert len(carried_out(host)) == 1
    assert not host.connected
    (said,) = host.refusals
    assert unnamed(said, "30 s", "refused") == []


@pytest.mark.parametrize("desired", [None, "0"])
def test_a_new_boot_that_loaded_the_same_has_failed_and_keeps_the_record(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch, desired: str | None
) -> None:
    parameters, actual = {}, "570.172.08 (open)"
    if desired is not None:
        host.readings[DriverFact] = replace(GOOD.driver, parameters=(("EnableGpuFirmware", "18"),))
        parameters, actual = {"NVreg_EnableGpuFirmware": desired}, "NVreg_EnableGpuFirmware=18"
    comes_back(monkeypatch, "refused", NEW)
    (command,) = carried_out(host, parameters=parameters)
    assert "systemctl reboot" in command
    assert unnamed(" ".join(host.refusals), actual, RECORD) == []


def test_a_node_that_pulls_reboots_itself_and_does_no_more(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("gevent.sleep", slept.append)
    host.connector = object()
    assert carried_out(host) == [] and "SSH" in host.refusals.pop()
    host.connector = LocalConnector.__new__(LocalConnector)
    # No way to wait for it; this machine, by hand: nobody would go on.
    assert carried_out(host) == [] and "by hand" in host.refusals.pop()
    monkeypatch.setenv(PULL, "1")
    (command,) = carried_out(host)
    assert command.index("attempt") < command.index("systemctl reboot") and slept == [30]
    assert unnamed(host.refusals.pop(), "30 s") == []
    # The next pull, which finds that the boot did not help, asks for no other one.
    host.readings[RunningBootFact] = replace(NEW, tried=target(PENDING.driver))
    assert carried_out(host) == [] and "loaded again" in host.refusals.pop()


@pytest.mark.parametrize("allow", ["nothing", "restart", "reset", "reboot"])
def test_nodes_reboot_where_that_is_allowed_and_no_more_at_once_than_that(
    allow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    asked = {"disruption": {"allow": allow, "max_parallel": 3, "reboot_timeout": 120}}
    monkeypatch.setattr(reboot_deploy, "settings", lambda: settings_from(asked))
    monkeypatch.setattr(reboot_deploy, "drain", lambda: None)
    monkeypatch.setattr(reboot_deploy, "machine", lambda: GOOD)
    monkeypatch.setattr(reboot, "rebooted", lambda **given: calls.append({"operation": "rebooted", **given}))
    monkeypatch.setattr(driver, "module_loaded", lambda **given: calls.append({"operation": "module_loaded", **given}))
    inspect.unwrap(reboot_deploy.reboot)()
    if allow != "reboot":
        # Nobody asks for one: it is not even listed.
        assert calls == []
        asked_once = replace(GOOD, driver=replace(GOOD.driver, booted_for="580.95.05"))
        monkeypatch.setattr(reboot_deploy, "machine", lambda: asked_once)
        inspect.unwrap(reboot_deploy.reboot)()
    # What nothing loads at boot (nvidia_uvm) is loaded after it.
    assert [call["operation"] for call in calls] == ["rebooted", "module_loaded"]
    assert (calls[0]["allowed"], calls[0]["timeout"], calls[0]["_parallel"]) == (allow == "reboot", 120, 3)
    calls.clear()
    monkeypatch.setattr(reboot_deploy, "machine", lambda: replace(GOOD, pci=PciGpus(())))
    inspect.unwrap(reboot_deploy.reboot)()
    assert calls == [], "without a GPU nothing is loaded by a reboot"


def test_the_probe_of_a_boot_is_answered_by_any_machine_of_systemd(
    run_shell: Callable[[str], tuple[int, list[str]]],
) -> None:
    code, lines = run_shell(RunningBootFact().command())
    assert (code, lines[-1]) == (0, END)
    assert any(line.startswith("boot_id=") and len(line) == len("boot_id=") + 36 for line in lines)


@pytest.mark.parametrize("modinfo", ["exit 1", "echo {older}", "echo {newer}"])
def test_the_record_of_a_boot_counts_unless_the_module_on_disk_is_newer(
    modinfo: str, run_shell: Callable[[str], tuple[int, list[str]]], tmp_path: Path
) -> None:
    record, older, newer = (tmp_path / name for name in ("record", "older", "newer"))
    for age, path in ((100, older), (50, record), (0, newer)):
        path.write_text("none boot 5\n")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "modinfo").write_text("#!/bin/sh\n" + modinfo.format(older=older, newer=newer))
    (tmp_path / "modinfo").chmod(0o755)
    command = RunningBootFact().command().replace(RECORD, str(record))
    _, lines = run_shell(f"PATH={tmp_path}:$PATH; {command}")
    assert ("attempt=none boot 5" in lines) is ("newer" not in modinfo)
    record.unlink()
    assert not any(line.startswith("attempt=") for line in run_shell(f"PATH={tmp_path}:$PATH; {command}")[1])
