"""Is it still so? Judge every node of an inventory by one reading of it; change nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

# Before anything of pyinfra's.
from gpunode.base import fast_import  # noqa: F401  # isort: skip
from gpunode.base.comparison import while_refused
from gpunode.base.findings import Finding, FindingClass, NodeReport, with_since
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet import nodes as fleet
from gpunode.fleet.access import errors
from gpunode.fleet.inventory import host_settings
from gpunode.fleet.nodes import Answer
from gpunode.fleet.reports.run_end import refusal_finding
from gpunode.node import Node
from gpunode.node.preflight import refusals
from gpunode.node.verdict import judge_apart, summary


def inspect(
    inventory_path: Path,
    watch: fleet.Watch = fleet.unwatched,
    seconds: float = fleet.ANSWER_SECONDS,
    processes: int | None = None,
    only: Collection[str] | None = None,
    limit: Collection[str] = (),
) -> tuple[NodeReport, ...]:
    """Return a report per host of the inventory, read as by fleet.read, and one of the cluster that they are nodes of.

    Raise SettingsError before any connection.
    """
    answers = fleet.read(inventory_path, NodeFact, watch, seconds=seconds, processes=processes, only=only, limit=limit)
    if not any(answer.settings.kubernetes.enabled for answer in answers):
        return tuple(contained_report(answer) for answer in answers)
    # Late: what is in no cluster needs none of it.
    from gpunode.fleet import cluster

    of_cluster = cluster.cluster_nodes(inventory_path, (answer.settings for answer in answers))
    assert of_cluster is not None
    answers = tuple(cluster.with_cluster_nodes(answers, of_cluster))
    reports = {answer.name: contained_report(answer) for answer in answers}
    # One that does not answer is reported once, as the cluster's.
    drained = {answer.name: answer.settings for answer in answers if not answer.no_cluster}
    cordons = cluster.held_back(inventory_path, drained)
    refused = {name for name, each in reports.items() if any(item.what == "preflight" for item in each.findings)}
    cordons = {name: while_refused(item) if name in refused else item for name, item in cordons.items()}
    nodes = {answer.name: _judged(answer, reports[answer.name]) for answer in answers}
    # The whole inventory says what the release is to be, and the answers what their labels add to a node's settings.
    hosts = host_settings(inventory_path) | {each.name: each.settings for each in answers}
    found, report = cluster.findings(inventory_path, hosts, nodes, of_cluster)
    every = [
        replace(each, findings=(*each.findings, *([cordons[name]] if name in cordons else ()), *found.get(name, ())))
        for name, each in reports.items()
    ]
    return tuple(every) if report is None else (*every, report)


def _judged(answer: Answer[Node], report: NodeReport) -> Node | None:
    """Return the node as it was read; None where it was not, or cannot be what the settings ask."""
    is_unsupported = any(item.finding_class is FindingClass.UNSUPPORTED for item in report.findings)
    return answer.reading if isinstance(answer.reading, Node) and not is_unsupported else None


def contained_report(answer: Answer[Node]) -> NodeReport:
    """Return a node's report; what cannot be judged is an error of that node and component, and of no other."""
    if not isinstance(answer.reading, Node):
        return NodeReport(answer.name, (unread(answer),))
    try:
        refused = (answer.refusal,) if answer.refusal else refusals(answer.settings, answer.reading)
        found = judge_apart(answer.settings, answer.reading, refused, errors.unjudged, answer.no_cluster)
        findings = (*map(refusal_finding, refused), *found)
        waiting = dict(answer.reading.applied.waiting)
        return NodeReport(answer.name, with_since(findings, waiting), summary(answer.reading))
    except Exception as error:
        return NodeReport(answer.name, (errors.unjudged(error),))


def unread(answer: Answer[Any]) -> Finding:
    """Return why a node was not reached, or not understood."""
    return (errors.unreached if answer.reading is None else errors.unreadable)(answer.reason)
