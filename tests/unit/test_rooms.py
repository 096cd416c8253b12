"""Which room imports which (docs/design.md): what needs no node knows nothing of what works on nodes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure
CHECKOUT = Path(__file__).parents[2]
ABOVE = {"facts", "operations", "deploys", "lab"}
# Each of them drives pyinfra, or is the command line.
MAY = {"drift.py", "fleet.py", "cli"}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)


def test_gpunode_imports_no_room_above_it_but_where_the_design_says_so() -> None:
    room = CHECKOUT / "gpunode"
    paths = [path for path in room.rglob("*.py") if path.relative_to(room).parts[0] not in MAY]
    assert len(paths) > 100
    wrong = {str(path.relative_to(room)): above for path in paths if (above := ABOVE & set(_imported(path)))}
    assert not wrong
