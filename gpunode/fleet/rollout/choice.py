"""Which nodes a rollout takes, and who goes first: from one reading of every node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpunode.base.disruption import Disruption
from gpunode.base.errors import CodedError
from gpunode.base.findings import Finding, FindingClass, NodeReport, worst
from gpunode.fleet.rollout.entries import LeftOut

_PENDING = (FindingClass.RESTART_PENDING, FindingClass.REBOOT_PENDING)
_HEALED_BY_A_RUN = (FindingClass.DRIFT, *_PENDING)


class CanaryError(CodedError, ValueError):
    """Say which canary cannot be one, and what to do."""

    code = "rollout.canary"


def left_out(report: NodeReport, everyone: bool, allowed: Disruption = Disruption.reboot) -> LeftOut | None:
    """Return why a node is not touched; None where it is to be brought to what is asked.

    everyone: take a node that is as desired, too. A node that no run can mend stays out in any case.
    allowed: disruption.allow of its settings: a run does nothing about what waits for more than that
    """
    classes = {item.finding_class for item in report.findings}
    if FindingClass.UNREACHABLE in classes or FindingClass.UNSUPPORTED in classes:
        return _left(report, worst(report.findings))
    if any(_is_healed(item) and not _waits(item, allowed) for item in report.findings):
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
    return None if everyone else LeftOut(finding_class=FindingClass.OK, reason="as desired")


def _is_healed(item: Finding) -> bool:
    """Say whether a run mends it, where the settings allow that."""
    return item.finding_class in _HEALED_BY_A_RUN and not item.by_person


def _waits(item: Finding, allowed: Disruption) -> bool:
    """Say whether a finding waits for what the settings do not allow: each run leaves it as it is."""
    if item.finding_class not in _PENDING:
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
        elif left[name].finding_class is not FindingClass.OK:
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
