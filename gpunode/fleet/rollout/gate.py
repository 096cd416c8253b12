"""The gate between waves: did the run succeed on a node, and is the node what its settings ask? Pure.

Whether the cluster has the node, finds it ready and would give it work is a `ClusterView`; what the node is to offer
there is among what is read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpunode.base.findings import FindingClass, NodeReport, worst
from gpunode.fleet.rollout.choice import said
from gpunode.fleet.rollout.entries import Outcome

# Where a run failed and no finding says more, nobody read the node, or only the cluster is against it.
_RUN_FAILED, _NOT_READ, _AGAINST = "run.failed", "rollout.not-read", "rollout.cluster-against"
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
    by_name = {report.name: report for report in reports}
    against = cluster(nodes) if cluster is not None else {}
    return {name: _outcome(name, run, by_name.get(name), against.get(name)) for name in nodes}


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
        reasons, code = [run.reason or "the run failed on it"], _RUN_FAILED
    if bad := [item for item in report.findings if item.is_negative]:
        gravest = next(item for item in bad if item.finding_class is found)
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        reasons.append(said(gravest) + more)
        remedy, code = gravest.remedy, gravest.code
    if against is not None:
        reasons.append(f"the cluster: {against}")
        code = code or _AGAINST
    said_of = "; ".join(reasons) or None
    return Outcome(finding_class=found, passed=not reasons, reason=said_of, remedy=remedy, code=code)
