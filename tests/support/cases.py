"""Cases of functions, facts and operations as YAML: how a file's values become arguments, and how a result is compared.

tests/cases/FUNCTION/CASE.yaml is one case, or a list of small ones; FUNCTION is the dotted path of what is called.
A case:

- `arguments`: a list or a mapping. By the type hints of the function a mapping becomes a dataclass or a model, a text
  an enumeration, seconds a timedelta. `{like: tests.support.verify.GOOD.driver, pinned: []}` is that object with these
  fields changed, `{make: gpunode.system.service.Unit, load_state: loaded}` a new one where the hint names no class.
- `output`: for a fact, the text that its command printed; for a function, its first argument, as a list of lines.
  `encoded`: more of its lines, start of the line -> a text that stands behind it in base64.
- `readings`: for an operation, fact -> reading, as `make` or `like`.
- one result: `returns`, `raises` (name of the class, and a `message`, or the values that it `names`), or for an
  operation `commands` (per command, texts that it holds) with `noop` and `refuses` (texts that its own words hold).

In a result a mapping holds the fields that matter of an object, and every entry of a dictionary; of a text
`{names: [580.95.05, driver.version], lacks: [570]}` holds what it names and what not. A member of an enumeration is its
value or its name.
"""

from __future__ import annotations

import ast
import base64
import dataclasses
import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel
from pyinfra.api import FactBase
from pyinfra.context import ctx_host

from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands

# What a case has besides `arguments`: of an operation, and of anything else with either result.
_OPERATION = {"readings", "commands", "noop", "refuses"}
_RETURNS, _RAISES = {"returns", "output", "encoded"}, {"raises", "output", "encoded", "message", "names"}
CASES = Path(__file__).parents[1] / "cases"


def named(path: str) -> Any:
    """Return what a dotted path names: `gpunode.system.boot.Boot`."""
    module, _, rest = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(named(module), rest)


def build(hint: Any, value: Any) -> Any:
    """Return a value of YAML as the type that a hint asks for."""
    if isinstance(value, dict) and "like" in value:
        like = named(value["like"])
        changes = _fields(type(like), {key: each for key, each in value.items() if key != "like"})
        return like.model_copy(update=changes) if isinstance(like, BaseModel) else dataclasses.replace(like, **changes)
    if isinstance(value, dict) and "make" in value:
        return build(named(value["make"]), {key: each for key, each in value.items() if key != "make"})
    arguments, origin = get_args(hint), get_origin(hint) or hint
    if origin in (types.UnionType, Union):
        return None if value is None else build(next(each for each in arguments if each is not type(None)), value)
    if not isinstance(origin, type) or origin is Any:
        return value
    if isinstance(value, list) and issubclass(origin, tuple) and arguments[1:] not in ((), (Ellipsis,)):
        return tuple(build(each, one) for each, one in zip(arguments, value, strict=True))
    if isinstance(value, dict) and issubclass(origin, Mapping):
        return {key: build(arguments[1] if arguments else Any, each) for key, each in value.items()}
    if isinstance(value, list):
        kind = origin if issubclass(origin, list | set | frozenset) else tuple
        return kind(build(arguments[0] if arguments else Any, each) for each in value)
    if issubclass(origin, Enum):
        return origin[value] if value in origin.__members__ else origin(value)
    if issubclass(origin, timedelta):
        return timedelta(seconds=value)
    if isinstance(value, dict) and issubclass(origin, BaseModel):
        return origin.model_validate(value)
    if isinstance(value, dict) and dataclasses.is_dataclass(origin):
        return origin(**_fields(origin, value))
    return value


def _hints(of: Any) -> dict[str, Any]:
    """Return the types of a function's arguments or a class's fields, with those that are imported for types alone."""
    try:
        return get_type_hints(of)
    except NameError:
        names: dict[str, Any] = {}
        for node in ast.parse(inspect.getsource(sys.modules[of.__module__])).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                exec(compile(ast.Module(node.body, []), of.__module__, "exec"), names)
        return get_type_hints(of, localns=names)


def _fields(of: type, values: dict[str, Any]) -> dict[str, Any]:
    hints = _hints(of)
    return {key: build(hints[key], each) for key, each in values.items()}


def plain(expected: Any, actual: Any) -> Any:
    """Return a result in the form of what is expected of it: of an object the fields that are named there."""
    if isinstance(actual, Enum):
        return actual.name if expected == actual.name else actual.value
    if isinstance(expected, dict) and isinstance(actual, Mapping):
        return {str(key): plain(expected.get(key), each) for key, each in actual.items()}
    if isinstance(expected, dict) and isinstance(actual, str):
        if not actual:
            return actual
        missing = {value: bool(unnamed(actual, value)) for values in expected.values() for value in values}
        return {key: [each for each in values if missing[each] == (key == "lacks")] for key, values in expected.items()}
    if isinstance(expected, dict) and actual is not None:
        return {key: plain(each, getattr(actual, key)) for key, each in expected.items()}
    if isinstance(expected, list) and isinstance(actual, Iterable) and not isinstance(actual, str):
        every = sorted(actual) if isinstance(actual, set | frozenset) else list(actual)
        padded = [*expected, *([None] * len(every))]
        return [plain(one, each) for one, each in zip(padded, every, strict=False)]
    return actual


def run(function: str, case: dict[str, Any]) -> None:
    """Run one case; AssertionError where the result is another."""
    called = named(function)
    kind = _OPERATION if "readings" in case else _RETURNS if "returns" in case else _RAISES
    assert set(case) - {"arguments"} <= kind and set(case) & {"readings", "returns", "raises"}, sorted(case)
    assert case.get("raises") not in ("Exception", "TypeError") and ("output" in case or "encoded" not in case)
    if "readings" in case:
        _operation(called, case)
        return
    target = getattr(called, "__wrapped__", called)
    if isinstance(called, type) and issubclass(called, FactBase):
        given, call = [_output(case)], called().process
    else:
        hints, given, call = _hints(target), [], called
        if "output" in case:
            given.append(_output(case))
        arguments = case.get("arguments", {})
        names = [name for name in hints if name != "return"][len(given) :]
        if isinstance(arguments, list):
            given += [build(hints[name], each) for name, each in zip(names[: len(arguments)], arguments, strict=True)]
        else:
            keywords = {name: build(hints.get(name, Any), each) for name, each in arguments.items()}
            call = lambda *values: called(*values, **keywords)  # noqa: E731
    if "raises" in case:
        with pytest.raises(Exception) as raised:
            call(*given)
        assert case["raises"] in [each.__name__ for each in type(raised.value).__mro__]
        message = {"names": case["names"]} if "names" in case else case.get("message", {"names": []})
        assert plain(message, str(raised.value)) == message
        return
    assert plain(case["returns"], call(*given)) == case["returns"]


def _output(case: dict[str, Any]) -> list[str]:
    lines: list[str] = case["output"].splitlines()
    encoded = case.get("encoded", {}).items()
    return [*lines, *(start + base64.b64encode(text.encode()).decode() for start, text in encoded)]


def _operation(operation: Any, case: dict[str, Any]) -> None:
    kinds = {fact: tuple if isinstance(value, list) else Any for fact, value in case["readings"].items()}
    readings = {named(fact): build(kinds[fact], value) for fact, value in case["readings"].items()}
    host = Host(readings)
    hints = _hints(operation._inner)
    arguments = {name: build(hints[name], each) for name, each in case.get("arguments", {}).items()}
    with ctx_host.use(host):
        found = commands(operation, host, **arguments)
    expected = case.get("commands", [])
    assert len(found) == len(expected), found
    for command, texts in zip(found, expected, strict=True):
        texts = [texts] if isinstance(texts, str) else texts
        assert texts and [text for text in texts if text not in command] == [], command
    for texts, said in ((case.get("noop", []), host.noops), (case.get("refuses", []), host.refusals)):
        assert bool(said) == bool(texts), said
        assert all(any(text in each for each in said) for text in texts)
