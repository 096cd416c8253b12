"""Read YAML and JSON that people write: a key given twice is an error, where PyYAML and json take the last one."""

from __future__ import annotations

import json
from typing import Any

import yaml


class KeyTwiceError(ValueError):
    """Report a key that a mapping has twice."""

    def __init__(self, key: str, where: str = "") -> None:
        super().__init__(f"the key {key!r} is given twice{where}: remove one of the two")
        self.key = key


class _Loader(yaml.SafeLoader):
    def get_single_node(self) -> yaml.Node | None:
        root: yaml.Node | None = super().get_single_node()
        seen: set[int] = set()
        nodes = [] if root is None else [root]
        while nodes:
            node = nodes.pop()
            # An anchor's node is the same object wherever an alias repeats it.
            if id(node) not in seen and isinstance(node, yaml.CollectionNode):
                seen.add(id(node))
                nodes += _children(node)
        return root


def _children(node: yaml.CollectionNode) -> list[yaml.Node]:
    """Return the nodes within a node; raise KeyTwiceError."""
    if not isinstance(node, yaml.MappingNode):
        return list(node.value)
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        # Several mappings may be merged, each by a `<<`.
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        name, line = (key.tag, key.value), key.start_mark.line + 1
        if name in lines:
            raise KeyTwiceError(key.value, f", in lines {lines[name]} and {line}")
        lines[name] = line
    return [each for pair in node.value for each in pair]


def load_yaml(text: str) -> Any:
    """Return what a YAML document says; raise yaml.YAMLError, or KeyTwiceError with both lines."""
    return yaml.load(text, Loader=_Loader)


def load_json(text: str) -> Any:
    """Return what a JSON document says; raise ValueError, of which KeyTwiceError is one."""
    return json.loads(text, object_pairs_hook=unique_pairs)


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a mapping; raise KeyTwiceError."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise KeyTwiceError(key)
        found[key] = value
    return found
