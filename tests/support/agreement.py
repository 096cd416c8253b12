"""What holds of every decision, and of the plan that is made of it."""

from __future__ import annotations

from typing import Any

from gpunode.base.comparison import RUN
from gpunode.base.decision import Decision, bad
from gpunode.base.findings import FindingClass
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.plan import STOP, plan
from gpunode.node.verdict import judge
from gpunode.settings import Settings


def assert_whole(decision: Decision[Any], before: tuple[str, ...] = ()) -> None:
    """Every difference is a step's, or says what a person is to do; what a step settles is a difference, once.

    What is not known is no difference: no step settles it, and it says what a person is to do.

    before: how the actions begin that a run does before it comes to what it may refuse
    """
    differences = bad(*decision.findings)
    settled = [item for step in decision.steps for item in step.settles]
    assert len(settled) == len(set(settled)) and set(settled) <= set(differences)
    for item in decision.findings:
        if item.finding_class is FindingClass.NOT_KNOWN:
            assert item.cause and item.remedy, item
    for item in differences:
        assert item in settled or item.remedy not in (RUN, None), item
    # Behind a refusal a run comes to nothing, so that nothing is promised; and no such node is as desired.
    if decision.refusal is not None:
        done = [step for step in decision.steps if step.waits is None]
        assert any(item.finding_class is not FindingClass.OK for item in decision.findings)
        assert all(step.action.startswith(before) for step in done)
        assert list(decision.steps[: len(done)]) == done


def assert_planned(component: str, settings: Settings, node: Node) -> None:
    """Drift shows the decision's findings, and the plan its steps: those of a person's behind them."""
    decision, planned = decisions(settings, node)[component], plan(settings, node)
    told = {item for item in judge(settings, node) if item.component == component and not item.what.startswith("file ")}
    assert told == {item for item in decision.findings if item.component == component}
    if planned.refusals:
        return
    # Where a run stops is a step of its own, unless the row of a finding has the same cause.
    rows = [step for step in planned.steps if step.component == component]
    steps = [(step.action, step.pending) for step in rows if step.action != STOP]
    if decision.refusal is not None:
        assert planned.verdict == "would fail" and planned.is_negative and any(step.fails for step in rows)
    own = [(step.action, step.waits is not None) for step in decision.steps]
    settled = {item for step in decision.steps for item in step.settles}
    wrong = [item for item in decision.findings if item.finding_class is not FindingClass.OK]
    by_person = [item for item in wrong if item not in settled]
    assert [step for step in steps if step[0] not in {f"{_said(item)}" for item in by_person}] == own
    assert all((_said(item), True) in steps for item in by_person)


def _said(item: Any) -> str:
    return f"{item.what}: {item.remedy or item.cause or FindingClass.DRIFT}"
