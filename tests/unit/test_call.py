"""Commands that a command suggests: of the same inventory, hosts and settings, as a shell takes them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import cli
from gpunode.base.comparison import RUN
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.cli import drift as drift_command
from gpunode.fleet import drift, run_end
from gpunode.fleet.call import CALL, Call, told_call
from gpunode.fleet.page import of_drift, of_plan, of_rollout
from gpunode.fleet.reports.findings_text import report_text
from gpunode.fleet.reports.run_end import HostEnd, verdict_text
from gpunode.fleet.rollout import place
from gpunode.settings import overrides
from tests.support.run_end import GOOD, MODULE, RUNTIME, _state
from tests.support.run_end import lines as lines
from tests.support.simulated_host import Host

pytestmark = pytest.mark.pure
SET = ("driver.branch=580",)
HOSTILE = "my $(rm -rf ~) inventories/prod's.py"


@pytest.mark.parametrize(
    ("call", "run", "waves", "drift"),
    [
        (Call("prod.py"), "pyinfra prod.py deploys/gpu_node.py", "gpunode rollout prod.py", "gpunode drift prod.py"),
        (
            Call("prod.py", ("gpu-*", "rack1")),
            "pyinfra prod.py deploys/gpu_node.py --limit 'gpu-*' --limit rack1",
            # It takes every node of the inventory.
            None,
            "gpunode drift prod.py --limit 'gpu-*' --limit rack1",
        ),
        (
            Call("prod.py", settings=SET),
            # pyinfra's own command would put back what was set.
            "gpunode apply prod.py --set driver.branch=580",
            "gpunode rollout prod.py --set driver.branch=580",
            "gpunode drift prod.py --set driver.branch=580",
        ),
        (
            Call("prod.py", ("gpu-1",), SET),
            "gpunode apply prod.py --limit gpu-1 --set driver.branch=580",
            None,
            "gpunode drift prod.py --limit gpu-1 --set driver.branch=580",
        ),
    ],
)
def test_each_command_is_of_the_same_hosts_and_settings(call: Call, run: str, waves: str | None, drift: str) -> None:
    assert (call.run, call.waves, call.of("drift")) == (run, waves, drift)


TEXTS = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=8)


@given(TEXTS, st.lists(TEXTS, max_size=2).map(tuple), st.lists(TEXTS, max_size=2).map(tuple))
def test_a_shell_takes_each_word_as_it_was_given_and_a_child_is_told_all(
    inventory: str, limit: tuple[str, ...], settings: tuple[str, ...]
) -> None:
    call = Call(inventory, limit, settings)
    words = shlex.split(call.of("rollout", "--resume"))
    assert words[:4] == ["gpunode", "rollout", "--resume", inventory]
    assert [b for a, b in zip(words[4::2], words[5::2], strict=True) if a == "--limit"] == list(limit)
    assert [b for a, b in zip(words[4::2], words[5::2], strict=True) if a == "--set"] == list(settings)
    assert told_call(call.environment()) == call


def test_a_call_of_no_inventory_says_so_in_its_document_and_names_a_placeholder_in_its_commands() -> None:
    assert Call().to_json() == {"inventory": None, "limit": [], "set": []}
    assert Call().of("drift") == "gpunode drift INVENTORY" and told_call(Call().environment()) == Call()
    given = {"inventory": "prod.py", "limit": ["gpu-1"], "set": list(SET)}
    assert Call("prod.py", ("gpu-1",), SET).to_json() == given


@pytest.mark.parametrize("text", ["", "5", "{}", '{"inventory": 1, "limit": 2, "settings": null}'])
def test_what_others_left_in_the_environment_tells_of_no_call(text: str) -> None:
    assert told_call({CALL: text}) is None and told_call({}) is None


def test_a_remedy_names_the_run_of_these_hosts_and_settings() -> None:
    report = (NodeReport("gpu-1", (RUNTIME,)),)
    text = report_text(report, False, call=Call("prod.py", ("gpu-1",), SET))
    assert "remedy   run `gpunode apply prod.py --limit gpu-1 --set driver.branch=580`\n" in text


@pytest.mark.parametrize("columns", range(40, 120, 7))
def test_no_command_is_folded_at_any_width(columns: int) -> None:
    call = Call(HOSTILE, ("gpu-[0-9]*",), SET)
    ends = [HostEnd("gpu-1", findings=(RUNTIME,)), HostEnd("gpu-2", findings=(MODULE,)), HostEnd("gpu-3")]
    told = verdict_text(ends, columns, call).splitlines()
    assert any(f"`{call.run}`" in line for line in told), "the remedy's"
    assert told.count(f"  {call.run}") == 2, "of what is wrong, and of what waits"
    assert f"  {call.of('drift')}" in told


def test_what_waits_is_let_go_by_waves_only_where_all_hosts_are_looked_at() -> None:
    ends = [HostEnd("gpu-1", findings=(MODULE,))]
    told = verdict_text(ends, call=Call("prod.py", settings=SET)).splitlines()
    assert told[-2].endswith("wave by wave, run") and told[-1] == "  gpunode rollout prod.py --set driver.branch=580"
    told = verdict_text(ends, call=Call("prod.py", ("gpu-1",))).splitlines()
    assert told[-2].endswith("then run") and told[-1] == "  pyinfra prod.py deploys/gpu_node.py --limit gpu-1"


def _context(**words: Any) -> Any:
    return lambda silent: SimpleNamespace(params=words)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ({"limit": ("gpu-1",)}, "pyinfra prod.py deploys/gpu_node.py --limit gpu-1"),
        # gpunode's commands have no --exclude: who was left stands there.
        ({"limit": (), "exclude": ("gpu-2",)}, "pyinfra prod.py deploys/gpu_node.py --limit gpu-1"),
        ({"limit": ()}, "pyinfra prod.py deploys/gpu_node.py"),
    ],
)
def test_a_run_of_pyinfras_own_tells_the_command_with_its_limit(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], command: str
) -> None:
    monkeypatch.setattr(click, "get_current_context", _context(inventory="prod.py", **words))
    host = Host({})
    run_end.takes_part(host)  # type: ignore[arg-type]
    run_end.judged(host, (RUNTIME,))  # type: ignore[arg-type]
    run_end.tell(_state(host))
    assert lines[-1] == f"  {command}"


def test_a_run_that_gpunode_started_tells_the_command_as_that_was_called(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click, "get_current_context", _context(inventory="prod.py", limit=("gpu-1", "gpu-2")))
    monkeypatch.setenv(CALL, Call("prod.py", (), SET).environment()[CALL])
    host = Host({})
    run_end.takes_part(host)  # type: ignore[arg-type]
    run_end.judged(host, (RUNTIME,))  # type: ignore[arg-type]
    run_end.tell(_state(host))
    assert lines[-1] == "  gpunode apply prod.py --set driver.branch=580"


def test_nothing_is_left_to_do_only_where_every_node_was_judged() -> None:
    good, silent = HostEnd("gpu-1", findings=GOOD), HostEnd("gpu-2")
    assert "Nothing is left" in verdict_text([good])
    others = [silent, HostEnd("gpu-3", left_alone="cordoned"), HostEnd("gpu-4", unverified="an image is made here")]
    for other in others:
        assert "Nothing is left" not in verdict_text([good, other])


def test_an_image_is_not_said_to_be_verified_by_a_deploy() -> None:
    text = verdict_text(
        [HostEnd("@chroot/srv/image", unverified="its first boot verifies")], call=Call("@chroot/srv/image")
    )
    assert text == "@chroot/srv/image: no operation failed; not verified: its first boot verifies"


def test_hosts_of_others_have_no_verdict_beside_ours(lines: list[str]) -> None:
    host, other = Host({}), Host({}, name="gpu-2")
    state = _state(host)
    state.inventory.append(other)
    run_end.takes_part(host)  # type: ignore[arg-type]
    run_end.judged(host, GOOD)  # type: ignore[arg-type]
    run_end.tell(state)
    assert lines == ["--> Verdict:", "gpu-1: ok, 3 of 3 as desired", "Nothing is left to do."]


def _document(**more: Any) -> dict[str, Any]:
    finding = RUNTIME.to_json()
    hosts = {"gpu-1": {"class": "drift", "findings": [finding]}}
    return {"gpunode": "1", "at": "2026-01-01T00:00:00Z", "inventory": "prod.py", "hosts": hosts, **more}


def test_a_page_names_the_run_of_the_same_hosts_and_settings() -> None:
    view = of_drift.view(_document(limit=["rack1"], set=list(SET)))
    (item,) = view.hosts[0].items
    remedy = dict(item.told)["remedy"]
    assert remedy == "run `gpunode apply prod.py --limit rack1 --set driver.branch=580`"
    # The page adds a row's hosts to it, and a second pattern would add to the first.
    assert view.heal == "gpunode apply prod.py --set driver.branch=580"
    plan: dict[str, Any] = {"gpunode": "1", "at": None, "inventory": "prod.py", "set": list(SET), "hosts": {}}
    assert of_plan.view(plan).heal == "gpunode apply prod.py --set driver.branch=580"
    # A document of a former version.
    assert of_drift.view(_document()).heal == "pyinfra prod.py deploys/gpu_node.py"


def test_the_page_of_a_rollout_names_the_run_with_its_settings() -> None:
    outcome = {"class": "drift", "passed": False, "reason": "x", "remedy": RUN}
    wave = {"number": 1, "kind": "canary", "begun": "2026", "ended": None, "log": None, "nodes": {"gpu-1": outcome}}
    empty: dict[str, Any] = {"to_come": [], "untouched": [], "left_out": {}, "reason": None, "state": "stopped"}
    document = {"gpunode": "1", "inventory": "prod.py", "set": list(SET), "waves": [wave], **empty}
    (item,) = of_rollout.view(document).hosts[0].items
    assert dict(item.told)["remedy"] == "run `gpunode apply prod.py --set driver.branch=580`"


@pytest.mark.parametrize("as_json", [False, True])
def test_drift_tells_its_own_limit_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    for variable in (overrides.SET, overrides.LIMIT):
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(drift, "inspect", lambda *given, **more: (NodeReport("gpu-1", (RUNTIME,)),))
    words = ["--limit", "gpu-*", "--set", "proxy.https=http://me:hunter2@proxy", "--set", "driver.branch=580"]
    done = CliRunner().invoke(drift_command.drift, [*words, *(["--json"] if as_json else []), "prod.py"])
    assert done.exit_code == 2 and "hunter2" not in done.output
    if as_json:
        found = json.loads(done.stdout)
        assert (found["limit"], found["set"]) == (["gpu-*"], ["driver.branch=580", "proxy.https=<not shown>"])
    else:
        again = "gpunode apply prod.py --limit 'gpu-*' --set driver.branch=580 --set 'proxy.https=<not shown>'"
        assert f"run `{again}`" in done.stdout


def test_whoever_is_refused_beside_a_rollout_is_told_its_resumption_as_a_shell_takes_it(tmp_path: Path) -> None:
    folder = place.place(HOSTILE, tmp_path)
    with place.controller_lock(folder, HOSTILE), pytest.raises(place.LockedError) as refused:
        place.refuse_beside_rollout(folder, HOSTILE)
    (command,) = re.findall(r"`(gpunode .*)`", str(refused.value))
    assert shlex.split(command) == ["gpunode", "rollout", "--resume", HOSTILE]


def test_a_value_that_is_not_shown_is_refused_where_a_command_is_pasted_as_it_is() -> None:
    done = CliRunner().invoke(cli.gpunode, ["check", "--set", "proxy.https=<not shown>", "prod.py"])
    assert done.exit_code == 2 and "give the value itself" in done.stderr


def test_all_that_differs_is_still_told() -> None:
    odd = Finding("driver", FindingClass.DRIFT, "`odd", "a `b", "c` d", "lone ` and `gpunode", "`pyinfra")
    text = report_text((NodeReport("gpu-1", (odd,)),), False, 40)
    words = {"`odd", "a", "`b", "c`", "d", "lone", "`", "and", "`gpunode", "`pyinfra"}
    assert words <= set(text.replace(":", " ").split())
