"""YAML as Kubernetes reads it, and quantities: its API server has its own text for a number, `16k` for 16000.

source of quantities: kubernetes/apimachinery, pkg/api/resource/quantity.go (CanonicalizeBytes)
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import yaml

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
