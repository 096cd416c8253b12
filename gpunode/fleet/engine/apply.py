"""Runs by workers: each carries out `gpunode apply` on a part, and how each node ended is told as of a run of ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpunode.base.disruption import Disruption
from gpunode.base.errors import CodedError
from gpunode.base.findings import Finding, finding_from, nodes_of
from gpunode.base.folding import folded
from gpunode.base.messages import Scope, with_code
from gpunode.fleet.engine import readings
from gpunode.fleet.engine.parts import EngineError
from gpunode.fleet.engine.readings import Outcome, roster
from gpunode.fleet.reports.run_end import HostEnd, failure_of, not_run

if TYPE_CHECKING:
    from gpunode.node.plan import Plan

_WORDS = ("apply", "--yes", "--output", "json")


def ends(
    scheduler: str,
    inventory: Path,
    plans: Mapping[str, Plan | Finding],
    nodes: Sequence[str],
    tell: Callable[[str], None],
) -> list[HostEnd]:
    """Return how a run ended on each host that was planned for; raise what `roster` and `readings.outcomes` raise.

    nodes: the hosts that the run is made on; tell: a line for each part that has ended
    """
    made = {name: plan for name, plan in plans.items() if not isinstance(plan, Finding)}
    disturbed = {name for name, plan in made.items() if plan.disruption > Disruption.nothing}
    members = [replace(each, disturbed=each.name in disturbed) for each in roster(inventory, only=nodes)]
    found: dict[str, HostEnd] = {}
    ended: list[Outcome] = []
    lost = None
    try:
        for outcome in readings.outcomes(scheduler, str(inventory), _WORDS, members, changes=True):
            ended.append(outcome)
            found |= {end.name: end for end in _ends(outcome)}
            tell(f"{len(found)} of {len(nodes)} nodes: {folded(outcome.names)}: {_how(outcome)}")
    except EngineError as error:
        # Where nothing has ended nothing was begun that anybody would have to know of.
        if not found:
            raise
        lost = str(error)
    known = {member.name for member in members}
    ends = [not_run(name, plan) or found.get(name) or _unknown(name, known, lost) for name, plan in plans.items()]
    cluster = readings.cluster_report(ended, {})
    return ends + [HostEnd(each.name, findings=each.findings, scope=each.scope) for each in cluster]


def _unknown(name: str, known: Collection[str], lost: str | None) -> HostEnd:
    if name not in known:
        return HostEnd(name, left_alone="nothing was begun: the inventory had no such host any more")
    return HostEnd(name, cut_off=lost or "nobody says what became of it")


def _how(outcome: Outcome) -> str:
    if outcome.document is None:
        return str(outcome.why)
    log = outcome.document.get("log")
    return f"ended, by {outcome.worker}" + (f"; its log there: {log}" if log else "")


def _ends(outcome: Outcome) -> Iterator[HostEnd]:
    document = outcome.document or {}
    hosts, alone = document.get("hosts") or {}, document.get("left_alone") or {}
    where = f"`gpunode apply` by the worker {outcome.worker}"
    for name in outcome.names:
        if name in hosts:
            yield HostEnd(name, findings=tuple(map(finding_from, hosts[name]["findings"])))
        elif name in alone:
            yield HostEnd(name, left_alone=alone[name])
        elif "error" in document:
            error = with_code(document["error"], document["code"]) if document.get("code") else document["error"]
            yield HostEnd(name, failure=failure_of(where, [error]))
        elif not outcome.began:
            yield HostEnd(name, left_alone=f"nothing was begun: {outcome.why}")
        else:
            yield HostEnd(name, cut_off=f"{outcome.why or 'the worker says nothing of this node'}")


def lost(found: Collection[HostEnd]) -> list[str]:
    """Return the hosts of which nobody knows how they are: the run on them was cut off."""
    return [end.name for end in found if end.cut_off is not None and end.findings is None]


def looked_again(scheduler: str, inventory: Path, found: Sequence[HostEnd]) -> list[HostEnd]:
    """Return the ends with what other workers find of the nodes whose run was cut off, where they can."""
    try:
        told = readings.reports(
            scheduler, inventory, lambda hosts, done: None, readings.SECONDS, only=lost(found), whole=True
        )
    except CodedError as error:
        return [
            replace(end, cut_off=f"{end.cut_off}; nor could it be looked at again: {error}") if end.cut_off else end
            for end in found
        ]
    reports = {report.name: report.findings for report in nodes_of(told)}
    return [
        replace(end, findings=reports[end.name]) if end.name in reports and end.scope is Scope.NODE else end
        for end in found
    ]
