"""A Slurm node: what its probe says, which devices it offers, and what is to be done about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.base.reading import ParseError
from gpunode.components.slurm.decide import Desired, decide
from gpunode.components.slurm.state import GRES, Slurm, numbers, parse_slurm, ranges, type_of
from gpunode.settings.slurm import SlurmSettings
from tests.support.slurm import BARE, NO_MIG, RIGHT, SHOWN, UP

pytestmark = pytest.mark.pure
OUT = f"{SHOWN} Reason=gres/gpu count reported lower than configured (1 < 2) [slurm@2026-11-24T11:12:19]"


@given(lines=st.lists(st.builds("{}={}".format, st.sampled_from(["gpu", "unit", "cpu", "file", "steps"]), st.text())))
def test_any_answer_is_read_or_refused_in_words(lines: list[str]) -> None:
    try:
        parse_slurm(lines)
    except ParseError as error:
        assert str(error)


@given(text=st.text())
def test_a_type_of_any_product_is_one_that_slurm_takes(text: str) -> None:
    kind = type_of(text)
    assert kind and not set(kind) - set("abcdefghijklmnopqrstuvwxyz0123456789_.")


@given(values=st.sets(st.integers(0, 8191)))
def test_what_is_written_as_ranges_reads_back(values: set[int]) -> None:
    assert set(numbers(ranges(values))) == values


ACTUAL = st.builds(
    lambda **changes: replace(RIGHT, **changes),
    texts=st.sampled_from([RIGHT.texts, (), RIGHT.texts[:1], ((GRES, "mine"), RIGHT.texts[1])]),
    includes=st.sampled_from([BARE.includes, BARE.includes, (), BARE.includes[:1]]),
    slurmd=st.sampled_from([UP, UP, replace(UP, stale=True), replace(UP, active=False)]),
    slurmctld=st.sampled_from([None, UP]),
    node=st.sampled_from([SHOWN, SHOWN, OUT, SHOWN.replace("h100:2", "h100:1"), None]),
    steps=st.sampled_from([0, 0, 3]),
    types=st.sampled_from([("gpu",), ("gpu",), ()]),
    gpus=st.sampled_from([BARE.gpus, BARE.gpus, ()]),
)
ASKS = st.builds(
    SlurmSettings, enabled=st.sampled_from([True, True, False]), node_line=st.booleans(), cores=st.booleans()
)


@given(asked=ASKS, actual=ACTUAL, allowed=st.sampled_from(list(Disruption)))
def test_every_difference_is_a_steps_or_a_persons_and_the_steps_leave_none(
    asked: SlurmSettings, actual: Slurm, allowed: Disruption
) -> None:
    decision = decide(Desired(asked, allowed), actual, NO_MIG)
    settled = {item for step in decision.steps for item in step.settles}
    assert {item for item in bad(*decision.findings) if item not in settled} <= {
        item for item in decision.findings if item.by_person
    }
    assert all(step.waits is None or actual.steps for step in decision.steps)
    changes = [step.change for step in decision.steps if step.change is not None and step.waits is None]
    if not changes:
        return
    (change, *others) = changes
    assert all(other == change for other in others)
    kept = {path: text for path, text in actual.texts if path not in change.removed} | dict(change.written)
    after = replace(actual, texts=tuple(kept.items()))
    if change.restart:
        after = replace(after, slurmd=UP)
    if change.controller:
        after = replace(after, node=SHOWN)
    if change.resume and after.node is not None:
        after = replace(after, node=after.node.partition(" Reason=")[0])
    again = decide(Desired(asked, allowed), after, NO_MIG)
    assert not again.steps, again.steps
