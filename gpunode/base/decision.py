"""What is to be done about one component: decided once, for drift, the plan, the verdict and the operation alike."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from gpunode.base.comparison import RUN, by_hand
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass

Change = TypeVar("Change")


def target_digest(*parts: str) -> str:
    """Return the digest by which a journal on the node knows what a change was to reach: 64 hex digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Step(Generic[Change]):
    """Hold one thing that a run does.

    action: in words, `start it`
    settles: the findings that are gone when it is done; the plan shows the two sides of the first
    disruption: what it costs the node
    waits: why a run does not do it now; None where it does
    change: what the operation that carries it out is told; None where it decides by itself
    actual, desired: the two sides of a step that settles no finding: it comes with another step
    packages: what it installs, as far as settings and tables tell
    felt: whether a workload feels what it disturbs: a node is drained for such a step alone
    target: digest of what its transaction is to reach, where the change does not have it
    """

    action: str
    settles: tuple[Finding, ...]
    disruption: Disruption
    waits: str | None = None
    change: Change | None = None
    actual: str | None = None
    desired: str | None = None
    packages: tuple[str, ...] = ()
    felt: bool = True
    target: str | None = None


@dataclass(frozen=True)
class Decision(Generic[Change]):
    """Hold every comparison that was made, the good ones too, and the steps that remove the differences, in order.

    refusal: why a run stops here, behind the steps that do not wait, and what a person is to do first; None where
    nothing is in its way. A difference that no step settles is a person's to mend.
    """

    findings: tuple[Finding, ...]
    steps: tuple[Step[Change], ...] = ()
    refusal: str | None = None


def bad(*findings: Finding) -> tuple[Finding, ...]:
    """Return the findings that differ from what is desired. A state that is not known is none: no step follows it."""
    return tuple(item for item in findings if item.finding_class not in (FindingClass.OK, FindingClass.NOT_KNOWN))


def marked(decision: Decision[Change]) -> Decision[Change]:
    """Return the decision with each difference as a person's that no step settles, or one behind his work alone.

    The run is the remedy of what it removes alone: of the others, the cause says what is in its way.
    """
    done = {item for step in decision.steps if step.waits is None for item in step.settles}
    waits = {item: step.waits for step in decision.steps for item in step.settles}

    def mark(item: Finding) -> Finding:
        if item.remedy == RUN and item not in done:
            item = by_hand(item, "; ".join(filter(None, (item.cause, waits.get(item) or decision.refusal))))
        by_person = item.by_person or (item.finding_class is FindingClass.DRIFT and item not in done)
        return replace(item, by_person=by_person)

    steps = (replace(step, settles=tuple(map(mark, step.settles))) for step in decision.steps)
    return replace(decision, findings=tuple(map(mark, decision.findings)), steps=tuple(steps))


def behind(
    decision: Decision[Change],
    reason: str,
    late: Callable[[Step[Any]], bool] = lambda step: True,
    remedy: str | None = None,
) -> Decision[Change]:
    """Return the decision where a run stops before its steps: they wait, and what they settle is a person's.

    reason: where the run stops, and why; late: which steps come behind that; remedy: what the person does
    """
    steps = [step for step in decision.steps if step.waits is None and late(step)]
    told = {
        item: by_hand(item, "; ".join(filter(None, (item.cause, reason))), remedy)
        for step in steps
        for item in step.settles
    }

    def waiting(step: Step[Change]) -> Step[Change]:
        settles = tuple(told.get(item, item) for item in step.settles)
        return replace(step, settles=settles, waits=reason if step in steps else step.waits)

    findings = tuple(told.get(item, item) for item in decision.findings)
    return replace(decision, findings=findings, steps=tuple(map(waiting, decision.steps)))


def is_forbidden(disruption: Disruption, allowed: Disruption, workloads: int) -> bool:
    """Say whether a change waits: the settings do not allow what it disturbs, and somebody would feel it.

    A restart or a reset that no workload feels is done in any case; a boot is not.

    allowed: `disruption.allow`; workloads: how many containers, or clients of a daemon, run
    """
    return disruption > allowed and (disruption > Disruption.reset or workloads > 0)
