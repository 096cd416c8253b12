"""Which values a person sets that a chart does not have: a misspelt one is taken by helm without a word."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import yaml

from gpunode.base.reading import ParseError
from gpunode.settings.problems import nearest

# What Kubernetes gives a shape, or people names of their own: a chart's default is an example of it.
_FREE = frozenset(
    (
        "affinity",
        "annotations",
        "config",
        "labels",
        "limits",
        "matchLabels",
        "nodeAffinity",
        "nodeSelector",
        "podAnnotations",
        "podLabels",
        "podSecurityContext",
        "requests",
        "resources",
        "rollingUpdate",
        "securityContext",
        "updateStrategy",
    )
)
# Every chart and subchart gets it.
_GLOBAL = "global"


def unknown_values(
    values: Mapping[str, Any], chart: str, subcharts: Collection[str], unlisted: Collection[str] = ()
) -> tuple[str, ...]:
    """Return a sentence for each of the values that the chart's own have not; raise ParseError.

    Templates may read others: that is no error, and people are told.

    + values: a person's own
    + chart: the text of the chart's values, in which a commented name counts as one that it has
    + subcharts: names and aliases of the charts that it brings, whose values are their own
    + unlisted: patterns of dotted values that its templates read all the same
    """
    try:
        own = yaml.safe_load(chart)
    except yaml.YAMLError:
        raise ParseError("helm tells no values of the chart") from None
    if not isinstance(own, dict):
        return ()
    commented = frozenset(re.findall(r"^\s*#\s*([A-Za-z][A-Za-z0-9_]*):", chart, re.MULTILINE))
    told = {name: value for name, value in values.items() if name not in {_GLOBAL, *subcharts}}
    found = _unknown(told, own, ())
    return tuple(
        sentence
        for name, sentence in found
        if name[-1] not in commented and not any(fnmatchcase(".".join(name), each) for each in unlisted)
    )


_Path = tuple[str, ...]


def _unknown(values: Mapping[str, Any], own: Mapping[str, Any], path: _Path) -> Iterator[tuple[_Path, str]]:
    for name, value in values.items():
        below, here = own.get(name), (*path, name)
        if name not in own:
            near = nearest(name, map(str, own))
            hint = f"; did you mean {'.'.join((*path, near))!r}?" if near else ""
            yield here, f"{'.'.join(here)[:200]!r} is none of the chart's own values{hint}"
        elif name not in _FREE and isinstance(value, Mapping) and isinstance(below, Mapping) and below:
            yield from _unknown(value, below, here)
