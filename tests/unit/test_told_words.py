"""Tables of what is told: each row is told somewhere, and gets there what its words ask for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from gpunode.node.preflight import words as preflight
from gpunode.settings.cluster import contradictions

pytestmark = pytest.mark.pure

# A table's rows, the functions that tell one, and the files that call them.
TABLES = [
    (preflight.words(), ("refusal", "caution"), Path(preflight.__file__).parent.glob("*.py")),
    (contradictions.words(), ("_said",), [Path(contradictions.__file__)]),
]


def _told(calls: tuple[str, ...], files: Iterable[Path]) -> Iterator[tuple[str, set[str]]]:
    """Yield the row of each call, and the names that it gives."""
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls:
                yield ast.literal_eval(node.args[0]), {each.arg or "" for each in node.keywords}


def _asked(row: Any) -> set[str]:
    """Return the names that a row's words ask for, without what is looked up below them."""
    fields = (field for text in astuple(row) for _, field, _, _ in Formatter().parse(text))
    return {re.split(r"[.\[]", field)[0] for field in fields if field}


@pytest.mark.parametrize(("rows", "calls", "files"), TABLES)
def test_each_row_is_told_and_gets_what_it_asks_for(
    rows: Mapping[str, Any], calls: tuple[str, ...], files: Iterable[Path]
) -> None:
    told = list(_told(calls, files))
    assert {row for row, _ in told} == set(rows)
    assert {row: given for row, given in told if given != _asked(rows[row])} == {}
