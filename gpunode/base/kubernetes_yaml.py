"""YAML as Kubernetes reads it."""

from __future__ import annotations

import yaml

_STRINGS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")


class Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """Read scalars as Kubernetes does: a date is a string, and so is an equals sign."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _STRINGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
