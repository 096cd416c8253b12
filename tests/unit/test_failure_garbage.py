"""Every fact of a node is given garbage: a reading or FactProcessError comes of it, nothing else. No node."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api.exceptions import FactProcessError

from gpunode.base.probe_output import END
from gpunode.base.reading import Reading
from gpunode.facts.base import NodeFact, parsed
from gpunode.facts.node import PARTS
from gpunode.facts.transaction import TransactionJournal

FACTS: dict[str, type[NodeFact[Any]]] = {**PARTS, "transaction": TransactionJournal}

# What the probes let through is printable ASCII and tabs; anything else cannot reach a parser.
LINES = st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60), max_size=8)

GARBAGE = {
    "words": ["Failed to initialize NVML: Unknown Error"],
    "a half line": ["version"],
    "only separators": ["=", "==", "|||", ",,,,"],
    "numbers that are none": ["shims=many", "started=yesterday", "gpu=,,,,,", "count=-", "memory=[N/A]"],
    "bad base64": ["merged=%%%", "text=a", "journal=!", "unit=active"],
    "base64 of no UTF-8": [f"{key}={base64.b64encode(bytes([255, 254, 0])).decode()}" for key in ("merged", "journal")],
    "a megabyte": ["x=" + "A" * 1_000_000],
}


def survives(name: str, output: list[str]) -> Reading | None:
    try:
        reading: Reading = parsed(name, FACTS[name].parse, output)
    except FactProcessError as error:
        assert str(error).startswith(name)
        return None
    return reading


@pytest.mark.pure
@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("name", FACTS)
def test_garbage_is_a_reading_or_an_error_of_this_host_alone(name: str, kind: str) -> None:
    survives(name, [*GARBAGE[kind], END])


@pytest.mark.pure
@pytest.mark.parametrize("name", FACTS)
def test_a_truncated_answer_is_never_a_reading(name: str) -> None:
    for output in ([], [""], ["version=1.0"], ["version=1.0", END[:-1]], ["x=" + "A" * 4096]):
        assert survives(name, output) is None, output


@pytest.mark.pure
@pytest.mark.parametrize("name", FACTS)
@given(lines=LINES)
def test_no_text_at_all_makes_a_parser_raise_anything_else(name: str, lines: list[str]) -> None:
    survives(name, [*lines, END])


@pytest.mark.pure
def test_a_journal_that_is_half_written_is_no_journal() -> None:
    whole = b'{"schema": 1, "state": "began", "target": "abc", "reason": ""}'
    for end in range(len(whole)):
        half = base64.b64encode(whole[:end]).decode()
        output = ["unit=inactive", "path=/j", *([f"journal={half}"] if half else []), END]
        reading = survives("transaction", output)
        assert reading is None or (end == 0 and reading.to_json()["state"] is None)
    reading = survives("transaction", ["unit=inactive", f"journal={base64.b64encode(whole).decode()}", END])
    assert reading is not None and reading.to_json()["state"] == "began"
