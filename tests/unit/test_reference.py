"""The generated reference pages are those that `make docs` writes, and their example of a journal is valid."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.reference import rollout
from tests.reference.__main__ import DOCS, PAGES
from tests.reference.schemas import journal_schema

pytestmark = [pytest.mark.pure, pytest.mark.tier2]


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_make_docs_writes(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"


def test_the_example_of_a_journal_is_as_its_schema_says() -> None:
    for entry in rollout.example():
        jsonschema.validate(json.loads(entry.model_dump_json()), journal_schema())
