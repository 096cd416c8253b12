"""What workers' documents become: the reports, plans and ends that this machine would have come to itself."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import CLUSTER, Finding, FindingClass, NodeReport, NodeSummary
from gpunode.components.driver.loading import LOADED_MODULE
from gpunode.fleet.access import errors
from gpunode.fleet.engine import apply, readings
from gpunode.fleet.engine.parts import EngineError, Member
from gpunode.fleet.engine.readings import Outcome
from gpunode.fleet.inventory_files import InventoryError
from gpunode.fleet.reports.document import document
from gpunode.fleet.reports.run_end import HostEnd, report_of
from gpunode.node.plan import Plan, PlannedStep, plan_from
from gpunode.node.plan import plan as planned
from gpunode.node.recorded import read_facts, read_settings
from tests.support.messages import unnamed

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples" / "plan"
SCHEDULER = "127.0.0.1:8786"
SUMMARY = NodeSummary("Debian 12", "6.1", "580.1", None, None, "1.18", ("H100", "H100"), 2, 2, "0.1.0")
WELL = NodeReport("gpu-1", (LOADED_MODULE.finding(FindingClass.OK, "580", "580"),), SUMMARY)
OFF = NodeReport(
    "gpu-2",
    (replace(LOADED_MODULE.compared("570", "580", False, disruption=Disruption.reboot), since="2026-01-01"),),
)


def answered(*reports: NodeReport, names: Sequence[str] = (), **more: Any) -> Outcome:
    told = json.loads(json.dumps({**document(reports), **more}))
    return Outcome(tuple(names) or tuple(each.name for each in reports), "berlin, process 7", told, None, True)


def failed(name: str, why: str, began: bool = True) -> Outcome:
    return Outcome((name,), None, None, why, began)


def refused(name: str) -> Outcome:
    said = {"error": "no program pyinfra", "code": "run.no-program"}
    return Outcome((name,), "berlin, process 7", said, None, True)


Turns = list[list[Outcome | Exception]]


@pytest.fixture
def seen() -> list[tuple[Any, ...]]:
    """Return what the workers are asked, each time."""
    return []


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch, seen: list[tuple[Any, ...]]) -> Turns:
    """Return what SIMULATED workers give, one list for each time that they are asked; an error is raised."""
    turns: Turns = []

    def outcomes(*given: Any, **more: Any) -> Iterator[Outcome]:
        seen.append((*given, more))
        for each in turns.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each

    def roster(inventory: Path, limit: Any = (), only: Any = None) -> tuple[Member, ...]:
        names = ("gpu-1", "gpu-2", "gpu-3")
        return tuple(Member(name, name, "") for name in names if only is None or name in only)

    monkeypatch.setattr(readings, "outcomes", outcomes)
    for module in (readings, apply):
        monkeypatch.setattr(module, "roster", roster)
    return turns


def reports(**more: Any) -> dict[str, NodeReport]:
    found = readings.reports(SCHEDULER, Path("fleet.py"), lambda hosts, done: None, 120, **more)
    return {each.name: each for each in found}


def test_reports_are_those_that_workers_printed_in_the_inventory_s_order(workers: Turns) -> None:
    workers.append([answered(OFF), answered(WELL)])
    found = reports()
    assert list(found) == ["gpu-1", "gpu-2"]
    assert (found["gpu-1"], found["gpu-2"]) == (WELL, OFF)
    assert found["gpu-1"].summary == SUMMARY and found["gpu-2"].summary is None
    assert found["gpu-2"].findings[0].since == "2026-01-01"


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        (failed("gpu-2", "scheduler lost"), ["scheduler lost"]),
        (refused("gpu-2"), ["no program pyinfra", "berlin", 7, "run.no-program"]),
        (answered(names=("gpu-2",)), ["berlin", 7]),
    ],
)
def test_hosts_that_no_document_tells_of_are_errors_with_the_reason(
    workers: Turns, outcome: Outcome, named: list[object]
) -> None:
    workers += [[answered(WELL), outcome]] * 2
    (finding,) = reports()["gpu-2"].findings
    assert (finding.finding_class, finding.code) == (FindingClass.ERROR, "engine.part-lost")
    assert unnamed(finding.cause, *named) == []
    with pytest.raises(EngineError, match="gpu-2"):
        reports(whole=True)


def test_plans_survive_their_json(workers: Turns) -> None:
    hosts = {host.name: host.node for host in read_facts(EXAMPLES / "facts.json") if host.node is not None}
    settings = read_settings(EXAMPLES / "settings.yaml", (*hosts, "gpu-gone"))
    plans = {name: planned(settings[name], node) for name, node in hosts.items()}
    assert any(found.steps for found in plans.values()) and any(found.refusals for found in plans.values())
    for found in plans.values():
        assert plan_from(json.loads(json.dumps(found.to_json()))) == found
    silent = {"verdict": "unreachable", "reason": "x", "remedy": "y", "code": "node.connection"}
    told = {"hosts": {"gpu-1": next(iter(plans.values())).to_json(), "gpu-2": silent}}
    workers.append([Outcome(("gpu-1", "gpu-2"), "w", told, None, True), failed("gpu-3", "lost")])
    read = readings.plans(SCHEDULER, Path("fleet.py"), lambda hosts, done: None)
    assert list(read) == ["gpu-1", "gpu-2", "gpu-3"] and read["gpu-1"] == next(iter(plans.values()))
    reasons = [(each.code, each.cause) for each in read.values() if isinstance(each, Finding)]
    assert reasons == [("node.connection", "x"), ("engine.part-lost", "lost")]


def test_the_cluster_s_plans_of_several_workers_are_one(workers: Turns) -> None:
    steps = [PlannedStep("device_plugin", action, None, "there", Disruption.nothing) for action in ("a", "b", "c")]
    outcomes = []
    for name, part in (("gpu-1", steps[:2]), ("gpu-2", steps[1:])):
        cluster = Plan((), (), tuple(part), cluster="prod").to_json()
        told = {"hosts": {name: Plan((), (), ()).to_json()}, "cluster": cluster}
        outcomes.append(Outcome((name,), "w", told, None, True))
    workers.append([*outcomes, failed("gpu-3", "lost")])
    read = readings.plans(SCHEDULER, Path("fleet.py"), lambda hosts, done: None)
    assert read[CLUSTER] == Plan((), (), tuple(steps), cluster="prod")


QUIET = Plan((), (), (PlannedStep("driver", "install", None, "580", Disruption.nothing),))
BOOTS = Plan((), (), (PlannedStep("driver", "install", "570", "580", Disruption.reboot),))


def ends(plans: dict[str, Plan | Finding], tells: list[str] | None = None) -> dict[str, HostEnd]:
    nodes = [name for name, found in plans.items() if isinstance(found, Plan)]
    tell = (tells if tells is not None else []).append
    return {each.name: each for each in apply.ends(SCHEDULER, Path("fleet.py"), plans, nodes, tell)}


def test_a_run_ends_on_each_host_as_its_worker_says(workers: Turns) -> None:
    tells: list[str] = []
    told = answered(WELL, names=("gpu-1", "gpu-2"), left_alone={"gpu-2": "not verified"}, log=".run/log")
    workers.append([told])
    found = ends({"gpu-1": QUIET, "gpu-2": QUIET, "gpu-3": errors.unreached("no route")}, tells)
    assert report_of(found["gpu-1"]) == WELL
    assert found["gpu-2"].left_alone == "not verified"
    assert found["gpu-3"].findings == (errors.unreached("no route"),)
    assert unnamed(tells[0], "2 of 2", "gpu-1", "gpu-2", "berlin", ".run/log") == [] and len(tells) == 1


def test_what_was_cut_off_is_looked_at_again_and_what_was_not_begun_is_left_alone(
    workers: Turns,
) -> None:
    workers.append([failed("gpu-1", "lost"), refused("gpu-2"), failed("gpu-3", "none there", began=False)])
    found = ends(dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), QUIET))
    assert apply.lost(found.values()) == ["gpu-1"]
    assert found["gpu-2"].failure is not None and found["gpu-2"].failure.cause == "no program pyinfra"
    assert str(found["gpu-3"].left_alone).endswith(": none there")
    workers.append([answered(WELL)])
    again = apply.looked_again(SCHEDULER, Path("fleet.py"), list(found.values()))
    assert again[0] == replace(found["gpu-1"], findings=WELL.findings)
    report = report_of(again[0])
    assert report is not None and {item.code for item in report.findings} == {"driver.loaded-module", "run.broken-off"}
    workers.append([failed("gpu-1", "gone")])
    again = apply.looked_again(SCHEDULER, Path("fleet.py"), list(found.values()))
    assert again[0].cut_off and again[0].cut_off != found["gpu-1"].cut_off and again[1:] == list(found.values())[1:]


def test_what_has_ended_is_told_whatever_becomes_of_the_engine_and_of_the_inventory(
    workers: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.append([answered(WELL), EngineError("scheduler lost")])
    # The inventory is a program, and has no gpu-9 any more.
    found = ends(dict.fromkeys(("gpu-1", "gpu-2", "gpu-9"), QUIET))
    assert report_of(found["gpu-1"]) == WELL and "scheduler lost" in str(found["gpu-2"].cut_off)
    assert found["gpu-9"].left_alone

    def refuses(*given: Any, **more: Any) -> Any:
        raise InventoryError("another host")

    monkeypatch.setattr(readings, "roster", refuses)
    again = apply.looked_again(SCHEDULER, Path("fleet.py"), list(found.values()))
    assert "another host" in str(again[1].cut_off)


def test_where_nothing_ended_the_engine_s_refusal_is_the_command_s(workers: Turns) -> None:
    workers.append([EngineError("no scheduler")])
    with pytest.raises(EngineError, match="no scheduler"):
        ends({"gpu-1": QUIET})


def test_nodes_that_a_run_disturbs_are_told_to_the_engine(workers: Turns, seen: list[tuple[Any, ...]]) -> None:
    workers.append([answered(WELL), failed("gpu-2", "x"), failed("gpu-3", "x")])
    ends({"gpu-1": QUIET, "gpu-2": BOOTS, "gpu-3": QUIET})
    ((_, _, words, members, more),) = seen
    assert more["changes"] and words == ("apply", "--yes", "--output", "json")
    assert {each.name: each.disturbed for each in members} == {"gpu-1": False, "gpu-2": True, "gpu-3": False}


FINDING = WELL.findings[0].to_json()
PLAN = QUIET.to_json()


@pytest.mark.parametrize(
    ("command", "document", "usable"),
    [
        ("drift", {"hosts": {"gpu-1": {"summary": None, "findings": [FINDING]}}}, True),
        ("drift", {"hosts": {"gpu-1": {"summary": None, "findings": []}, "gpu-3": {"findings": []}}}, False),
        ("drift", {"left_alone": {"gpu-3": "why"}}, False),
        ("drift", {"left_alone": {"gpu-1": 7}}, False),
        ("drift", {"error": ["x"]}, False),
        ("drift", {"error": "x", "code": 1}, False),
        ("drift", {"hosts": [1]}, False),
        ("drift", {"hosts": {"gpu-1": {"findings": [{**FINDING, "cause": 1}]}}}, False),
        ("drift", {"hosts": {"gpu-1": {"findings": [], "summary": {}}}}, False),
        ("drift", {"hosts": {"gpu-1": PLAN | {"findings": None}}}, False),
        ("drift", {"cluster": {"name": "prod", "findings": []}}, True),
        ("drift", {"cluster": {"name": "test", "findings": []}}, False),
        ("drift", {"cluster": {"name": "gpu-1", "findings": [1]}}, False),
        ("drift", {"cluster": 1}, False),
        ("plan", {"hosts": {"gpu-1": PLAN}}, True),
        ("plan", {"hosts": {"gpu-1": {"findings": []}}}, False),
        ("plan", {"hosts": {"gpu-1": PLAN | {"steps": [PLAN["steps"][0] | {"actual": 1}]}}}, False),
        ("plan", {"hosts": {"gpu-1": PLAN | {"steps": [PLAN["steps"][0] | {"disruption": "x"}]}}}, False),
        ("plan", {"hosts": {"gpu-1": PLAN | {"steps": [PLAN["steps"][0] | {"packages": [1]}]}}}, False),
        ("plan", {"hosts": {"gpu-1": PLAN | {"refusals": [{"component": "driver"}]}}}, False),
        ("plan", {"hosts": {"gpu-1": {"verdict": "unreachable", "reason": 1, "remedy": "", "code": "x"}}}, False),
    ],
)
def test_a_document_that_is_not_about_its_part_is_not_used(
    monkeypatch: pytest.MonkeyPatch, command: str, document: dict[str, Any], usable: bool
) -> None:
    lines = [
        {"names": ["gpu-1"], "waits": "noon"},
        {"names": ["gpu-1"], "document": document},
        {"names": ["gpu-3"], "document": {}},
    ]

    @contextlib.contextmanager
    def client(request: object) -> Iterator[Any]:
        yield [json.dumps(line) for line in lines], lambda: "ended"

    monkeypatch.setattr(readings, "_client", client)
    members = [Member("gpu-1", "gpu-1", "", cluster="prod"), Member("gpu-3", "gpu-3", "", cluster="test")]
    first, second = readings.outcomes(SCHEDULER, "fleet.py", (command,), members)
    assert (first.document, bool(first.why)) == ((document, False) if usable else (None, True))
    assert second.document == {} and second.why is None
