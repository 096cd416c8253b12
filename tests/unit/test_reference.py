"""The pages that are made from the source say what the source says."""

from __future__ import annotations

import json

import jsonschema
import pytest

from gpunode.base.codes import subject_of
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject
from gpunode.fleet.rollout.entries import journal_schema
from gpunode.node.verdict import judge
from gpunode.reference import codes, findings, rollout
from gpunode.reference.__main__ import DOCS, PAGES
from tests.unit.test_verify import GOOD, SETTINGS

pytestmark = [pytest.mark.pure, pytest.mark.tier2]


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"


def rows() -> set[findings.Row]:
    return {row for path in findings.JUDGES for row in findings.rows(path)}


def test_every_subject_of_a_finding_stands_in_the_reference() -> None:
    # What is only ever as desired, or comes up on no node, has a page and no row.
    told = " / ".join(row.what for row in rows()) + " / ".join(codes.pages())
    assert [subject for subject in Subject if subject not in told and subject_of(subject) not in told] == []


def in_reference(item: Finding) -> bool:
    """Say whether the reference has an item of that component which reads like this one."""
    names = {
        name for row in rows() if row.component in (item.component, "any component") for name in row.what.split(" / ")
    }
    return any(item.what == name or item.what.startswith(name.partition("…")[0]) for name in names)


def test_what_a_good_node_is_judged_by_stands_in_the_reference() -> None:
    found = judge(SETTINGS, GOOD)
    judged = [item for item in found if item.component != "health"]
    assert len(judged) > 10
    assert [item.what for item in judged if not in_reference(item)] == []


def test_a_finding_that_no_judge_makes_is_not_in_the_reference() -> None:
    assert not in_reference(Finding("cuda", FindingClass.DRIFT, "no such thing"))


def test_the_example_of_a_journal_is_as_its_schema_says() -> None:
    for entry in rollout.example():
        jsonschema.validate(json.loads(entry.model_dump_json()), journal_schema())
