"""Settings of the command line (`--set driver.version=580.95.05`), above all that an inventory says.

They stand in the environment, so that the children of a command (pyinfra, processes that read nodes) have them, too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from gpunode.base.errors import CodedError
from gpunode.settings.component import Component
from gpunode.settings.model import component_models
from gpunode.settings.problems import nearest

# Holds the mapping as JSON.
SET = "GPUNODE_SET"
_KEY = re.compile(r"[a-z_][a-z0-9_]*(\.[^.=\s]+)+", re.ASCII)


class OverrideError(CodedError, ValueError):
    """Say what is wrong with a word behind --set, and what is allowed."""

    code = "settings.override"


def parse(words: Iterable[str]) -> dict[str, Any]:
    """Return the mapping that words such as `driver.version=580.95.05` make; raise OverrideError.

    What a setting takes decides how its value is read: text is taken as it stands, all else is JSON (true, 3, {…}),
    and `null` is none where a setting may have none.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, given, text = word.partition("=")
        if not given or not _KEY.fullmatch(key):
            raise OverrideError(f"{word!r}: give COMPONENT.SETTING=VALUE, such as driver.version=580.95.05")
        component, *path = key.split(".")
        if component not in component_models():
            raise OverrideError(f"{key}: there is no component {component}{_near(component, component_models())}")
        target = found.setdefault(component, {})
        for name in path[:-1]:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise OverrideError(f"{key}: another --set gives {name} a value of its own; leave out one of them")
        target[path[-1]] = _value(component_models()[component], path, text)
    return found


def give(words: Iterable[str]) -> None:
    """Have the words count for whatever reads settings in this process and its children; raise OverrideError."""
    if found := parse(words):
        os.environ[SET] = json.dumps(found)


def given() -> Mapping[str, Any]:
    """Return what --set gave, component -> settings; empty where nothing was given."""
    return _given(os.environ.get(SET))


@cache
def _given(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OverrideError(f"the environment variable {SET} holds no JSON mapping: unset it, and use --set")
    return found


def _value(model: type[Component], path: list[str], text: str) -> Any:
    annotation = _annotation(model, path)
    texts = annotation is not None and any(_is_text(each) for each in _alternatives(annotation))
    if texts and not (text == "null" and type(None) in _alternatives(annotation)):
        return text
    try:
        return json.loads(text)
    except ValueError:
        # The settings' own message says what is allowed.
        return text


def _annotation(model: type[Component], path: list[str]) -> Any:
    """Return what a setting may be; None where the settings have no such key, or its mapping any."""
    at: Any = model
    for name in path:
        if isinstance(at, type) and issubclass(at, Component):
            field = at.model_fields.get(name)
            if field is None:
                return None
            at = field.annotation
        elif get_origin(at) is dict:
            at = get_args(at)[1]
        else:
            return None
    return at


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return all(isinstance(each, str) for each in get_args(annotation))
    bare = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    return bare is str


def _near(word: str, known: Iterable[str]) -> str:
    found = nearest(word, tuple(known))
    return f"; did you mean {found}?" if found else ""
