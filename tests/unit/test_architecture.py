"""docs/architecture.md: each stop of a setting exists, and is called by the stops that the page names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure
CHECKOUT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (\d+) \| `([\w/]+)\.py`: `(\w+)` \|.*\| ([^|]+) \|$", re.MULTILINE)
# Number -> the module of the stop, its function, and the numbers of those that call it.
STOPS = {
    int(number): (f"gpunode.{file.removeprefix('gpunode/').replace('/', '.')}", name, re.findall(r"\d+", callers))
    for number, file, name, callers in _ROW.findall((CHECKOUT / "docs" / "architecture.md").read_text())
}


def _source(module: str) -> ast.Module:
    path = Path(*module.split(".")[1:]).with_suffix(".py")
    file = CHECKOUT / path if (CHECKOUT / path).is_file() else CHECKOUT / "gpunode" / path
    return ast.parse(file.read_text())


def _used(module: str, name: str) -> set[str]:
    """Return the full names that a function uses, itself or by what it uses of its module; none where it is absent."""
    source = _source(module)
    imported = {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }

    def full(node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{full(node.value)}.{node.attr}"
        return imported.get(node.id, f"{module}.{node.id}") if isinstance(node, ast.Name) else ""

    defined: dict[str, set[str]] = {}
    for node in source.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        own = [full(each) for each in targets]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own = [f"{module}.{node.name}"]
        used = {full(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)}
        defined |= dict.fromkeys(own, used)
    reached: set[str] = set()
    ahead = set(defined.get(f"{module}.{name}", ()))
    while ahead:
        here = ahead.pop()
        reached.add(here)
        ahead |= defined.get(here, set()) - reached
    return reached


def test_the_way_of_a_setting_has_at_most_twelve_stops_that_all_exist() -> None:
    assert list(STOPS) == list(range(1, len(STOPS) + 1)) and 2 <= len(STOPS) <= 12
    assert [name for module, name, _ in STOPS.values() if not _used(module, name)] == []


@pytest.mark.parametrize("number", STOPS)
def test_each_stop_is_called_by_those_that_the_page_names(number: int) -> None:
    module, name, callers = STOPS[number]
    assert [each for each in callers if f"{module}.{name}" not in _used(*STOPS[int(each)][:2])] == []


def test_every_stop_leads_on_from_a_run_or_from_drift() -> None:
    assert [name for _, name, callers in STOPS.values() if not callers] == ["containerd", "inspect"]
