"""How a run ended on each host that was planned for, as pyinfra's parent knows it, and what that comes to. Pure.

pyinfra may crash, be killed, or be ended by SIGINT, by which it exits 0: no node looks good that it did not judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gpunode.base.findings import ExitCode, Finding, verdict
from gpunode.base.messages import Scope
from gpunode.fleet.reports.run_end import Failure, HostEnd, host_end_from, refusal_finding, report_of
from gpunode.fleet.run.progress import Progress

if TYPE_CHECKING:
    from gpunode.node.plan import Plan


def ends_of(plans: Mapping[str, Plan | Finding], progress: Progress, code: int) -> list[HostEnd]:
    """Return how it ended on each host, those that the run was not made on among them, and on the cluster.

    code: pyinfra's exit status, negative for a signal
    """
    every = list(map(host_end_from, progress.ends or ()))
    judged = {end.name: end for end in every if end.scope is Scope.NODE}
    cluster = [end for end in every if end.scope is Scope.CLUSTER]
    ends = [not_run(name, found) or _run(judged.get(name), name, progress, code) for name, found in plans.items()]
    nodes = [end for end in ends if not_run(end.name, plans[end.name]) is None]
    if code and not any(map(_explains, nodes)):
        how = f"{how_it_ended(code)}, and says of no node why"
        lost = {end.name: replace(end, cut_off=how) for end in nodes}
        ends = [lost.get(end.name, end) for end in ends]
    return ends + cluster


def how_it_ended(code: int) -> str:
    """Return how pyinfra ended, in words."""
    return f"pyinfra was ended by signal {-code}" if code < 0 else f"pyinfra exited {code}"


def status_of(ends: Collection[HostEnd]) -> ExitCode:
    """Return the exit status: that of all findings; a node that nobody judged waits at the least.

    An image does not: nobody could judge it before it boots, and it is made.
    """
    reports = {end: report_of(end) for end in ends}
    status = verdict(item for report in reports.values() if report is not None for item in report.findings)
    waits = any(report is None and end.unverified is None for end, report in reports.items())
    return ExitCode.NEGATIVE if status is ExitCode.GOOD and waits else status


def is_lost(ends: Iterable[HostEnd], progress: Progress, nodes: int) -> bool:
    """Say whether the end of pyinfra's log has to tell how it ended.

    nodes: how many the run was made on
    """
    return any(end.cut_off for end in ends) or (progress.ends is None and len(progress.unreached) < nodes)


def not_run(name: str, found: Plan | Finding) -> HostEnd | None:
    """Return the end of a host that no run is made on: it gave no answer, or is refused; None of the others."""
    if isinstance(found, Finding):
        return HostEnd(name, findings=(found,))
    return HostEnd(name, refused=tuple(map(refusal_finding, found.refusals))) if found.refusals else None


def _run(told: HostEnd | None, name: str, progress: Progress, code: int) -> HostEnd:
    end = told or HostEnd(name, unreached=progress.unreached.get(name))
    if told is None and end.unreached is None and name in progress.failed:
        end = replace(end, failure=Failure(progress.failed[name]))
    if report_of(end) is None and end.left_alone is None and end.unverified is None:
        return replace(end, cut_off=f"{how_it_ended(code)} before it came to a verdict on this node")
    return end


def _explains(end: HostEnd) -> bool:
    """Say whether pyinfra failed by this host."""
    return bool(end.unreached is not None or end.refused or end.failure or end.cut_off)
