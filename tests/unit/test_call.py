"""Commands that a command suggests: of the same inventory, hosts and settings, as a shell takes them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra_cli.cli import cli as pyinfra_command

from gpunode.base.comparison import RUN
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.fleet import run_end
from gpunode.fleet.call import CALL, Call, told_call
from gpunode.fleet.page import views
from gpunode.fleet.reports.findings_text import report_text
from gpunode.fleet.reports.run_end import HostEnd, verdict_text
from gpunode.fleet.rollout import journal
from gpunode.settings import layers, overrides
from tests.support.run_end import GOOD, MODULE, RUNTIME, _state
from tests.support.run_end import lines as lines
from tests.support.simulated_host import Host

pytestmark = pytest.mark.pure
SET = ("driver.branch=580",)
RACK = Call("prod.py", ("rack1",), SET)
PLAIN = "pyinfra prod.py deploys/gpu_node.py"
HOSTILE = "my $(rm -rf ~) inventories/prod's.py"
TEXTS = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=8)


@given(st.none() | TEXTS, st.lists(TEXTS, max_size=2).map(tuple), st.lists(TEXTS, max_size=2).map(tuple))
def test_a_shell_takes_each_word_as_it_was_given_and_a_child_is_told_all(
    inventory: str | None, limit: tuple[str, ...], settings: tuple[str, ...]
) -> None:
    call = Call(inventory, limit, settings)
    words = shlex.split(call.of("rollout", "--resume"))
    assert words[:4] == ["gpunode", "rollout", "--resume", inventory or "INVENTORY"]
    assert [b for a, b in zip(words[4::2], words[5::2], strict=True) if a == "--limit"] == list(limit)
    assert [b for a, b in zip(words[4::2], words[5::2], strict=True) if a == "--set"] == list(settings)
    assert told_call(call.environment()) == call
    assert call.to_json() == {"inventory": inventory, "limit": list(limit), "set": list(settings)}


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("a `gpunode apply --retry` b", "a `gpunode apply --retry prod.py --limit rack1 --set driver.branch=580` b"),
        ("`gpunode plan INVENTORY`", "`gpunode plan prod.py --limit rack1 --set driver.branch=580`"),
        # Whole commands, and those of other hosts.
        ("`gpunode apply --limit gpu-2`", "`gpunode apply --limit gpu-2`"),
        ("`gpunode explain a.b`", "`gpunode explain a.b`"),
    ],
)  # fmt: skip
def test_a_command_in_a_remedy_gets_the_inventory_and_the_options(text: str, command: str) -> None:
    assert RACK.pasted(text) == command


@pytest.mark.parametrize("columns", range(40, 120, 7))
def test_no_command_is_folded_at_any_width(columns: int) -> None:
    call = Call(HOSTILE, ("gpu-[0-9]*",), SET)
    ends = [HostEnd("gpu-1", findings=(RUNTIME,)), HostEnd("gpu-2", findings=(MODULE,)), HostEnd("gpu-3")]
    told = verdict_text(ends, columns, call).splitlines()
    assert any(f"`{call.run}`" in line for line in told), "the remedy's"
    assert f"  {call.run}" in told and f"  {call.waves}" in told, "of what is wrong, and of what waits"
    assert f"  {call.of('drift')}" in told


@pytest.mark.parametrize(
    ("call", "command"),
    [
        (Call("prod.py", settings=SET), "gpunode rollout prod.py --set driver.branch=580"),
        (Call("prod.py", ("gpu-1",)), "gpunode rollout prod.py --limit gpu-1"),
        # gpunode's commands do not have pyinfra's options.
        (
            Call("prod.py", (), (), ("deploys/mig.py",), ("--sudo",)),
            "pyinfra prod.py deploys/gpu_node.py --sudo",
        ),
    ],
)
def test_what_waits_is_done_by_the_command_that_keeps_all_that_was_given(call: Call, command: str) -> None:
    told = verdict_text([HostEnd("gpu-1", findings=(MODULE,))], call=call).splitlines()
    assert told[-1] == f"  {command}" and ("wave by wave" in told[-2]) is (call.waves is not None)


@pytest.mark.parametrize(
    ("words", "started_by", "command"),
    [
        ("--limit gpu-1", None, f"{PLAIN} --limit gpu-1"),
        # gpunode's commands have no --exclude: the hosts that were left are named.
        ("--exclude gpu-2", None, f"{PLAIN} --limit gpu-1"),
        ("-y --dry -vv --json --debug", None, PLAIN),
        ("--sudo --user root --port 2222", None, f"{PLAIN} --sudo --ssh-user root --ssh-port 2222"),
        ("--data a=1 --data 'b=x y'", None, f"{PLAIN} --data a=1 --data 'b=x y'"),
        ("--data ssh_password=hunter2", None, f"{PLAIN} --data 'ssh_password=<not shown>'"),
        ("--ssh-password hunter2", None, f"{PLAIN} --ssh-password '<not shown>'"),
        ("--limit gpu-1 --limit gpu-2", Call("prod.py", (), SET), "gpunode apply prod.py --set driver.branch=580"),
    ],
)
def test_a_run_suggests_the_command_with_all_that_was_given(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, words: str, started_by: Call | None, command: str
) -> None:
    arguments = ["prod.py", "deploys/gpu_node.py", *shlex.split(words)]
    context = pyinfra_command.make_context("pyinfra", arguments, resilient_parsing=False)
    monkeypatch.setattr(click, "get_current_context", lambda silent: context)
    if started_by:
        monkeypatch.setenv(CALL, started_by.environment()[CALL])
    host: Any = Host({})
    run_end.takes_part(host)
    run_end.judged(host, (RUNTIME,))
    run_end.tell(_state(host))
    assert lines[-1] == f"  {command}"


@pytest.mark.parametrize(
    ("other", "is_done"),
    [
        (HostEnd("gpu-2", findings=GOOD), True),
        (HostEnd("gpu-2"), False),
        (HostEnd("gpu-2", left_alone="cordoned"), False),
        (HostEnd("gpu-2", unverified="first boot"), False),
    ],
)
def test_nothing_is_left_to_do_only_where_every_node_was_judged(other: HostEnd, is_done: bool) -> None:
    text = verdict_text([HostEnd("gpu-1", findings=GOOD), other])
    assert ("Nothing is left" in text) is is_done
    assert other.unverified is None or "gpu-2: no operation failed; not verified: first boot" in text


def test_hosts_of_others_have_no_verdict_beside_ours(lines: list[str]) -> None:
    host: Any = Host({})
    state = _state(host)
    state.inventory.append(Host({}, name="gpu-2"))
    run_end.takes_part(host)
    run_end.judged(host, GOOD)
    run_end.tell(state)
    assert lines[1] == "gpu-1: ok, 3 of 3 as desired" and not any("gpu-2" in line for line in lines)


def _remedy(page: Any) -> str:
    (item,) = page.hosts[0].items
    return str(dict(item.told)["remedy"])


def test_a_page_names_the_run_of_the_same_hosts_and_settings() -> None:
    hosts = {"gpu-1": {"class": "drift", "findings": [RUNTIME.to_json()]}}
    told: dict[str, Any] = {"gpunode": "1", "at": "2026-01-01T00:00:00Z", **RACK.to_json(), "hosts": hosts}
    view = views.drift_view(told)
    assert _remedy(view) == f"run `{RACK.run}`"
    # To the one the page adds a row's hosts, and a second pattern would add to the first.
    assert (view.heal, view.heal_all) == (RACK.of_all.run, RACK.run)
    assert views.plan_view({**told, "hosts": {}}).heal == RACK.of_all.run
    # A document of a former version.
    del told["limit"], told["set"]
    assert views.drift_view(told).heal == "gpunode apply prod.py"


def test_the_page_of_a_rollout_names_the_run_with_its_settings() -> None:
    outcome = {"class": "drift", "passed": False, "reason": "x", "remedy": RUN}
    wave = {"number": 1, "kind": "canary", "begun": "2026", "ended": None, "log": None, "nodes": {"gpu-1": outcome}}
    empty: dict[str, Any] = {"to_come": [], "untouched": [], "left_out": {}, "reason": None, "state": "stopped"}
    document = {"gpunode": "1", "inventory": "prod.py", "set": list(SET), "waves": [wave], **empty}
    assert _remedy(views.rollout_view(document)) == f"run `{RACK.of_all.run}`"


def test_whoever_is_refused_beside_a_rollout_is_told_its_resumption_as_a_shell_takes_it(tmp_path: Path) -> None:
    folder = journal.place(HOSTILE, tmp_path)
    with journal.controller_lock(folder, HOSTILE), pytest.raises(journal.LockedError) as refused:
        journal.refuse_beside_rollout(folder, HOSTILE)
    (command,) = re.findall(r"`(gpunode .*)`", str(refused.value))
    assert shlex.split(command) == ["gpunode", "rollout", "--resume", HOSTILE]


def test_a_word_that_is_refused_is_told_without_its_value() -> None:
    with pytest.raises(layers.OverrideError) as refused:
        overrides.parse(["Driver.token=hunter2"])
    assert "hunter2" not in str(refused.value) and "Driver.token" in str(refused.value)


def test_all_that_differs_is_still_told() -> None:
    sides = ("a `b", "c` d", "lone ` and `gpunode", "`pyinfra")
    odd = Finding("driver", FindingClass.DRIFT, "`odd", *sides, code="driver.gpu")
    text = report_text((NodeReport("gpu-1", (odd,)),), False, 40)
    words = {"'odd", "a", "'b", "c'", "d", "lone", "'", "and", "'gpunode", "'pyinfra"}
    assert words <= set(text.replace(":", " ").split())
