"""`gpunode rollout` as people call it, with SIMULATED nodes and a SIMULATED pyinfra."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.base.messages import Scope
from gpunode.components.imex.decide import FILE
from gpunode.facts.node import Node
from gpunode.fleet import drift
from gpunode.fleet import nodes as fleet
from gpunode.fleet.page.html import document_page
from gpunode.fleet.rollout import journal
from gpunode.fleet.run import child
from gpunode.kubernetes.objects.own_objects import OWN_OBJECTS
from tests.reference.schemas import rollout_schema
from tests.support.how_to import snippet
from tests.support.messages import unnamed
from tests.support.rollout_command import SECONDS, alive, enter, lab, pyinfra_of, until, with_default_signals
from tests.support.simulated_rollout import Lab

__all__ = ["enter", "lab"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]


def rollout(*options: str) -> Result:
    return CliRunner().invoke(cli.gpunode, ["rollout", *options, "fleet.py"])


def document(*options: str) -> dict[str, Any]:
    done = rollout("--json", *options)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.exit_code
    jsonschema.validate(found, rollout_schema())
    return found


def test_the_canary_goes_first_and_then_wave_after_wave(lab: Lab) -> None:
    done = rollout("--max-unavailable", "50%")
    assert done.exit_code == 0, done.output
    assert lab.runs == [["gpu-1"], ["gpu-2", "gpu-3"], ["gpu-4"]]
    assert "wave 1 (canary): gpu-1\n  gpu-1: ok\nwave 2: gpu-2, gpu-3\n" in done.stdout
    (log,) = lab.folder.glob(".rollout/fleet-*/*/wave-2.log")
    assert "SIMULATED pyinfra -y --json --limit gpu-2 --limit gpu-3 fleet.py deploys/gpu_node.py" in log.read_text()


def test_a_canary_that_fails_stops_it_and_no_other_node_is_touched(lab: Lab, tmp_path: Path) -> None:
    lab.fail("gpu-1")
    found = document("--failure-budget", "4", "--html", str(tmp_path / "rollout.html"))
    assert (tmp_path / "rollout.html").read_text(encoding="utf-8") == document_page("rollout", found)
    assert (found["exit_code"], found["state"], found["untouched"]) == (2, "stopped", ["gpu-2", "gpu-3", "gpu-4"])
    assert lab.runs == [["gpu-1"]] and found["at"] >= found["begun"]
    node = found["waves"][0]["nodes"]["gpu-1"]
    assert (node["class"], node["passed"], node["code"]) == ("drift", False, "run.broken-off")
    assert unnamed(node["reason"], "pyinfra exited 1") == [] and ": .rollout/" in node["reason"]
    assert unnamed(node["remedy"], "gpunode rollout --resume") == []
    assert found["gate"] == ["run", "drift", "cluster"]
    # Mended, and gone on with: the canary is tried again.
    lab.fail()
    assert document("--resume")["state"] == "finished"
    assert lab.runs == [["gpu-1"], ["gpu-1"], ["gpu-2"], ["gpu-3"], ["gpu-4"]]


def test_what_is_as_asked_and_what_does_not_answer_is_left_out(lab: Lab) -> None:
    lab.find({"gpu-1": FindingClass.OK, "gpu-2": FindingClass.UNREACHABLE})
    found = document("--max-unavailable", "2")
    assert found["exit_code"] == 1
    assert {name: left["class"] for name, left in found["left_out"].items()} == {"gpu-1": "ok", "gpu-2": "unreachable"}
    # One is away already, and one more may be.
    assert lab.runs == [["gpu-3"], ["gpu-4"]]
    lab.find({"gpu-2": FindingClass.OK})
    # A failure within the budget, and a canary by name.
    lab.fail("gpu-3")
    words = ("--failure-budget", "1", "--canary", "gpu-4")
    found = document("--all", "--max-unavailable", "100%", *words)
    assert (found["exit_code"], found["state"]) == (2, "finished")
    assert lab.runs[2:] == [["gpu-4"], ["gpu-1", "gpu-2", "gpu-3"]]
    verdicts = {name: node["passed"] for name, node in found["waves"][1]["nodes"].items()}
    assert verdicts == {"gpu-1": True, "gpu-2": True, "gpu-3": False}


def test_a_limit_takes_these_hosts_alone_and_is_resumed_with_the_same(lab: Lab) -> None:
    lab.find({"gpu-1": FindingClass.UNREACHABLE})
    words = ("--limit", "gpu-[23]", "--set", "driver.branch=580")
    found = document(*words, "--max-unavailable", "50%", "--pause")
    assert (found["exit_code"], found["limit"], found["left_out"]) == (0, ["gpu-[23]"], {})
    for other in ((), ("--limit", "gpu-*"), words[2:]):
        refused = rollout("--resume", *other)
        again = "gpunode rollout --resume fleet.py --limit 'gpu-[23]' --set driver.branch=580"
        assert (refused.exit_code, unnamed(refused.stderr, "rollout.changed", f"`{again}`")) == (3, [])
    folder = journal.place("fleet.py")
    with journal.controller_lock(folder, "fleet.py"), pytest.raises(journal.LockedError) as beside:
        journal.refuse_beside_rollout(folder, "fleet.py")
    assert f"`{again}`" in str(beside.value)
    assert document("--resume", *words)["state"] == "finished" and lab.runs == [["gpu-2"], ["gpu-3"]]
    lab.find({"gpu-1": FindingClass.DRIFT})
    # A rollout without a limit, which a former gpunode began, too, goes on without one.
    assert document("--pause")["limit"] == [] and rollout("--resume", "--limit", "gpu-4").exit_code == 3


@pytest.mark.parametrize("kind", [FindingClass.OK, FindingClass.UNREACHABLE])
def test_nodes_that_are_left_out_for_one_reason_share_a_line(lab: Lab, kind: FindingClass) -> None:
    lab.find(dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), kind))
    lines = rollout("--dry").stdout.splitlines()
    (left,) = [line for line in lines if "left out: gpu-1 to gpu-3" in line]
    # What is no good news has its code; so has what would stop it.
    assert left.endswith("]") is (kind is not FindingClass.OK)
    assert lines[-1].endswith(" [rollout.stopped]") is (kind is not FindingClass.OK)


def test_what_is_bad_though_no_wave_is_made_is_in_every_output(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.find({f"gpu-{number}": FindingClass.OK for number in range(1, 5)})

    def ends() -> tuple[int, str, str]:
        (end,) = [line for line in rollout().stdout.splitlines() if line.startswith("finished")]
        done = rollout("--output", "quiet")
        return done.exit_code, done.stdout, end

    good = ends()
    item = OWN_OBJECTS.not_known("as rendered", "forbidden", "allow it")
    cluster = NodeReport("prod", (item,), scope=Scope.CLUSTER)
    monkeypatch.setattr(drift, "inspect", lambda *words, **more: (*lab.inspect(*words, **more), cluster))
    unknown = ends()
    monkeypatch.setattr(drift, "inspect", lab.inspect)
    lab.find({"gpu-1": FindingClass.UNREACHABLE})
    away = ends()
    assert (good[0], good[1], unknown[0], away[0]) == (0, "", 2, 1) and lab.runs == []
    assert OWN_OBJECTS.code in unknown[1] and "gpu-1" in away[1]
    assert unknown[2] != good[2] != away[2]


def test_a_dry_rollout_prints_the_waves_and_leaves_no_trace(lab: Lab) -> None:
    before = sorted(lab.folder.rglob("*"))
    done = rollout("--dry", "--max-unavailable", "2")
    assert done.exit_code == 0
    assert "wave 1 (canary): gpu-1\nwave 2: gpu-2, gpu-3\nwave 3: gpu-4\n" in done.stdout
    assert document("--dry")["state"] == "planned"
    assert sorted(lab.folder.rglob("*")) == before


def test_how_many_may_be_unavailable_is_the_settings_to_say_and_never_none(lab: Lab) -> None:
    assert document("--dry", "--max-unavailable", "10%")["policy"]["max_unavailable"] == 1
    lab.ask({f"gpu-{number}": {"disruption": {"max_parallel": 3}} for number in range(1, 5)})
    assert [len(wave["nodes"]) for wave in document("--dry")["to_come"]] == [1, 3]


def test_a_pause_ends_it_after_each_wave(lab: Lab) -> None:
    assert document("--pause")["state"] == "paused"
    done = rollout()
    assert done.exit_code == 1 and "--resume" in done.stderr and "--anew" in done.stderr
    assert document("--pause", "--resume")["state"] == "paused"
    assert lab.runs == [["gpu-1"], ["gpu-2"]]
    assert "wave 3: gpu-3\nwave 4: gpu-4\n" in rollout("--resume", "--dry").stdout
    assert document("--resume")["state"] == "finished"
    assert rollout("--resume").exit_code == 1


def test_other_settings_are_refused_on_the_way_and_may_be_begun_anew(lab: Lab) -> None:
    rollout("--pause")
    lab.ask({f"gpu-{number}": {"driver": {"branch": "570"}} if number == 3 else {} for number in range(1, 5)})
    done = rollout("--resume")
    assert done.exit_code == 3
    assert ": gpu-3" in done.stderr and "--anew" in done.stderr and "gpu-1" not in done.stderr
    assert lab.runs == [["gpu-1"]]
    found = document("--anew")
    assert found["exit_code"] == 0
    assert found["left_out"] == {"gpu-1": {"class": "ok", "reason": "as desired", "code": None}}
    assert lab.runs[1:] == [["gpu-2"], ["gpu-3"], ["gpu-4"]]


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUNODE_SET", "")
    monkeypatch.setenv("GPUNODE_SET_LIMIT", "")


@pytest.mark.usefixtures("unset")
def test_each_hint_has_the_settings_of_the_command_line(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--set", "driver.branch=580", "--set", "device_plugin.values.extra.token=hunter2")
    shown = "--set 'device_plugin.values.extra.token=<not shown>' --set driver.branch=580"
    again = f"gpunode rollout --resume fleet.py {shown}"
    done = rollout("--pause", *words)
    assert unnamed(done.stdout, again) == []
    (journal,) = lab.folder.glob(".rollout/fleet-*/*/journal")
    (log,) = lab.folder.glob(".rollout/fleet-*/*/wave-1.log")
    assert unnamed(log.read_text().splitlines()[1], shown) == []
    # Without them it is another rollout.
    monkeypatch.setenv("GPUNODE_SET", "")
    refused = rollout("--resume")
    assert (refused.exit_code, unnamed(refused.stderr, f"`{again}`")) == (3, [])
    beside = rollout()
    assert (beside.exit_code, unnamed(beside.stderr, f"`{again}`")) == (1, [])
    assert not any("hunter2" in each for each in (done.output, refused.output, journal.read_text(), log.read_text()))
    assert document("--resume", *words)["set"] == ["device_plugin.values.extra.token=<not shown>", "driver.branch=580"]


@pytest.mark.usefixtures("unset")
def test_a_rollout_that_cannot_be_gone_on_with_is_begun_again_with_the_same_settings(lab: Lab) -> None:
    lab.find({f"gpu-{number}": FindingClass.UNREACHABLE for number in (1, 2)})
    done = rollout("--max-unavailable", "1", "--set", "driver.branch=580")
    assert ": gpunode rollout fleet.py --set driver.branch=580\n" in done.stdout


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path, enter: Callable[[Lab], Lab]) -> None:
    lab = enter(Lab(tmp_path, nodes=8, inventory="inventories/prod.py"))
    lines = [line.partition("#")[0].split() for line in snippet("rollout.md", "commands").splitlines()]
    assert {line[:2] == ["gpunode", "rollout"] for line in lines} == {True}
    runs = []
    for _, *words in lines:
        done = CliRunner().invoke(cli.gpunode, words)
        assert done.exit_code == 0, done.output
        runs.append(len(lab.runs))
    # --dry, the canary, waves of two; then nothing is left to do but by --all: a canary and single nodes.
    assert runs == [0, 1, 5, 5, 5, 13]
    assert len(lab.runs[1]) == 2 and len(lab.runs[-1]) == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--max-unavailable", "0"), ["--max-unavailable", 1]),
        (("--failure-budget", "lots"), ["--failure-budget", "'lots'"]),
        (("--canary", "gpu-9"), ["gpu-9"]),
        (("--resume", "--anew"), ["--resume", "--anew"]),
        (("--resume", "--canary", "2", "--all"), ["--canary", "--all"]),
        (("--interval", "-1"), ["--interval"]),
    ],
)
def test_wrong_usage_is_told_and_nothing_is_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], named: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpunode", "rollout", *options, "fleet.py"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 64
    assert unnamed(capsys.readouterr().err, *named) == []
    assert lab.runs == []


def test_the_gate_reads_the_nodes_of_its_wave_and_no_other(tmp_path: Path) -> None:
    # Nothing listens there: each connection is refused at once, and would be told.
    nobody = {"ssh_hostname": "127.0.0.1", "ssh_port": 1}
    (tmp_path / "fleet.py").write_text(f"nodes = {[(name, nobody) for name in ('gpu-1', 'gpu-2', 'gpu-3')]!r}\n")
    watched: list[tuple[int, int]] = []
    answers = fleet.read(tmp_path / "fleet.py", Node, lambda *done: watched.append(done), only=("gpu-2",))
    assert [(answer.name, answer.reading) for answer in answers] == [("gpu-2", None)]
    assert watched == [(1, 0), (1, 1)]


def test_without_pyinfra_a_checkout_or_right_settings_it_does_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.ask({"gpu-1": {"driver": {"flavour": "opne"}}})
    assert rollout().exit_code == 3 and not (lab.folder / ".rollout").exists()
    lab.ask({"gpu-1": {}})
    (lab.folder / "deploys" / "gpu_node.py").unlink()
    done = rollout()
    assert (done.exit_code, unnamed(done.stderr, "checkout")) == (1, [])
    monkeypatch.setenv("PATH", str(lab.folder))
    done = rollout()
    assert (done.exit_code, unnamed(done.stderr, "`make setup`")) == (1, [])


def test_a_host_is_named_to_pyinfra_so_that_no_other_can_be_meant() -> None:
    assert child.limit_pattern("gpu-1", ()) == "gpu-1"
    cases = {"gpu-1": ("gpu-2", "xgpu-1"), "rack[1]*": ("rack1", "rack1x"), "@docker/a:1": ("@docker/a:2",)}
    for name, others in cases.items():
        for groups in ((), (name,)):
            pattern = child.limit_pattern(name, groups)
            assert fnmatch(name, pattern) and not any(fnmatch(other, pattern) for other in others)
            # pyinfra takes a group of that name before it looks at hosts.
            assert pattern not in groups


@pytest.fixture
def started(lab: Lab) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts `gpunode rollout` as a process of its own; none outlives the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        root = Path(__file__).parents[2]
        processes.append(
            subprocess.Popen(
                [root / ".venv/bin/python", "-m", "tests.support.simulated_rollout", "rollout", *options, "fleet.py"],
                cwd=lab.folder, env={**os.environ, "PYTHONPATH": str(root)}, text=True,
                preexec_fn=with_default_signals, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
        return processes[-1]

    yield start
    lab.hang(False)
    for process in processes:
        process.kill()
        process.communicate()


def in_wave_two(lab: Lab, started: Callable[..., subprocess.Popen[str]]) -> tuple[subprocess.Popen[str], int]:
    """Start a rollout; return it, and its pyinfra's process, while wave two does not end."""
    rollout("--pause")
    lab.hang()
    controller = started("--resume")
    until(lambda: lab.runs == [["gpu-1"], ["gpu-2"]])
    return controller, pyinfra_of(lab)


@pytest.mark.tier2
def test_killed_in_wave_two_its_run_ends_and_another_rollout_repeats_that_wave_alone(
    lab: Lab, started: Callable[..., subprocess.Popen[str]]
) -> None:
    controller, pyinfra = in_wave_two(lab, started)
    second = rollout("--anew")
    assert second.exit_code == 1 and f"process {controller.pid}" in second.stderr
    controller.kill()
    controller.communicate(timeout=SECONDS)
    until(lambda: not alive(pyinfra))
    lab.hang(False)
    again = started("--resume")
    out, err = again.communicate(timeout=SECONDS)
    assert again.returncode == 0, out + err
    assert lab.runs == [["gpu-1"], ["gpu-2"], ["gpu-2"], ["gpu-3"], ["gpu-4"]]


@pytest.mark.tier2
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_ends_pyinfra_and_leaves_what_can_be_gone_on_with(
    lab: Lab, started: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    controller, pyinfra = in_wave_two(lab, started)
    controller.send_signal(number)
    out, err = controller.communicate(timeout=SECONDS)
    assert controller.returncode == 1 and "gpunode rollout --resume fleet.py" in err, out + err
    assert "Traceback" not in err
    assert not alive(pyinfra)
    lab.hang(False)
    assert document("--resume")["state"] == "finished"
    assert lab.runs == [["gpu-1"], ["gpu-2"], ["gpu-2"], ["gpu-3"], ["gpu-4"]]


def test_a_new_imex_domain_goes_in_one_wave_or_the_rollout_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {f"gpu-{number}": f"10.0.0.{number}" for number in range(1, 4)}
    imex = {"enabled": True, "nodes": addresses}
    lab.ask({**{name: {"imex": imex} for name in addresses}, "gpu-4": {}})

    def inspect(*arguments: Any, **options: Any) -> tuple[NodeReport, ...]:
        def listed(report: NodeReport) -> NodeReport:
            file, found = "/etc/nvidia-imex/nodes_config.cfg", report.findings[0].finding_class
            return replace(report, findings=(FILE.finding(found, of=file),))

        reports = lab.inspect(*arguments, **options)
        return tuple(listed(each) if each.name in addresses else each for each in reports)

    monkeypatch.setattr(drift, "inspect", inspect)
    for options in ((), ("--dry",), ("--canary", "gpu-2", "--max-unavailable", "2")):
        done = rollout(*options)
        # 64 of the program, which gpunode.cli.main makes of it.
        assert done.exit_code == 2 and lab.runs == []
        assert unnamed(done.stderr, "gpu-1 to gpu-3", "--max-unavailable 3", "rollout.together") == []
    done = rollout("--canary", "gpu-2", "--max-unavailable", "3")
    assert done.exit_code == 0, done.output
    assert lab.runs == [["gpu-1", "gpu-2", "gpu-3"], ["gpu-4"]]
