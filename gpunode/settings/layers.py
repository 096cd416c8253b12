"""The layers of a host's data: all hosts', its groups', its own, the command line's, those of `--set`.

pyinfra takes the topmost value of a name, whole: a host that names one key of `driver` would lose its group's others.
So the mappings of a component are merged key by key; one that has REPLACE stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpunode.settings.set_option import given_for

if TYPE_CHECKING:
    from pyinfra.api import Host

REPLACE = "_replace"
# No setting is a mapping of so many in each other, and none takes more; Python itself ends at some hundreds.
DEEPEST = 48


@dataclass
class Merge:
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

    def component(self, name: str, layers: Sequence[Mapping[str, Any]]) -> Any:
        """Return a component's settings, the lowest layer first; None where no layer has any, or not as it may be."""
        found = [layer[name] for layer in layers if name in layer]
        value: Any = None
        # What is nested without end is refused as that.
        if not any(map(is_too_deep, found)):
            for each in found:
                value = self.of(value, each, (name,))
        return value


def layers_of(host: Host) -> list[Mapping[str, Any]]:
    """Return the layers of a host's data, the lowest first."""
    inventory = host.inventory
    return [
        inventory.get_data(),
        *(inventory.get_group_data(str(group)) for group in host.groups),
        inventory.get_host_data(host.name),
        inventory.get_override_data(),
        host.data.override_datas,
        given_for(host.name, tuple(map(str, host.groups)), inventory.groups),
    ]


def is_too_deep(value: object) -> bool:
    """Say whether mappings and lists stand in each other more than DEEPEST deep; one that holds itself does."""
    # By identity: what stands in many places, or in itself, is looked into once per level.
    level = {id(value): value}
    for _ in range(DEEPEST):
        level = {id(item): item for each in level.values() for item in _inside(each)}
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list | tuple | set | frozenset) else ()
