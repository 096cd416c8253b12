"""Words of the command line that give settings (`--set driver.version=580.95.05`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args, get_origin

from gpunode.base.structured_text import KeyTwiceError, TextError, load_json
from gpunode.settings import layers
from gpunode.settings.component import Component, alternatives, annotation_at, component_of, settings_or_mapping
from gpunode.settings.layers import LIMIT, SET, OverrideError
from gpunode.settings.model import component_models
from gpunode.settings.problems import SECRET, hides, is_secret, nearest

# A GPU's name has spaces in it.
_KEY = re.compile(r"[a-z_][a-z0-9_]*(\.[^.=\s]([^.=\x00-\x1f]*[^.=\s])?)+", re.ASCII)

# An image by its digest: what stands before its @ is no password.
_PINNED = re.compile(r"[\w.:/-]+@sha256:[0-9a-f]{64}", re.ASCII)


def parse(words: Iterable[str]) -> dict[str, Any]:
    """Return the mapping that words such as `driver.version=580.95.05` make; raise OverrideError.

    What a setting takes decides how its value is read: text is taken as it stands, all else is JSON (true, 3, {…}),
    and `null` is none where a setting may have none.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, given, text = word.partition("=")
        if not given or not _KEY.fullmatch(key):
            # What stands behind = may be secret.
            raise OverrideError(f"{key!r}: give COMPONENT.SETTING=VALUE, such as driver.version=580.95.05")
        if text == SECRET:
            raise OverrideError(f"{key}: {SECRET} stands for a value that is never shown; give the value itself")
        component, *names = key.split(".")
        if component not in component_models():
            raise OverrideError(f"{key}: there is no component {component}{_near(component, component_models())}")
        path = _path(component_models()[component], names, text)
        target = found.setdefault(component, {})
        for name in path[:-1]:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise OverrideError(f"{key}: another --set gives {name} a value of its own; leave out one of them")
        try:
            target[path[-1]] = _value(component_models()[component], path, text)
        except KeyTwiceError as error:
            raise OverrideError(f"{key}: {error}") from None
    return found


@contextmanager
def give(words: Iterable[str], limit: Collection[str] = ()) -> Iterator[None]:
    """Have the words count for what reads settings in this process and its children meanwhile; raise OverrideError.

    limit: patterns of the hosts that they are for, as --limit takes them; of all hosts where there is none
    """
    given, before = {SET: json.dumps(parse(words)), LIMIT: json.dumps(list(limit))}, layers.environment()
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
        os.environ.update(before)


def shown() -> tuple[str, ...]:
    """Return the words behind --set that give what was given, in one order; what may be secret is not shown."""
    words = [
        shown_word(word, value)
        for component, settings in layers.given().items()
        if component in component_models() and isinstance(settings, dict)
        for word, value in _words(component, (), settings)
    ]
    return tuple(sorted(words))


def shown_word(word: str, value: Any = None) -> str:
    """Return KEY=VALUE as it may be shown; value: as it counts where that is no text."""
    key, _, text = word.partition("=")
    value = text if value is None else value
    is_pinned = isinstance(value, str) and _PINNED.fullmatch(value) is not None
    secret = any(map(is_secret, key.split("."))) or (hides(value) and not is_pinned)
    return f"{key}={SECRET}" if secret else word


def _words(component: str, path: tuple[str, ...], value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (word, value), which `parse` makes what was given of; a word for each setting where that can be."""
    if isinstance(value, dict) and value:
        words = [each for name, inner in value.items() for each in _words(component, (*path, name), inner)]
        if not path or _makes([word for word, _ in words], component, path, value):
            yield from words
            return
    if path:
        key = ".".join((component, *path))
        plain = isinstance(value, str) and _makes([f"{key}={value}"], component, path, value)
        yield f"{key}={value if plain else json.dumps(value)}", value


def _makes(words: Iterable[str], component: str, path: Iterable[str], value: Any) -> bool:
    for name in reversed((component, *path)):
        value = {name: value}
    try:
        return bool(parse(words) == value)
    except OverrideError:
        return False


def _path(model: type[Component], names: list[str], text: str) -> list[str]:
    """Return the path to a setting; behind one that is a mapping by names of the user's own, dots are of the name."""
    at: Any = model
    for done, name in enumerate(names):
        if component_of(at):
            field = at.model_fields.get(name)
            at = None if field is None else settings_or_mapping(field.annotation)
        elif get_origin(at) is dict:
            inner, rest = get_args(at)[1], names[done:]
            if inner is Any:
                # Of a chart's values: a dot leads into a mapping, as with helm's own --set.
                return names
            if not component_of(inner):
                return [*names[:done], ".".join(rest)]
            # Up to what the entry has a setting of that name for; else the word gives the entry whole, or a mistake.
            ends = (end for end in range(1, len(rest)) if rest[end] in inner.model_fields)
            end = next(ends, len(rest) if text.startswith("{") else 1)
            tail = _path(inner, rest[end:], text) if rest[end:] else []
            return [*names[:done], ".".join(rest[:end]), *tail]
        else:
            return names
    return names


def _value(model: type[Component], path: list[str], text: str) -> Any:
    annotation = annotation_at(model, path)
    texts = annotation is not None and any(_is_text(each) for each in alternatives(annotation))
    if texts and not (text == "null" and type(None) in alternatives(annotation)):
        return text
    try:
        return load_json(text, unique=True)
    except KeyTwiceError:
        raise
    except TextError:
        # The settings' own message says what is allowed.
        return text


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return all(isinstance(each, str) for each in get_args(annotation))
    bare = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    return bare is str


def _near(word: str, known: Iterable[str]) -> str:
    found = nearest(word, tuple(known))
    return f"; did you mean {found}?" if found else ""
