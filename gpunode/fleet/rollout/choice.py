"""Which nodes a rollout takes, who goes first, and which pass the gate after their wave: from readings of nodes. Pure.

The gate asks whether the run succeeded on a node, and whether the node and its cluster are what the settings ask.
Whether the cluster has the node, finds it ready and would give it work is a `ClusterView`; what the node is to offer
there is among what is read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpunode.base.comparison import RUN_AGAIN
from gpunode.base.disruption import Disruption
from gpunode.base.errors import CodedError
from gpunode.base.findings import PENDING, Finding, FindingClass, NodeReport, cluster_of, nodes_of, worst
from gpunode.base.messages import command_error
from gpunode.fleet.rollout.entries import LeftOut, Outcome

NOT_ALL_KNOWN = "as desired, but for what is not known and no setting asks for"
_HEALED_BY_A_RUN = (FindingClass.DRIFT, *PENDING)


class CanaryError(CodedError, ValueError):
    """Say which canary cannot be one, and what to do."""

    code = command_error(
        "rollout.canary", "A canary is not in the inventory, or cannot be changed.",
        "It is refused, does not answer, or no run can correct it.",
        remedy="name another canary, or say how many nodes go first", exit="64",
    )  # fmt: skip


def left_out(report: NodeReport, everyone: bool, allowed: Disruption = Disruption.reboot) -> LeftOut | None:
    """Return why a node is not touched; None where it is to be brought to what is asked.

    everyone: take a node that is as desired, too. A node that no run can mend stays out in any case.
    allowed: disruption.allow of its settings: a run does nothing about what waits for more than that
    """
    classes = {item.finding_class for item in report.findings}
    for kind in (FindingClass.UNREACHABLE, FindingClass.UNSUPPORTED):
        if kind in classes:
            return _left(report, kind)
    # A run mends it, where the settings allow that.
    healed = [item for item in report.findings if item.finding_class in _HEALED_BY_A_RUN and not item.by_person]
    if any(not _waits(item, allowed) for item in healed):
        return None
    if waiting := [item for item in report.findings if _waits(item, allowed)]:
        first = max(waiting, key=lambda item: item.finding_class is FindingClass.REBOOT_PENDING)
        since = f" since {first.since}" if first.since else ""
        reason = f"{said(first)}, it waits{since}, and disruption.allow is {allowed.name}"
        return LeftOut(finding_class=first.finding_class, reason=reason, code=first.code)
    if FindingClass.ERROR in classes:
        return _left(report, FindingClass.ERROR)
    if by_person := [item for item in report.findings if item.by_person and item.finding_class in _HEALED_BY_A_RUN]:
        return _left(report, worst(by_person))
    if any(item.finding_class is FindingClass.NOT_KNOWN and item.is_negative for item in report.findings):
        return _left(report, FindingClass.NOT_KNOWN)
    found = worst(report.findings)
    reason = "as desired" if found is FindingClass.OK else NOT_ALL_KNOWN
    return None if everyone else LeftOut(finding_class=found, reason=reason)


def _waits(item: Finding, allowed: Disruption) -> bool:
    """Say whether a finding waits for what the settings do not allow: each run leaves it as it is."""
    if item.finding_class not in PENDING:
        return False
    boots = Disruption.reboot if item.finding_class is FindingClass.REBOOT_PENDING else Disruption.nothing
    return max(item.disruption or Disruption.nothing, boots) > allowed


def _left(report: NodeReport, gravest: FindingClass) -> LeftOut:
    (first, *_) = (item for item in report.findings if item.finding_class is gravest)
    return LeftOut(finding_class=gravest, reason=said(first), code=first.code)


def said(item: Finding) -> str:
    """Return what a finding says, without its remedy."""
    if item.finding_class is FindingClass.UNREACHABLE:
        return f"unreachable: {item.cause or 'no connection'}"
    sides = f" is {item.actual or 'none'}, desired {item.desired or 'none'}" if item.actual or item.desired else ""
    return f"{item.finding_class}: {item.component}: {item.what}{sides}" + (f" ({item.cause})" if item.cause else "")


def canaries(desired: str, nodes: Sequence[str], left: dict[str, LeftOut]) -> tuple[str, ...]:
    """Return who goes first, of the nodes that are taken: the first so many, or those that are named.

    desired: a number, or names with commas between them. One that is as desired has nothing to prove, and is passed;
    raise CanaryError for one that is not in the inventory, or cannot be taken.
    """
    if desired.isascii() and desired.isdecimal():
        return tuple(nodes[: int(desired)])
    found: list[str] = []
    for name in dict.fromkeys(part.strip() for part in desired.split(",") if part.strip()):
        if name in nodes:
            found.append(name)
        elif name not in left:
            raise CanaryError(f"{name} is not in the inventory: name a host of it, or say how many go first")
        elif left[name].is_negative:
            raise CanaryError(f"{name} cannot go first: {left[name].reason}. Name another one")
    if not found and not desired.replace(",", "").strip():
        raise CanaryError("no canary is named: give names with commas between them, or a number")
    return tuple(found)


def sorted_out(
    reports: Iterable[NodeReport], everyone: bool, allowed: Mapping[str, Disruption] | None = None
) -> tuple[tuple[str, ...], dict[str, LeftOut]]:
    """Return the nodes that are taken, in the order of the inventory, and why each of the others is not.

    allowed: node -> disruption.allow; those that are not in it allow all
    """
    levels = allowed or {}
    left = {report.name: left_out(report, everyone, levels.get(report.name, Disruption.reboot)) for report in reports}
    return (
        tuple(name for name, reason in left.items() if reason is None),
        {name: reason for name, reason in left.items() if reason is not None},
    )


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


def outcomes(
    nodes: Sequence[str],
    failed: Mapping[str, Finding],
    reports: Iterable[NodeReport],
    cluster: ClusterView | None = None,
) -> dict[str, Outcome]:
    """Return node -> what the gate says of it, by the run, by a reading of the node afterwards, and by the cluster.

    failed: node -> why the run failed on it
    """
    by_name = {report.name: report for report in nodes_of(reports)}
    against = cluster(nodes) if cluster is not None else {}
    return {name: _outcome(name, failed.get(name), by_name.get(name), against.get(name)) for name in nodes}


def cluster_outcome(reports: Iterable[NodeReport]) -> Outcome | None:
    """Return what the gate reports of the cluster; None where no node is in one. What is pending stops no rollout."""
    if (report := cluster_of(reports)) is None:
        return None
    bad = [item for item in report.findings if item.is_negative]
    if not bad:
        return Outcome(finding_class=worst(report.findings), passed=True)
    # What is not known ranks below what is pending, and stops a rollout all the same.
    stopping = [item for item in bad if item.finding_class not in PENDING]
    found, (reason, gravest) = worst(stopping or bad), _gravest(stopping or bad, len(bad))
    return Outcome(finding_class=found, passed=not stopping, reason=reason, remedy=gravest.remedy, code=gravest.code)


def _gravest(bad: Sequence[Finding], count: int) -> tuple[str, Finding]:
    """Return what the gravest of these says, with how many of `count` negative findings are more, and that finding."""
    gravest = next(item for item in bad if item.finding_class is worst(bad))
    return said(gravest) + (f", and {count - 1} more" if count > 1 else ""), gravest


def _outcome(name: str, failure: Finding | None, report: NodeReport | None, against: str | None) -> Outcome:
    if report is None:
        reason = "the node was not read after its run"
        return Outcome(finding_class=FindingClass.ERROR, passed=False, reason=reason, code=_NOT_READ)
    found = worst(report.findings)
    # A run that failed is the cause of what is found then.
    reasons: list[str] = []
    remedy: str | None = None
    code: str | None = None
    if failure is not None:
        log = f"; log: {failure.log}" if failure.log else ""
        reasons, code = [f"{said(failure)}{log}"], failure.code
        remedy = (failure.remedy or "").replace(RUN_AGAIN, "go on with `gpunode rollout --resume`") or None
    if bad := [item for item in report.findings if item.is_negative and item != failure]:
        reason, gravest = _gravest(bad, len(bad))
        reasons.append(reason)
        remedy, code = remedy or gravest.remedy, code or gravest.code
    if against is not None:
        reasons.append(f"the cluster: {against}")
        code = code or _AGAINST
    said_of = "; ".join(reasons) or None
    return Outcome(finding_class=found, passed=not reasons, reason=said_of, remedy=remedy, code=code)
