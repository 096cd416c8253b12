"""Is it still so? Judge every node of an inventory by one reading of it; change nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

# Before anything of pyinfra's.
from gpunode.base import fast_import  # noqa: F401  # isort: skip
from gpunode.base.findings import Finding, FindingClass, NodeReport, worst
from gpunode.base.reading import Unknown
from gpunode.base.waiting import with_since
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet import nodes as fleet
from gpunode.fleet.access import errors
from gpunode.fleet.inventory import foreign_names, host_data
from gpunode.fleet.nodes import Answer
from gpunode.fleet.reports.run_end import refusal_finding
from gpunode.node import Node
from gpunode.node.preflight import refusals
from gpunode.node.summary import summary
from gpunode.node.verdict import judge
from gpunode.settings import check_hosts


def inspect(
    inventory_path: Path,
    watch: fleet.Watch = fleet.unwatched,
    seconds: float = fleet.ANSWER_SECONDS,
    processes: int | None = None,
    only: Collection[str] | None = None,
    limit: Collection[str] = (),
) -> tuple[NodeReport, ...]:
    """Return a report per host of the inventory, read as by fleet.read; raise SettingsError before any connection."""
    answers = fleet.read(inventory_path, NodeFact, watch, seconds=seconds, processes=processes, only=only, limit=limit)
    if not any(answer.settings.kubernetes.enabled for answer in answers):
        return tuple(contained_report(answer) for answer in answers)
    # Late: what is in no cluster needs none of it.
    from gpunode.fleet.cluster import held_back, with_cluster_nodes

    answers = tuple(with_cluster_nodes(inventory_path, answers))
    reports = tuple(contained_report(answer) for answer in answers)
    cordons = held_back(inventory_path, {answer.name: answer.settings for answer in answers})
    reports = tuple(replace(each, findings=(*each.findings, *_of(cordons.get(each.name)))) for each in reports)
    return with_cluster(inventory_path, answers, reports)


def _of(finding: Finding | None) -> tuple[Finding, ...]:
    return () if finding is None else (finding,)


def with_cluster(
    inventory_path: Path, answers: Collection[Answer[Node]], reports: tuple[NodeReport, ...]
) -> tuple[NodeReport, ...]:
    """Return the reports with what the cluster says of the nodes that could be judged; without one as they are."""
    if not any(answer.settings.kubernetes.enabled for answer in answers):
        return reports
    from gpunode.fleet import drift_cluster

    by_name = {report.name: report for report in reports}
    nodes = {
        answer.name: answer.reading
        for answer in answers
        if isinstance(answer.reading, Node) and worst(by_name[answer.name].findings) is not FindingClass.UNSUPPORTED
    }
    # The whole inventory says what the release is to be, and the answers what their labels add to a node's settings.
    hosts = check_hosts(host_data(inventory_path), foreign_names()) | {each.name: each.settings for each in answers}
    found = drift_cluster.findings(inventory_path, hosts, nodes)
    return tuple(replace(each, findings=(*each.findings, *found.get(each.name, ()))) for each in reports)


def contained_report(answer: Answer[Node]) -> NodeReport:
    """Return a node's report; what cannot be judged is that node's error and no other's."""
    try:
        return _report(answer)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        finding = Finding("node", FindingClass.ERROR, "state", "cannot be judged", None, cause, "look at the node")
        return NodeReport(answer.name, (finding,))


def _report(answer: Answer[Node]) -> NodeReport:
    cause, remedy = errors.parted(answer.reason)
    if answer.reading is None:
        finding = Finding(
            "node",
            FindingClass.UNREACHABLE,
            "connection",
            "none",
            "ssh",
            cause,
            remedy or "check address, key and known hosts",
        )
        return NodeReport(answer.name, (finding,))
    if isinstance(answer.reading, Unknown):
        finding = Finding(
            "node", FindingClass.ERROR, "state", "unreadable", "readable", cause, remedy or "look at the node"
        )
        return NodeReport(answer.name, (finding,))
    refused = (answer.refusal,) if answer.refusal else refusals(answer.settings, answer.reading.machine)
    unsupported = tuple(map(refusal_finding, refused))
    findings = unsupported or judge(answer.settings, answer.reading)
    waiting = dict(answer.reading.applied.waiting)
    return NodeReport(answer.name, with_since(findings, waiting), summary(answer.reading))
