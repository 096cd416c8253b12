"""Read YAML and JSON that people write, where a key given twice is an error, and YAML as Kubernetes reads it.

Its API server has its own text for a number: `16k` for 16000.
source of quantities: kubernetes/apimachinery, pkg/api/resource/quantity.go (CanonicalizeBytes)
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
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


_STRINGS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")


class Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """Read scalars as Kubernetes does: a date is a string, and so is an equals sign."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _STRINGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


_QUANTITY = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+))(?P<unit>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII)
_UNITS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def quantity(value: Any) -> Any:
    """Return a quantity as one number's text: `1000m` and 1 are the same; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    match = _QUANTITY.fullmatch(str(value))
    if match is None or len(str(value)) > 40:
        return value
    number, unit = Decimal(match["number"]), match["unit"] or ""
    if unit in _BINARY:
        number *= 1024 ** _BINARY[unit]
    elif unit in _UNITS:
        number = number.scaleb(_UNITS[unit])
    elif unit:
        number = number.scaleb(int(unit[1:]))
    return f"{number.normalize():f}"
