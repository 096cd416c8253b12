"""What a person reads of plans: nodes with one plan together, folded to the width of the terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpunode.base.findings import CLUSTER, Finding, FindingClass, cluster_title
from gpunode.base.folding import UNBOUND, fold, folded_in_a_line
from gpunode.base.messages import with_code
from gpunode.base.terminal import printable
from gpunode.fleet.call import SOME_CALL, Call
from gpunode.node.plan import Plan, PlannedStep


def plan_text(
    plans: Mapping[str, Plan | Finding],
    columns: int = UNBOUND,
    call: Call = SOME_CALL,
    show_all: bool = False,
    quiet: bool = False,
) -> str:
    """Return each plan: its nodes, the verdict, the steps in order or the refusals, what to know; then the totals.

    Nodes of which the same is to be said stand together, and so do those that gave no answer for the same reason.
    Where many names would take more than a line, the first stand there, and how many follow.

    call: how the command was called, for those that can be pasted; show_all: every name; quiet: nothing of nodes that
    can be done or have nothing to do
    """
    lines: list[str] = []
    room = UNBOUND if show_all else columns
    for found, names, since in _alike(plans):
        if quiet and isinstance(found, Plan) and not found.is_negative:
            continue
        cluster = found.cluster if isinstance(found, Plan) else None
        who = folded_in_a_line(names, room) if cluster is None else cluster_title(cluster)
        told = _silent(who, found) if isinstance(found, Finding) else _lines(who, found, since)
        for line in told:
            # A folded line stands under the text of the first: behind `  3. `, or two columns in.
            indent = len(line) - len(line.lstrip(" "))
            lines.append(fold(call.pasted(printable(line)), columns, " " * (indent + (3 if indent else 2))))
    if len(plans) > 1 and not quiet:
        lines.append(fold(_totals(plans), columns, "  "))
    return "\n".join(lines)


def _alike(plans: Mapping[str, Plan | Finding]) -> Iterator[tuple[Plan | Finding, list[str], list[str | None]]]:
    """Yield (plan, the nodes that have it, since when each step waits), in the order of the first of these nodes."""
    found: dict[Plan | Finding, list[str]] = {}
    for name, each in plans.items():
        found.setdefault(_timeless(each), []).append(name)
    for same, names in found.items():
        yield same, names, _since([plans[name] for name in names])


def _timeless(found: Plan | Finding) -> Plan | Finding:
    """Return a plan without its times: nodes that differ in these alone are to become the same."""
    if isinstance(found, Finding):
        return found
    return replace(found, steps=tuple(replace(step, since=None) for step in found.steps))


def _since(alike: Iterable[Plan | Finding]) -> list[str | None]:
    """Return of each step since when the node waits that has waited longest."""
    steps = [found.steps for found in alike if isinstance(found, Plan)]
    return [min((step.since for step in same if step.since), default=None) for same in zip(*steps, strict=True)]


def _silent(who: str, found: Finding) -> Iterator[str]:
    how = "no answer" if found.finding_class is FindingClass.UNREACHABLE else found.actual
    yield with_code(f"{who}: {how}: {found.cause}", found.code)
    if found.remedy:
        yield f"  remedy: {found.remedy}"


def _lines(who: str, found: Plan, since: list[str | None]) -> Iterator[str]:
    yield f"{who}: {_headline(found)}"
    if found.drains:
        yield "  the node is drained before the first step that says so, and given back after the verdict"
    for refusal in found.refusals:
        yield with_code(f"  refused: {refusal.component}: {refusal.reason}", refusal.code)
        yield f"    remedy: {refusal.remedy}"
        yield f"    source: {refusal.source}"
    for item in found.findings:
        if item.finding_class is not FindingClass.OK:
            sides = f"{item.actual or 'none'}; desired: {item.desired}" if item.desired else item.actual or item.cause
            yield with_code(f"  {item.finding_class}: {item.component}: {item.what}: {sides}", item.code)
    for number, (step, waits) in enumerate(zip(found.steps, since, strict=True), 1):
        yield _step(number, step, waits)
        if step.cause:
            yield f"     cause: {step.cause}"
        if step.packages:
            yield f"     packages: {', '.join(step.packages)}"
    if found.known_after_run:
        yield f"  only the run finds out: {'; '.join(found.known_after_run)}"
    for caution in found.cautions:
        yield with_code(f"  caution: {caution.component}: {caution.reason}; {caution.remedy}", caution.code)


def _headline(found: Plan) -> str:
    unknown = sum(step.not_known for step in found.steps)
    if unknown == len(found.steps):
        return f"{unknown} not known, nothing else to do" if unknown and not found.refusals else found.verdict
    now = not all(step.pending for step in found.steps)
    does = f"disruption: {found.disruption.name}" if now else "nothing that a run does now"
    said = f"{found.verdict}, {does}"
    return f"{said}, {unknown} not known" if unknown else said


def _step(number: int, step: PlannedStep, since: str | None) -> str:
    waits = f", since {since}" if since else ""
    details = [
        # What no comparison is of has no sides.
        f"{step.what or 'now'}: {step.actual or 'none'}; desired: {step.desired}" if step.desired else None,
        "not known" if step.not_known and not step.desired else None,
        f"disruption: {step.disruption.name}" if step.disruption else None,
        "drains the node" if step.drains else None,
        "WOULD FAIL: a run does not do it, and fails by it" if step.fails else None,
        f"PENDING: a run does not do it now{waits}" if step.pending and not (step.not_known or step.fails) else None,
    ]
    said = f"  {number}. {step.component}: {step.action} ({'; '.join(filter(None, details))})"
    # What waits is told with what explains it, as drift does.
    return with_code(said, step.code) if step.pending and step.code else said


def _totals(plans: Mapping[str, Plan | Finding]) -> str:
    counts, cluster = verdicts(plans), plans.get(CLUSTER)
    nodes = len(plans) - (cluster is not None)
    said = f"{nodes:,} node{'' if nodes == 1 else 's'}: "
    # A host that answered, or has no facts, may have none as well.
    named = {"unreachable": "without a plan"}
    said += ", ".join(f"{count:,} {named.get(verdict, verdict)}" for verdict, count in counts.items())
    if isinstance(cluster, Plan) and cluster.cluster:
        said += f"; {cluster_title(cluster.cluster)}: {cluster.verdict}"
    return said


def verdicts(plans: Mapping[str, Plan | Finding]) -> dict[str, int]:
    """Return verdict -> how many nodes have it; unreachable where there is none."""
    nodes = [each for name, each in plans.items() if name != CLUSTER]
    return dict(Counter("unreachable" if isinstance(each, Finding) else each.verdict for each in nodes))
