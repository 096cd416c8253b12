"""The layers of a host's data: all hosts', its groups', its own, the command line's, those of `--set`.

pyinfra takes the topmost value of a name, whole: a host that names one key of `driver` would lose its group's others.
So the mappings of a component are merged key by key; one that has REPLACE stands alone.

The environment holds the settings of `--set`, so that the children of a command (pyinfra, processes that read nodes)
have them, too. With --limit they are for those hosts alone, but the settings that a run has one of are for all hosts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from typing import TYPE_CHECKING, Any

from gpunode.base.errors import CodedError
from gpunode.base.messages import mistake
from gpunode.base.structured_text import TextError, load_json

if TYPE_CHECKING:
    from pyinfra.api import Host

# What --set gave, and the patterns of the hosts that it is for (none: all of them), as JSON.
SET, LIMIT = "GPUNODE_SET", "GPUNODE_SET_LIMIT"
# What a run has one of, whichever hosts it is limited to.
_OF_A_RUN = {"disruption": ("max_parallel",)}


class OverrideError(CodedError, ValueError):
    """Say what is wrong with a word behind --set, and what is allowed."""

    code = mistake(
        "settings.override", "The value of --set is not a setting with a value.",
        "It has the form COMPONENT.SETTING=VALUE; lists and mappings are JSON.",
        remedy="write it as the message says; docs/settings.md lists all settings", exit="64",
    )  # fmt: skip


def given() -> Mapping[str, Any]:
    """Return what --set gave, component -> settings; empty where nothing was given."""
    found: Mapping[str, Any] = _read(SET, os.environ.get(SET), dict)
    return found


def given_for(name: str, groups: Collection[str], every: Collection[str]) -> Mapping[str, Any]:
    """Return what --set gave for a host; where --limit leaves it out, only what a run has one of.

    groups: the host's own; every: all groups of the inventory, for a pattern that names one is no host's
    """
    if not limit() or any(each in groups if each in every else fnmatch(name, each) for each in limit()):
        return given()
    settings = {name: found for name, found in given().items() if name in _OF_A_RUN and isinstance(found, dict)}
    of_a_run = {name: {key: found[key] for key in _OF_A_RUN[name] if key in found} for name, found in settings.items()}
    return {name: found for name, found in of_a_run.items() if found}


def limit() -> tuple[str, ...]:
    """Return the patterns of the hosts that --set is for; none: it is for all of them."""
    return tuple(map(str, _read(LIMIT, os.environ.get(LIMIT), list)))


def environment() -> dict[str, str]:
    """Return the variables that have a command on another machine find what was given here."""
    return {name: os.environ[name] for name in (SET, LIMIT) if name in os.environ}


@cache
def _read(variable: str, text: str | None, kind: type[Any]) -> Any:
    try:
        found = load_json(text) if text else kind()
    except TextError:
        found = None
    if not isinstance(found, kind):
        what = "mapping" if kind is dict else "list"
        raise OverrideError(f"the environment variable {variable} holds no JSON {what}: unset it, and use --set")
    return found


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
