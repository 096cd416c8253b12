"""How a run ended on each of its hosts: the same findings that drift would tell, and what stopped where. Pure.

pyinfra may crash, be killed, or be ended by SIGINT, by which it exits 0: no node looks good that it did not judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpunode.base.comparison import RUN_AGAIN
from gpunode.base.explanations import OWN_CAUSE, OWN_REMEDY
from gpunode.base.findings import PENDING, ExitCode, Finding, FindingClass, NodeReport, finding_from, verdict, worst
from gpunode.base.folding import UNBOUND, fold, folded_in_a_line
from gpunode.base.messages import REMEDY, Scope, command_error, declared, parted
from gpunode.base.verdicts import Refusal
from gpunode.fleet.access import errors
from gpunode.fleet.call import SOME_CALL, Call
from gpunode.fleet.reports.findings_text import report_text
from gpunode.fleet.run.progress import Progress

if TYPE_CHECKING:
    from gpunode.node.plan import Plan


OPERATION_FAILED = command_error(
    "run.operation-failed", "An operation failed on this node, and no later operation was started on it.",
    "The message has the operation's name, the cause in the node's own words, and the log with the whole output. Other "
    "nodes went on. A change that is a transaction was undone.",
    remedy="correct what the cause says, and run the command again",
)  # fmt: skip
BROKEN_OFF = command_error(
    "run.broken-off", "pyinfra ended before it reported the state of the nodes.",
    "It was killed or it failed. On the nodes, a change in progress is finished or undone. Its last lines are printed; "
    "the log has all.",
    remedy="read the log, correct the cause, and run the command again",
)  # fmt: skip
# How scripts and operations of gpunode write why they fail.
_CAUSE = re.compile(rf"^{OWN_CAUSE} (.+)$", re.MULTILINE)
_REMEDY = re.compile(rf"(?:^{OWN_REMEDY} |{re.escape(REMEDY)})(.+)$", re.MULTILINE)


def failure_of(operation: str, reasons: Collection[str | Finding]) -> Finding:
    """Return why an operation failed: a finding among the reasons, else what their texts say.

    reasons: gpunode's own words, such as those of an operation that refuses; of a command's output `failed_by`'s
    finding, for a node may write any word
    """
    if (own := next((reason for reason in reasons if isinstance(reason, Finding)), None)) is not None:
        return replace(own, what=f"“{operation}”")
    text, code = parted("\n".join(map(str, reasons)))
    causes = _CAUSE.findall(text) or _REMEDY.sub("", text).splitlines()
    found = failed_by(causes, _REMEDY.findall(text), operation)
    return replace(found, code=code) if code and code in declared() else found


def failed_by(causes: Iterable[str], remedies: Iterable[str], operation: str = "") -> Finding:
    """Return that an operation failed, by these causes and remedies."""
    why, what_to_do = ("; ".join(dict.fromkeys(filter(str.strip, each))) for each in (causes, remedies))
    otherwise = f"{'correct what the cause says' if why else 'look at the node and at the log'}, and {RUN_AGAIN}"
    cause, remedy = why or "it failed and wrote nothing: it may have been killed", what_to_do or otherwise
    return Finding("run", FindingClass.ERROR, f"“{operation}”", cause=cause, remedy=remedy, code=OPERATION_FAILED)


@dataclass(frozen=True)
class HostEnd:
    """Hold how a run ended on one host, or what its verdict finds of the cluster, which has findings alone.

    unreached: why no connection came about; refused: what preflight says; left_alone: why nothing was done to it;
    failure: what stopped it; findings: of the verdict on the node, None where the run came to none; cut_off: how the
    run itself ended before its last operation on the host; unverified: why a run that did all comes to no verdict;
    log: where the whole output of the run is; cordon: of a node that the run drained and has not given back
    """

    name: str
    unreached: str | None = None
    refused: tuple[Finding, ...] = ()
    left_alone: str | None = None
    failure: Finding | None = None
    findings: tuple[Finding, ...] | None = None
    cut_off: str | None = None
    unverified: str | None = None
    scope: Scope = Scope.NODE
    log: str | None = None
    cordon: Finding | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        return {
            **vars(self),
            "refused": [item.to_json() for item in self.refused],
            "failure": None if self.failure is None else self.failure.to_json(),
            "findings": None if self.findings is None else [item.to_json() for item in self.findings],
            "scope": self.scope.value,
            "cordon": None if self.cordon is None else self.cordon.to_json(),
        }


def host_end_from(found: Mapping[str, Any]) -> HostEnd:
    """Return the end of which `to_json` gave this; raise KeyError, TypeError or ValueError where it did not."""
    failure, findings, cordon = found["failure"], found["findings"], found.get("cordon")
    read = {
        "refused": tuple(map(finding_from, found["refused"])),
        "failure": None if failure is None else finding_from(failure),
        "findings": None if findings is None else tuple(map(finding_from, findings)),
        "scope": Scope(found["scope"]),
        "cordon": None if cordon is None else finding_from(cordon),
    }
    return HostEnd(**{**found, **read})


def refusal_finding(refusal: Refusal) -> Finding:
    """Return what preflight says against a node as drift tells it."""
    return Finding(
        refusal.component,
        FindingClass.UNSUPPORTED,
        "preflight",
        cause=refusal.reason,
        remedy=refusal.remedy,
        source=refusal.source,
        code=refusal.code,
    )


def report_of(end: HostEnd) -> NodeReport | None:
    """Return a host's report, as drift has them; None where the run neither judged the host nor failed on it."""
    cordon = () if end.cordon is None else (end.cordon,)
    if end.unreached is not None:
        return NodeReport(end.name, (errors.unreached(end.unreached), *cordon))
    if end.refused:
        return NodeReport(end.name, (*end.refused, *(end.findings or ())))
    findings = end.findings or ()
    # The verdict may be what failed: then its findings tell more than that it did.
    if end.failure is not None and not any(map(_is_wrong, findings)):
        findings = (*findings, replace(end.failure, log=end.log))
    if end.cut_off is not None:
        remedy = f"correct what the cause and the last lines of the log say, and {RUN_AGAIN}"
        cut_off = replace(failure_of("", [end.cut_off]), what="cut off", remedy=remedy, code=BROKEN_OFF, log=end.log)
        findings = (*findings, cut_off)
    findings = (*findings, *cordon)
    return None if not findings and end.findings is None else NodeReport(end.name, findings, scope=end.scope)


def why_failed(end: HostEnd) -> Finding | None:
    """Return the gravest finding of a host that is not as desired; None where the run reports none."""
    report = report_of(end)
    found = [item for item in report.findings if item.is_negative] if report is not None else []
    return next((item for item in found if item.finding_class is worst(found)), None)


def _is_wrong(item: Finding) -> bool:
    return item.is_negative and item.finding_class not in PENDING


def verdict_text(
    ends: Collection[HostEnd],
    columns: int = UNBOUND,
    call: Call = SOME_CALL,
    style: Callable[[FindingClass], str] = str,
    quiet: bool = False,
) -> str:
    """Return what stands at the end of a run: what differs, how each node is, the totals, and what to do next.

    call: how the run was called, for the commands that go on with it; style: how a class is written; quiet: leave out
    the nodes that are as desired, the totals, and what comes next
    """
    reports = [report for end in ends if (report := report_of(end)) is not None]
    others = [end for end in ends if report_of(end) is None]
    alone = [end for end in others if end.left_alone is not None]
    unverified = [end for end in others if end.left_alone is None and end.unverified is not None]
    unjudged = [end.name for end in others if end.left_alone is None and end.unverified is None]
    parts = [report_text(tuple(reports), False, columns, call, style, quiet)] if reports else []
    for reason, names in _alike((end.left_alone or "", end.name) for end in alone):
        parts.append(fold(f"{folded_in_a_line(names, columns)}: left alone: {reason}", columns, "  "))
    for reason, names in _alike((end.unverified or "", end.name) for end in unverified):
        named = folded_in_a_line(names, columns)
        parts.append(fold(f"{named}: no operation failed; not verified: {reason}", columns, "  "))
    if unjudged:
        # By gpunode itself: a repository of the user's own has no deploy for it.
        named = folded_in_a_line(unjudged, columns)
        how = "it is" if len(unjudged) == 1 else "they are"
        said = f"{named}: no operation failed; how {how} was not looked at. To see it, run"
        parts += [fold(said, columns, "  "), f"  {call.of('drift')}"]
    good = all(worst(each.findings) is FindingClass.OK for each in reports)
    if reports and not others and good and not quiet:
        parts.append("Nothing is left to do.")
    for said, command in () if quiet else _next(reports, call, columns):
        # A command is never folded: it is to be pasted.
        parts += [fold(said, columns, "  "), f"  {command}"]
    return "\n".join(part for part in parts if part)


def _alike(pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found.items()


def _next(reports: Collection[NodeReport], call: Call, columns: int) -> Iterable[tuple[str, str]]:
    """Yield (what to do next, the command for it), one for each kind of thing; each finding has its own remedy."""
    classes = {report.title: worst(report.findings) for report in reports}
    pending = [name for name, gravest in classes.items() if gravest in PENDING]
    wrong = [report.title for report in reports if any(map(_is_wrong, report.findings))]
    if wrong:
        retries = any("apply --retry" in (item.remedy or "") for report in reports for item in report.findings)
        command = call.retry if retries else call.again
        yield f"Next: correct what is reported of {folded_in_a_line(wrong, columns)} above, then run", command
    if pending:
        wait = f"{folded_in_a_line(pending, columns)} {'waits' if len(pending) == 1 else 'wait'}"
        how = ", wave by wave, run" if call.waves else " run"
        yield f"Next: allow what {wait} for (disruption.allow), then{how}", call.waves or call.run


def ends_of(
    plans: Mapping[str, Plan | Finding], progress: Progress, code: int, log: str | None = None
) -> list[HostEnd]:
    """Return how it ended on each host, those that the run was not made on among them, and on the cluster.

    code: pyinfra's exit status, negative for a signal; log: where its output is
    """
    others = {name: end for name, found in plans.items() if (end := not_run(name, found)) is not None}
    nodes = {end.name: end for end in run_ends([name for name in plans if name not in others], progress, code, log)}
    cluster = [end for end in map(host_end_from, progress.ends or ()) if end.scope is Scope.CLUSTER]
    return [others.get(name) or nodes[name] for name in plans] + cluster


def run_ends(nodes: Iterable[str], progress: Progress, code: int, log: str | None = None) -> list[HostEnd]:
    """Return how a run ended on each of the nodes that it was made on; code, log: as in `ends_of`."""
    judged = {end.name: end for end in map(host_end_from, progress.ends or ()) if end.scope is Scope.NODE}
    ends = [replace(_run(judged.get(name), name, progress, code), log=log) for name in nodes]
    # No host that pyinfra may have failed by.
    if code and not any(end.unreached is not None or end.refused or end.failure or end.cut_off for end in ends):
        return [replace(end, cut_off=f"{how_it_ended(code)}, and says of no node why") for end in ends]
    return ends


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
    if not found.refusals:
        return None
    return HostEnd(name, refused=tuple(map(refusal_finding, found.refusals)), findings=found.findings)


def _run(told: HostEnd | None, name: str, progress: Progress, code: int) -> HostEnd:
    end = told or HostEnd(name, unreached=progress.unreached.get(name))
    if told is None and end.unreached is None and name in progress.failed:
        end = replace(end, failure=failure_of(progress.failed[name], [f"{how_it_ended(code)} before it reported why"]))
    if report_of(end) is None and end.left_alone is None and end.unverified is None:
        return replace(end, cut_off=f"{how_it_ended(code)} before it came to a verdict on this node")
    return end
