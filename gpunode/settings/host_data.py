"""A host's data out of its layers: all hosts', its groups', its own, the command line's, those of `--set`.

pyinfra takes the topmost value of a name, whole: a host that names one key of `driver` would lose its group's others.
So the mappings of components are merged key by key; one that has REPLACE stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpunode.settings import component_models, overrides
from gpunode.settings.problems import DEEPEST, is_too_deep

if TYPE_CHECKING:
    from pyinfra.api import Host

REPLACE = "_replace"


@dataclass(frozen=True)
class HostData:
    """Hold a host's data, and the keys (`driver.branch`) of lower layers that a mapping with REPLACE has dropped."""

    data: dict[str, Any]
    dropped: tuple[str, ...] = ()


@dataclass
class _Merge:
    """Hold what one merge has dropped so far."""

    dropped: list[str] = field(default_factory=list)

    def of(self, lower: Any, upper: Any, path: tuple[str, ...]) -> Any:
        """Return `upper` on top of `lower`; lists and single values are not merged."""
        # What is nested deeper is refused as that.
        if not isinstance(upper, Mapping) or len(path) > DEEPEST:
            return upper
        if upper.get(REPLACE) is True:
            alone = {name: value for name, value in upper.items() if name != REPLACE}
            if isinstance(lower, Mapping):
                self.dropped += (".".join((*path, str(name))) for name in lower if name not in alone)
            return alone
        below: Mapping[Any, Any] = lower if isinstance(lower, Mapping) else {}
        above = {name: self.of(below.get(name), value, (*path, str(name))) for name, value in upper.items()}
        return {**below, **above}


def merged(layers: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]) -> HostData:
    """Return a host's data.

    + layers: the lowest first
    + plain: the data as pyinfra has them, for all that is no component's
    """
    merge, data, components = _Merge(), dict(plain), component_models()
    for name in components:
        found = [layer[name] for layer in layers if name in layer]
        # What is nested without end is refused as that.
        if found and not any(map(is_too_deep, found)):
            value: Any = None
            for each in found:
                value = merge.of(value, each, (name,))
            data[name] = value
    return HostData(data, tuple(sorted(merge.dropped)))


def overridden(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of no inventory with those of --set on top, key by key."""
    merge, given, components = _Merge(), overrides.given(), component_models()
    above = {name: merge.of(data.get(name), value, (name,)) for name, value in given.items() if name in components}
    return {**data, **above}


def _given(host: Host) -> Mapping[str, Any]:
    if not overrides.limit():
        return overrides.given()
    return overrides.given_for(host.name, tuple(map(str, host.groups)), host.inventory.groups)


def data_of(host: Host) -> HostData:
    """Return the data of a host of pyinfra's."""
    inventory = host.inventory
    layers = [
        inventory.get_data(),
        *(inventory.get_group_data(str(group)) for group in host.groups),
        inventory.get_host_data(host.name),
        inventory.get_override_data(),
        host.data.override_datas,
        _given(host),
    ]
    return merged(layers, host.data.dict())
