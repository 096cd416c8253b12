"""A host's data, with the settings of each component merged out of their layers (gpunode.settings.layers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpunode.settings import component_models, set_option
from gpunode.settings.layers import Merge, layers_of
from gpunode.settings.model import RETRY

if TYPE_CHECKING:
    from pyinfra.api import Host


@dataclass(frozen=True)
class HostData:
    """Hold a host's data, and the keys (`driver.branch`) of lower layers that a mapping with REPLACE has dropped."""

    data: dict[str, Any]
    dropped: tuple[str, ...] = ()


def merged(layers: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]) -> HostData:
    """Return a host's data.

    + layers: the lowest first
    + plain: the data as pyinfra has them, for all that is no component's
    """
    merge, data = Merge(), dict(plain)
    for name in component_models():
        if (value := merge.component(name, layers)) is not None:
            data[name] = value
    if str(plain.get(RETRY, "")).lower() in ("1", "true", "yes"):
        data["disruption"] = merge.of(data.get("disruption"), {"retry": True}, ("disruption",))
    return HostData(data, tuple(sorted(merge.dropped)))


def overridden(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of no inventory with those of --set on top, key by key."""
    merge, given, components = Merge(), set_option.given(), component_models()
    above = {name: merge.of(data.get(name), value, (name,)) for name, value in given.items() if name in components}
    return {**data, **above}


def data_of(host: Host) -> HostData:
    """Return the data of a host of pyinfra's."""
    return merged(layers_of(host), host.data.dict())
