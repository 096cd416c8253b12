"""Reboots: when, whether that is safe, and what proves a new boot. No node: readings and the clock are made up."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
from gpunode.base.reading import ParseError, Unknown
from gpunode.components.driver import DriverState
from gpunode.deploys import reboot as reboot_deploy
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.node import Node as NodeFact
from gpunode.facts.reboot import RunningBoot as RunningBootFact
from gpunode.node import Node
from gpunode.node.reboot import (
    INTERVAL,
    LOOK,
    RECORD,
    SETTLING,
    NotBack,
    RunningBoot,
    awaited,
    parse_running_boot,
    target,
)
from gpunode.operations import driver, reboot
from gpunode.operations.agent_turn import PULL
from gpunode.settings import settings_from
from gpunode.system.pci import PciGpus
from tests.support.messages import unnamed
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

OLD = RunningBoot("aaaa", 5_000_000, container=True)
NEW = RunningBoot("aaaa", 9_000_000, container=True)
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


@dataclass
class Time:
    """Stand in for the clock: it moves by what is slept, and by what each look takes."""

    answers: Iterator[RunningBoot | str]
    look_takes: float = 0.0
    now: float = 1000.0
    asked_for: float = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def look(self, seconds: float) -> RunningBoot | str:
        self.asked_for = max(self.asked_for, seconds)
        self.now += min(self.look_takes, seconds)
        return next(self.answers)


def in_turn(*answers: RunningBoot | str) -> Iterator[RunningBoot | str]:
    """Yield the answers one by one, and the last one for ever."""
    yield from answers
    while True:
        yield answers[-1]


def wait(timeout: float, *answers: RunningBoot | str, look_takes: float = 0.0) -> tuple[RunningBoot, Time]:
    time = Time(in_turn(*answers), look_takes)
    return awaited(OLD, time.look, timeout, time.clock, time.sleep), time


def test_the_boot_of_before_is_waited_out_and_the_new_one_is_taken_when_it_has_started() -> None:
    starting = replace(NEW, system="starting")
    found, time = wait(60, OLD, replace(OLD, system="stopping"), "refused", "refused", starting, NEW)
    assert found == NEW
    assert time.now - 1000 == 5 * INTERVAL


def test_a_new_boot_that_never_has_all_its_services_is_good_after_a_while() -> None:
    starting = replace(NEW, system="starting")
    found, time = wait(900, "refused", starting)
    assert found == starting
    assert SETTLING <= time.now - 1000 <= SETTLING + 5
    # It is good, too, where the time is up before that.
    assert wait(30, "refused", starting)[0] == starting


@pytest.mark.parametrize(
    "answers, said",
    [
        ((OLD,), "never"),
        ((OLD, "refused", OLD), "before"),
        ((OLD, "refused", "no route"), "again within 30 s; last: no route"),
        (("refused", replace(NEW, system="starting"), "refused"), "no more"),
    ],
)
def test_a_node_that_does_not_come_back_is_given_up_in_time_with_what_was_seen(
    answers: tuple[RunningBoot | str, ...], said: str
) -> None:
    with pytest.raises(NotBack, match=said):
        wait(30, *answers)


@pytest.mark.parametrize("look_takes", [0.0, 7.0, 1000.0])
def test_the_wait_is_bounded_however_long_a_look_takes(look_takes: float) -> None:
    time = Time(in_turn("refused"), look_takes)
    with pytest.raises(NotBack):
        awaited(OLD, time.look, 90, time.clock, time.sleep)
    assert time.now - 1000 <= 90 + INTERVAL
    assert time.asked_for <= LOOK


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
    [(_cut, "EOFError"), (lambda: LINES, "truncated"), (lambda: ["rubbish", END], "key=value"), (_hangs, "no answer")],
)
def test_whatever_goes_wrong_with_a_look_is_no_answer_and_hangs_up(answer: Callable[[], list[str]], said: str) -> None:
    found, connection = look(answer, seconds=0.2)
    assert isinstance(found, str) and said in found
    assert (connection.opened, connection.closed) == (1, 2)


class RebootingHost(Host):
    """Stand in for a host that can be let go of."""

    def __init__(self, node: Node = PENDING, boot: RunningBoot | Unknown = OLD) -> None:
        super().__init__({DriverFact: node.driver, NodeFact: node, RunningBootFact: boot})
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


def carried_out(
    host: RebootingHost,
    allowed: bool = True,
    boots_into: str | None = None,
    parameters: dict[str, str] | None = None,
) -> list[str]:
    """Run the operation as pyinfra does, up to a failure; return its shell commands."""
    found = []
    for command in reboot.rebooted._inner(allowed=allowed, timeout=30, parameters=parameters or {}):
        if isinstance(command, FunctionCommand):
            if boots_into is not None:
                host.readings[DriverFact] = replace(host.readings[DriverFact], loaded_version=boots_into)
            if not command.function(host.state, host, *command.args):
                break
        else:
            found.append(command.get_raw_value())
    return found


def comes_back(monkeypatch: pytest.MonkeyPatch, *answers: RunningBoot | str) -> None:
    time = Time(in_turn(*answers))
    monkeypatch.setattr(reboot, "_look", lambda connector, seconds: time.look(seconds))
    monkeypatch.setattr(reboot, "_hang_up", lambda connector: None)
    # The operation's own clock.
    monkeypatch.setattr(reboot, "awaited", lambda *given: awaited(given[0], given[1], given[2], time.clock, time.sleep))


HELPED = replace(GOOD.driver, booted_for=target(GOOD.driver))


@pytest.mark.parametrize(
    "state, forgets",
    [
        (GOOD.driver, False),
        (replace(GOOD.driver, loaded_version=None), False),
        (HELPED, True),
        # For something else, or where the driver is not loaded: nobody knows that it helped.
        (replace(HELPED, booted_for="mig/0123"), False),
        (replace(HELPED, loaded_version=None), False),
    ],
)
def test_a_node_that_needs_no_reboot_gets_none_and_a_record_that_helped_goes(
    host: RebootingHost, state: DriverState, forgets: bool
) -> None:
    host.readings[DriverFact] = state
    found = carried_out(host)
    assert ["rm -f" in command and RECORD in command for command in found] == [True] * forgets
    assert host.refusals == []


def test_a_reboot_that_is_not_allowed_is_pending_and_the_node_goes_on(host: RebootingHost) -> None:
    assert (carried_out(host, allowed=False), host.refusals) == ([], [])
    assert unnamed(host.noops[0], "reboot pending", "570.172.08 (open)", "580.95.05 (open)") == []


def test_other_parameters_of_the_module_are_a_reboot_too_and_not_again_where_it_did_not_help(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.readings[DriverFact] = replace(GOOD.driver, parameters=(("EnableGpuFirmware", "18"),))
    assert carried_out(host, parameters={"NVreg_EnableGpuFirmware": "18"}) == []
    asked = {"NVreg_EnableGpuFirmware": "0"}
    assert carried_out(host, allowed=False, parameters=asked) == []
    assert unnamed(host.noops[-1], "NVreg_EnableGpuFirmware=18") == []
    comes_back(monkeypatch, OLD, "refused", NEW)
    (command,) = carried_out(host, parameters=asked)
    assert "systemctl reboot" in command
    assert unnamed(" ".join(host.refusals), "NVreg_EnableGpuFirmware=18") == []


def test_a_reboot_is_recorded_and_detached_and_the_record_goes_when_it_has_helped(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_back(monkeypatch, OLD, "refused", NEW)
    connected: list[bool] = []

    def retaken(_: object, host: RebootingHost) -> bool:
        connected.append(host.connected)
        return True

    # The lock that keeps the node's own pull away went with the boot.
    monkeypatch.setattr(reboot, "retaken", retaken)
    first, last = carried_out(host, boots_into="580.95.05")
    assert first.index("attempt") < first.index("systemd-run") < first.index("systemctl reboot")
    assert OLD.attempt(target(PENDING.driver)) in first
    assert "rm -f" in last and RECORD in last
    assert connected == [True] and host.connected and not host.refusals


def test_a_node_that_does_not_come_back_has_failed_and_is_not_connected(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_back(monkeypatch, OLD, "refused")
    assert len(carried_out(host)) == 1
    assert not host.connected
    (said,) = host.refusals
    assert unnamed(said, "30 s", "refused") == []


def test_a_new_boot_with_the_old_module_has_failed_and_keeps_the_record(
    host: RebootingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_back(monkeypatch, "refused", NEW)
    assert len(carried_out(host, boots_into="570.172.08")) == 1
    assert unnamed(" ".join(host.refusals), "570.172.08 (open)", RECORD) == []


@pytest.mark.parametrize(
    "readings, said",
    [
        ({RunningBootFact: Unknown("timed out")}, "boot is running is unknown"),
        ({NodeFact: Unknown("timed out")}, "node's state is unknown"),
        ({DriverFact: Unknown("timed out")}, "driver's state is unknown"),
        ({RunningBootFact: replace(OLD, container=False)}, "/boot"),
    ],
)
def test_a_node_is_not_rebooted_where_anything_is_unknown_or_the_next_boot_is_not_safe(
    host: RebootingHost, readings: dict[type, Any], said: str
) -> None:
    host.readings |= readings
    assert carried_out(host) == []
    assert said in " ".join(host.refusals)


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
    monkeypatch.setattr(reboot_deploy, "machine", lambda: GOOD.machine)
    monkeypatch.setattr(reboot, "rebooted", lambda **given: calls.append({"operation": "rebooted", **given}))
    monkeypatch.setattr(driver, "module_loaded", lambda **given: calls.append({"operation": "module_loaded", **given}))
    inspect.unwrap(reboot_deploy.reboot)()
    if allow != "reboot":
        # Nobody asks for one: it is not even listed.
        assert calls == []
        asked_once = replace(GOOD, driver=replace(GOOD.driver, booted_for="580.95.05"))
        monkeypatch.setattr(reboot_deploy, "machine", lambda: asked_once.machine)
        inspect.unwrap(reboot_deploy.reboot)()
    # What nothing loads at boot (nvidia_uvm) is loaded after it.
    assert [call["operation"] for call in calls] == ["rebooted", "module_loaded"]
    assert (calls[0]["allowed"], calls[0]["timeout"], calls[0]["_parallel"]) == (allow == "reboot", 120, 3)
    calls.clear()
    monkeypatch.setattr(reboot_deploy, "machine", lambda: replace(GOOD, pci=PciGpus(())).machine)
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
