"""A mutant runs wherever Python holds the code that it changes: one that runs nowhere survives and tells nothing."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

from tests.mutation.code_swap import changed_functions, put_in, put_in_text
from tests.mutation.groups import CHECKOUT, GROUPS

pytestmark = [pytest.mark.pure, pytest.mark.tier2]

MODULE = """
from functools import cache
TEXT = "one two three four five"
class C:
    @property
    def p(self): return [x + 1 for x in (1, 2)]
@cache
def f(): return "old"
def g(a=1): return a
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    path = tmp_path / "mutated_module.py"
    path.write_text(MODULE)
    made = types.ModuleType("mutated_module")
    made.__file__ = str(path)
    exec(compile(MODULE, str(path), "exec", dont_inherit=True), vars(made))
    monkeypatch.setitem(sys.modules, "mutated_module", made)
    return made


def test_functions_get_their_new_code_wherever_they_are_held(module: types.ModuleType) -> None:
    path, held = str(module.__file__), module.C()
    assert (held.p, module.f()) == ([2, 3], "old")
    for before, after in (("x + 1", "x + 5"), ('"old"', '"new"')):
        pairs = changed_functions(path, MODULE, MODULE.replace(before, after))
        assert pairs is not None and put_in(path, pairs) == 1
    # What was cached by the old code is forgotten.
    assert (held.p, module.f()) == ([6, 7], "new")


@pytest.mark.parametrize(("before", "after"), [("a=1", "a=2"), ("three", "3"), ("class C:", "class C(int):")])
def test_what_is_decided_when_a_module_is_imported_takes_a_new_import(
    module: types.ModuleType, before: str, after: str
) -> None:
    assert changed_functions(str(module.__file__), MODULE, MODULE.replace(before, after)) is None


def test_a_text_is_changed_in_every_module_that_holds_it(tmp_path: Path, module: types.ModuleType) -> None:
    assert put_in_text(str(tmp_path), "two three four five", "2") == 1
    assert module.TEXT == "one 2"


def test_every_file_that_is_mutated_is_changed_where_python_has_imported_it() -> None:
    files = {path for group in GROUPS for path in group.files if path.endswith(".py")}
    for path in files:
        name = path.removeprefix("gpunode/").removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        module = importlib.import_module(f"gpunode.{name}")
        assert str(CHECKOUT / path) == module.__file__
    assert "operations/apt.py" in files
