"""What the benchmarks make of their figures: aims, documents and pages, without a node."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpunode.facts.node import PARTS
from tests.bench import aims, contenders, drift, on_node, page, probe, report
from tests.bench.aims import Aim

pytestmark = pytest.mark.pure


def result(nodes: int, **seconds: tuple[float, ...]) -> drift.Result:
    """Return figures by way, with _ for a blank."""
    ways = {name.replace("_", " ").replace("no change", "no-change"): taken for name, taken in seconds.items()}
    return drift.Result(nodes, ways, dict.fromkeys(ways, "how it is done"), (0.5, 1.5))


TWENTY = result(
    20, ssh_true=(1.0, 1.0, 9.0), fixed_work=(3.0, 3.1, 2.9), drift=(3.6, 3.9, 4.2), no_change_run=(9.0, 8.0, 7.9),
    stock_dry_run=(19.4, 19.5, 30.0), ansible_check=(78.0, 70.0, 90.0),
)  # fmt: skip


def test_an_aim_is_met_at_its_limit_and_not_beyond() -> None:
    at_most, at_least = Aim("a", "b", 20, 1.3), Aim("a", "b", 20, 1.3, at_least=True)
    for value, most, least in ((1.3, True, True), (1.299, True, False), (1.3004, False, True)):
        medians = {20: {"a": value, "b": 1.0}}
        assert (at_most.met(medians), at_least.met(medians)) == (most, least)
    # What is told of it is rounded, what is judged is not.
    (told,) = aims.as_json([at_most], {20: {"a": 1.3004, "b": 1.0}})
    assert (told["measured"], told["met"]) == (1.3, False)


def test_an_aim_that_was_not_measured_is_neither_met_nor_missed() -> None:
    aim = Aim("a", "b", 20, 1.3)
    for medians in ({}, {100: {"a": 1.0, "b": 1.0}}, {20: {"a": 1.0}}, {20: {"b": 1.0}}):
        (told,) = aims.as_json([aim], medians)
        assert (told["measured"], told["met"]) == (None, None)


def test_no_aim_of_drift_refers_to_what_is_gpunodes_own() -> None:
    of_drift = [aim for aim in aims.AIMS if aim.way == "drift"]
    assert {aim.of for aim in of_drift} == {"fixed work", "ssh true"}
    assert {(aim.of, aim.at_nodes, aim.limit) for aim in of_drift} == {
        ("fixed work", 20, 1.3), ("ssh true", 20, 4), ("fixed work", 100, 1.3),
    }  # fmt: skip
    assert not any(aim.at_least for aim in of_drift)
    assert "the probe alone" not in {name for aim in aims.AIMS for name in (aim.way, aim.of)}


def test_every_way_is_measured_and_every_aim_is_about_ways_that_are(tmp_path: Path) -> None:
    assert [each.name for each in contenders.drift_contenders((), tmp_path)] == list(drift.KEYS)
    assert {name for aim in aims.AIMS for name in (aim.way, aim.of)} <= drift.KEYS.keys()
    of_runs = {each.name for each in contenders.contenders((), tmp_path)}
    assert {report.REFERENCE, *(name for aim in report.AIMS for name in (aim.way, aim.of))} <= of_runs
    assert report.AIMS


def test_the_document_of_drift_has_every_run_and_judges_every_aim() -> None:
    told = json.loads(json.dumps(TWENTY.as_json()))
    assert told["runs_s"]["drift_s"] == [3.6, 3.9, 4.2]
    assert (told["drift_s"], told["ssh_true_s"], told["probe_s"]) == (3.9, 1.0, None)
    assert told["load"] == [0.5, 1.5]
    judged = {(each["name"], each["at_nodes"]): (each["measured"], each["met"]) for each in told["aims"]}
    assert judged == {
        ("drift ≤ 1.3 × fixed work", 20): (1.3, True),
        ("drift ≤ 4 × ssh true", 20): (3.9, True),
        ("drift ≤ 1.3 × fixed work", 100): (None, None),
        ("no-change run ≤ 2 × drift", 20): (2.051, False),
        ("no-change run ≤ 2 × drift", 100): (None, None),
        ("stock dry run ≥ 5 × drift", 20): (5.0, True),
        ("stock dry run ≥ 5 × drift", 100): (None, None),
        ("ansible check ≥ 20 × drift", 20): (20.0, True),
    }
    assert told["aims"][3] == {
        "name": "no-change run ≤ 2 × drift", "ways": ["no-change run", "drift"], "at_nodes": 20, "bound": "at most",
        "limit": 2, "measured": 2.051, "met": False,
    }  # fmt: skip


def test_the_page_of_drift_says_which_aim_is_met() -> None:
    hundred = result(100, ssh_true=(5.0,), fixed_work=(10.0,), drift=(14.0,))
    lines = drift.as_markdown([TWENTY, hundred], 3).splitlines()
    assert "| 20 | 1.00 | 3.00 | – | 3.90 | 8.00 | 19.50 | 78.00 | 0.5, 1.5 |" in lines
    assert "| 100 | 5.00 | 10.00 | – | 14.00 | – | – | – | 0.5, 1.5 |" in lines
    assert "| drift ≤ 1.3 × fixed work | 20 | 1.30 | yes |" in lines
    assert "| drift ≤ 1.3 × fixed work | 100 | 1.40 | **no** |" in lines
    assert "| no-change run ≤ 2 × drift | 100 | – | not measured |" in lines
    # A table's lines are all as wide as its first.
    assert len({line.count("|") for line in lines if line.startswith(("| nodes", "|---:|---:|---", "| 20 |"))}) == 1


def test_the_page_of_runs_compares_with_fixed_work() -> None:
    figures = tuple(
        report.Figure(name, "how", (seconds,), seconds, seconds / 2, 1.0)
        for name, seconds in (("ssh true", 1.0), ("fixed work", 2.0), ("drift", 3.0), ("no-change run", 6.0))
    )
    found = (report.Result(20, 30.0, figures, (1.0, 2.0)),)
    text = report.as_markdown(found, 3)
    assert "| | seconds | × fixed work |" in text
    assert "| no-change run ≤ 2 × drift | 20 | 2.00 | yes |" in text
    assert "floor" not in text
    assert [(each["at_nodes"], each["met"]) for each in report.as_json(found, 3)["aims"]] == [(20, True), (100, None)]


def test_fixed_work_prints_nothing_and_fails_where_a_part_of_it_fails(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("NVRM\n")
    asked = contenders.FIXED_WORK.replace("/proc/driver/nvidia/version", str(version))
    programs = ("dpkg-query", "nvidia-smi", "containerd", "systemctl")
    for name in programs:
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$*" | tee -a {tmp_path}/called\n')
        (tmp_path / name).chmod(0o755)

    def run() -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(["sh", "-c", asked], env=environment, capture_output=True, text=True, check=False)

    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "called").read_text().splitlines() == [
        "dpkg-query -W", "nvidia-smi -L", "containerd config dump", "systemctl show * -p Id,ActiveState",
    ]  # fmt: skip
    for name in programs:
        whole = (tmp_path / name).read_text()
        (tmp_path / name).write_text("#!/bin/sh\nexit 3\n")
        assert run().returncode == 3
        (tmp_path / name).write_text(whole)
    version.unlink()
    assert run().returncode
    assert "gpunode" not in contenders.FIXED_WORK


TRACE = """\
100 execve("/usr/bin/sh", ["sh", "-c", "echo x = y"], 0x7ffe /* 9 vars */) = 0
100 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 101
101 execve("/usr/bin/dpkg-query", ["dpkg-query", "a = b"] <unfinished ...>
100 vfork( <unfinished ...>
101 <... execve resumed>) = 0
100 <... vfork resumed>) = 102
100 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=101, si_uid=0, si_status=0} ---
102 clone3({flags=CLONE_VM, exit_signal=SIGCHLD}, 88) = 103
103 execve("/usr/bin/cat", ["cat"], 0x5 /* 9 vars */) = 0
"""


def test_programs_and_processes_are_counted_once_each() -> None:
    # The shell that was given the probe is none of them; dpkg-query and cat are.
    assert on_node.counted(TRACE) == (2, 3)


def test_every_component_of_a_reading_is_measured_and_the_whole() -> None:
    assert list(probe.commands()) == [*PARTS, probe.WHOLE]
    assert all(type(command) is str and "gpunode:end" in command for command in probe.commands().values())


def test_the_page_of_the_probe_tells_parts_and_whole() -> None:
    printed = {
        "000": {"started": [3, 5], "processor_ms": [9.0, 1.0, 2.04]},
        "001": {"started": [1, 1], "processor_ms": [4.0, 4.0, 4.0]},
        "002": {"started": [3, 4], "processor_ms": [5.0, 5.0, 5.0]},
    }
    found = probe.costs(("pci", "driver", probe.WHOLE), printed)
    lines = probe.as_markdown(found, (0.1, 0.2)).splitlines()
    assert lines[-4:] == [
        "| pci | 3 | 5 | 2.0 |", "| driver | 1 | 1 | 4.0 |", "| each by itself, together | 4 | 6 | 6.0 |",
        "| **the whole** | 3 | 4 | 5.0 |",
    ]  # fmt: skip
    told = json.loads(json.dumps(probe.as_json(found, (0.1, 0.2))))
    assert told["probes"][0] == {
        "name": "pci", "programs": 3, "processes": 5, "processor_ms": 2.0, "runs_ms": [9.0, 1.0, 2.04]
    }  # fmt: skip
    assert told["load"] == [0.1, 0.2]


@pytest.mark.parametrize("part", ["drift", "the probe", "the controller", "a run that has nothing to do"])
def test_the_page_has_a_place_for_what_each_benchmark_writes(tmp_path: Path, part: str) -> None:
    copy = tmp_path / "performance.md"
    copy.write_text(page.PAGE.read_text())
    page.put(part, "new figures", copy)
    assert f"<!-- {part} -->\n\nnew figures\n\n<!-- end of: {part} -->" in copy.read_text()
