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
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, Any], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, key.value), key.start_mark.line + 1
            # Several mappings may be merged, each by a `<<`; a key that is a list or mapping is refused later.
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if name in lines:
                raise KeyTwiceError(key.value, f", in lines {lines[name]} and {line}")
            lines[name] = line
        return node


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
