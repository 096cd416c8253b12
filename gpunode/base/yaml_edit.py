"""Edits of YAML files that people wrote: a few values of a mapping, and of its mappings, are set or taken out.

Comments, order and all else stay to the byte. The new text is read again before it counts: where it does not say what
it is to say, or the old one cannot be edited so, the file is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from gpunode.base.folding import in_one_line
from gpunode.base.structured_text import TextError, TextLimitError, load_yaml
from gpunode.base.toml_edit import ConfigurationRefused

# One key, or that of a mapping and one in it.
Path = tuple[str, ...]
Value = str | int | None
_BARE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.%-]*")
_Entry = tuple[yaml.ScalarNode, yaml.Node]


def plain(text: str) -> dict[str, Any]:
    """Return what a file says, {} where it is empty; raise ConfigurationRefused where it is no mapping."""
    try:
        found = load_yaml(text, unique=True)
    except TextError as error:
        what = "cannot be read" if isinstance(error, TextLimitError) else "is no YAML"
        raise ConfigurationRefused(f"{what}: {in_one_line(error)}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigurationRefused("is no mapping")
    return found


def value_at(document: Mapping[str, Any], path: Path) -> Any:
    """Return the value at a path; None where there is none."""
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def changed(document: Mapping[str, Any], changes: Mapping[Path, Value]) -> dict[str, Any]:
    """Return a document with changes; None takes a value out, and a mapping with its last one."""
    result: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in changes.items():
        within: Any = result
        for key in path[:-1]:
            if not isinstance(within.get(key), dict):
                if value is None:
                    break
                within[key] = {}
            within = within[key]
        else:
            if value is not None:
                within[path[-1]] = value
            elif path[-1] in within:
                del within[path[-1]]
                if len(path) > 1 and not within:
                    del result[path[0]]
    return result


def edited(text: str, changes: Mapping[Path, Value]) -> str:
    """Return the text with changes, as `changed` makes them; raise ConfigurationRefused where that cannot be done."""
    before = plain(text)
    desired = changed(before, changes)
    for path, value in changes.items():
        if value_at(plain(text), path) != value:
            text = _without(text, path) if value is None else _with(text, path, value)
    try:
        right = plain(text) == desired
    except ConfigurationRefused:
        right = False
    if not right:
        raise ConfigurationRefused("cannot be edited without losing what it says. Remedy: write plain block YAML in it")
    return text


def scalar(value: str | int) -> str:
    """Return a value as YAML has it in one line."""
    if isinstance(value, str) and not (_BARE.fullmatch(value) and load_yaml(value) == value):
        return json.dumps(value)
    return str(value)


def _entries(node: yaml.Node | None) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                found[key.value] = key, value
    return found


def _root(text: str) -> yaml.MappingNode | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return None
    if root.flow_style:
        raise ConfigurationRefused(
            "is JSON or one mapping in braces, which gpunode does not edit. Remedy: write block YAML"
        )
    return root


def _with(text: str, path: Path, value: str | int) -> str:
    entries = _entries(_root(text))
    key, said = path[0], scalar(value)
    if key not in entries:
        lines = f"{key}: {said}\n" if len(path) == 1 else f"{key}:\n  {scalar(path[1])}: {said}\n"
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{lines}"
    node = entries[key][1]
    if len(path) == 1:
        return _replaced(text, node, said)
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return _replaced(text, node, f"{{{scalar(path[1])}: {said}}}")
    inner = _entries(node)
    if path[1] in inner:
        return _replaced(text, inner[path[1]][1], said)
    if node.flow_style:
        at = node.start_mark.index + 1
        return f"{text[:at]}{scalar(path[1])}: {said}, {text[at:]}"
    first: yaml.Node = node.value[0][0]
    at = _line(text, first.start_mark.index)
    return f"{text[:at]}{' ' * first.start_mark.column}{scalar(path[1])}: {said}\n{text[at:]}"


def _replaced(text: str, node: yaml.Node, said: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    # An empty value stands right behind its colon.
    return f"{text[:start]}{' ' if start == end else ''}{said}{text[end:]}"


def _without(text: str, path: Path) -> str:
    key, node = _entries(_root(text))[path[0]]
    if len(path) > 1 and isinstance(node, yaml.MappingNode) and len(node.value) > 1:
        inner_key, inner = _entries(node)[path[1]]
        if node.flow_style:
            return _out_of_braces(text, inner_key.start_mark.index, inner.end_mark.index)
        return _cut(text, inner_key.start_mark.index, inner.end_mark.index)
    last = node if not isinstance(node, yaml.MappingNode) or node.flow_style else node.value[-1][1]
    return _cut(text, key.start_mark.index, last.end_mark.index)


def _cut(text: str, start: int, end: int) -> str:
    """Take out whole lines."""
    after = text.find("\n", end)
    return text[: _line(text, start)] + ("" if after < 0 else text[after + 1 :])


def _out_of_braces(text: str, start: int, end: int) -> str:
    after = re.match(r"\s*,\s*", text[end:])
    if after is not None:
        return text[:start] + text[end + after.end() :]
    return text[:start].rstrip().removesuffix(",") + text[end:]


def _line(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1
