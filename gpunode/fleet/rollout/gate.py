"""The gate between waves: did the run succeed on a node, and are the node and its cluster what the settings ask? Pure.

Whether the cluster has the node, finds it ready and would give it work is a `ClusterView`; what the node is to offer
there is among what is read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpunode.base.findings import PENDING, Finding, FindingClass, NodeReport, cluster_of, nodes_of, worst
from gpunode.base.messages import command_error
from gpunode.fleet.rollout.choice import said
from gpunode.fleet.rollout.entries import Outcome

RUN_FAILED = command_error(
    "run.failed", "The run of pyinfra failed.",
    "An operation failed on a node, or a node was lost. In a CI job it may be another machine of the same job.",
    remedy="read the run's log",
)  # fmt: skip
_NOT_READ = command_error(
    "rollout.not-read", "A node was not read after its run.",
    "The gate between waves passes no node whose state is not known.",
    remedy="look with `gpunode drift`, and go on with `gpunode rollout --resume`", exit="2",
)  # fmt: skip
_AGAINST = command_error(
    "rollout.cluster-against", "The cluster would give the node no work after its run.",
    "The node itself is as desired. In the cluster it is not ready, or not known.",
    remedy="see `kubectl describe node NODE`, and go on with `gpunode rollout --resume`", exit="2",
)  # fmt: skip
# Asked for a wave's nodes, returns node -> why the cluster would not give it work.
ClusterView = Callable[[Sequence[str]], Mapping[str, str]]


@dataclass(frozen=True)
class RunResult:
    """Hold on which nodes pyinfra failed, and what is to be said of that."""

    failed: frozenset[str] = frozenset()
    reason: str | None = None


def outcomes(
    nodes: Sequence[str], run: RunResult, reports: Iterable[NodeReport], cluster: ClusterView | None = None
) -> dict[str, Outcome]:
    """Return node -> what the gate says of it, by the run, by a reading of the node afterwards, and by the cluster."""
    by_name = {report.name: report for report in nodes_of(reports)}
    against = cluster(nodes) if cluster is not None else {}
    return {name: _outcome(name, run, by_name.get(name), against.get(name)) for name in nodes}


def cluster_outcome(reports: Iterable[NodeReport]) -> Outcome | None:
    """Return what the gate reports of the cluster; None where no node is in one. What is pending stops no rollout."""
    if (report := cluster_of(reports)) is None:
        return None
    found = worst(report.findings)
    if not any(item.is_negative for item in report.findings):
        return Outcome(finding_class=found, passed=True)
    passed, (reason, gravest) = found in PENDING, _gravest(report)
    return Outcome(finding_class=found, passed=passed, reason=reason, remedy=gravest.remedy, code=gravest.code)


def _gravest(report: NodeReport) -> tuple[str, Finding]:
    """Return what the gravest negative finding says, with how many more there are, and that finding."""
    bad = [item for item in report.findings if item.is_negative]
    gravest = next(item for item in bad if item.finding_class is worst(bad))
    return said(gravest) + (f", and {len(bad) - 1} more" if len(bad) > 1 else ""), gravest


def _outcome(name: str, run: RunResult, report: NodeReport | None, against: str | None) -> Outcome:
    if report is None:
        reason = "the node was not read after its run"
        return Outcome(finding_class=FindingClass.ERROR, passed=False, reason=reason, code=_NOT_READ)
    found = worst(report.findings)
    # A run that failed is the cause of what is found then.
    reasons: list[str] = []
    remedy: str | None = None
    code: str | None = None
    if name in run.failed:
        reasons, code = [run.reason or "the run failed on it"], RUN_FAILED
    if any(item.is_negative for item in report.findings):
        reason, gravest = _gravest(report)
        reasons.append(reason)
        remedy, code = gravest.remedy, gravest.code
    if against is not None:
        reasons.append(f"the cluster: {against}")
        code = code or _AGAINST
    said_of = "; ".join(reasons) or None
    return Outcome(finding_class=found, passed=not reasons, reason=said_of, remedy=remedy, code=code)
