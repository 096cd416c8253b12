"""Read a pyinfra inventory as pyinfra does, without connecting to any host, and validate its settings.

pyinfra looks for each host in the list of each of its groups: ten thousand hosts take five seconds, and a hundred
thousand ten minutes. `quick` gives it lists with an index. A command on a part of an inventory makes hosts of the part
alone: the file is executed as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error
from gpunode.base.run_context import Slot
from gpunode.base.terminal import kept_for_results
from gpunode.fleet.engine.parts import expected
from gpunode.fleet.inventory_files import InventoryError, reading_error, recognised, unused_group_data
from gpunode.settings import Settings, check_hosts
from gpunode.settings.hosts import HostData, data_of

if TYPE_CHECKING:
    from pyinfra.api.inventory import Inventory


# What says which machine a host is; the rest of pyinfra's own data says how it is reached.
_ADDRESS = ("ssh_hostname", "ssh_port")


def fingerprints(settings: Mapping[str, Settings], data: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return host -> SHA-256 (hex) of its settings and its address."""
    # Hosts with equal settings may have the very same (gpunode.settings.hosts).
    digests: dict[int, str] = {
        id(found): found.digest() for found in {id(each): each for each in settings.values()}.values()
    }
    return {
        host: hashlib.sha256(
            json.dumps([digests[id(found)], *(str(data[host].get(name)) for name in _ADDRESS)]).encode()
        ).hexdigest()
        for host, found in settings.items()
    }


class LimitError(CodedError):
    """Say which pattern names no host, and what it may be."""

    code = command_error(
        "limit.no-host", "A pattern of --limit matches no host of the inventory.",
        "A pattern is a host's name, a glob such as gpu-* or a group; each has to match a host. No host was contacted.",
        remedy="correct the pattern; the message lists the groups, and `gpunode check INVENTORY` names the hosts",
        exit="64",
    )  # fmt: skip

    def __init__(self, pattern: str, source: str, groups: Iterable[str]) -> None:
        named = ", ".join(sorted(groups)) or "none"
        super().__init__(
            f"{pattern}: {source} has no such host or group; give a host's name, a glob such as 'gpu-*', or a group: "
            f"{named}"
        )


class Hosts(list[Any]):
    """Be a group's list of hosts, which knows at once whether it holds one. It is only ever added to."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[int] = set()

    def append(self, host: Any) -> None:
        """Add a host, which lives as long as this."""
        super().append(host)
        self._known.add(id(host))

    def __contains__(self, host: object) -> bool:
        """Say whether a host is in it, by identity, as pyinfra's hosts have it."""
        return id(host) in self._known


@contextmanager
def quick(only: Collection[str] | None = None) -> Iterator[None]:
    """Have pyinfra read inventories so meanwhile; only: of no other host anything is made, by name."""
    from pyinfra.api import inventory as api
    from pyinfra_cli import inventory as cli

    made: Any = api
    files: Any = cli
    before, groups_of = made.defaultdict, files._get_groups_from_filename
    made.defaultdict = lambda factory: defaultdict(Hosts if factory is list else factory)
    if only is not None:
        names = frozenset(only)
        files._get_groups_from_filename = lambda file: {
            group: _of(those, names) for group, those in groups_of(file).items()
        }
    try:
        yield
    finally:
        made.defaultdict, files._get_groups_from_filename = before, groups_of


def _of(group: Any, only: frozenset[str]) -> Any:
    """Return a group without other hosts; what a connector makes hosts of stays, for nobody knows yet which."""
    if isinstance(group, tuple):
        hosts, data = group
        return _of(hosts, only), data
    return [each for each in group if (name := _name(each)) in only or name.startswith("@")]


def _name(host: Any) -> str:
    return str(host[0] if isinstance(host, tuple) else host)


# A thousand hosts' settings take a second, and a run asks for them once for each host.
_judged: Slot[dict[str, Settings] | None] = Slot(lambda: None)


# What makes a pattern of fnmatch's match more than itself.
_GLOB = frozenset("*?[")
# Of the connector @chroot, which declares no class of its data.
_WITHOUT_CLASS = frozenset({"chroot_directory"})


@cache
def foreign_names() -> frozenset[str]:
    """Return the names in host data that are pyinfra's own: the data keys of every installed connector."""
    # Late, because importing the connectors takes long and only hosts' data need them.
    from pyinfra.api.connectors import get_all_connectors

    names: set[str] = set()
    for connector in get_all_connectors().values():
        keys = getattr(connector, "data_cls", None)
        names |= set(getattr(keys, "__annotations__", {}))
        for base in getattr(keys, "__orig_bases__", ()):
            names |= set(getattr(base, "__annotations__", {}))
    return frozenset(names | _WITHOUT_CLASS)


def checked(inventory: Inventory) -> tuple[dict[str, dict[str, Any]], dict[str, Settings]]:
    """Return host -> data, and host -> settings; raise SettingsError with every mistake of every host."""
    data = {host.name: data_of(host).data for host in inventory}
    return data, check_hosts(data, foreign_names())


def host_settings(inventory: str | os.PathLike[str]) -> dict[str, Settings]:
    """Return host -> settings of an inventory; raise InventoryError or SettingsError."""
    return checked(load_inventory(inventory))[1]


def validate_state(inventory: Inventory) -> dict[str, Settings]:
    """Return host -> settings of a pyinfra Inventory; raise SettingsError with every mistake of every host."""
    settings = _judged.of(inventory)
    if settings is None:
        _, settings = checked(inventory)
        _judged.set(inventory, settings)
    return settings


def load_inventory(inventory: str | os.PathLike[str]) -> Inventory:
    """Return pyinfra's Inventory of a file, or of anything else that pyinfra's command line takes.

    Raise InventoryError where it cannot be read or holds no host. No host is contacted. An inventory is a program: what
    it prints goes to standard error.
    """
    name = os.fspath(inventory)
    if (others := recognised(Path(name))) is not None:
        raise InventoryError(others)
    if (name.endswith(".py") or os.sep in name) and "@" not in name and not Path(name).is_file():
        raise InventoryError(f"{name}: there is no such inventory file")
    # pyinfra_cli patches the standard library for gevent on import; only what reads inventories needs to pay for that.
    from gpunode.base import fast_import  # noqa: F401  # isort: skip
    from pyinfra.api.state import State
    from pyinfra.context import ctx_state
    from pyinfra_cli import util
    from pyinfra_cli.inventory import make_inventory

    # pyinfra keeps the code of each file that it executed; whoever asks again wants what the file says now.
    util.PYTHON_CODES.clear()
    context: Any = ctx_state
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    # pyinfra notes in its state which file it executes, so there must be one, if only for the reading.
    state, before = State(), context.get()
    state.cwd = folder
    context.set(state)
    try:
        part = expected()
        with quick(None if part is None else part.names), kept_for_results():
            found: Inventory = make_inventory(name, cwd=folder)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # It may raise anything, SystemExit too, and none may become a traceback here.
        raise reading_error(name, error) from error
    finally:
        context.set(before)
    if not len(found):
        raise InventoryError(f"{name}: the inventory holds no host")
    if part is None:
        for caution in unused_group_data(name, found.groups):
            _cautions.setdefault(caution, False)
    return found


# Cautions about files of inventories that this process has read, and whether they were reported.
_cautions: dict[str, bool] = {}


def new_cautions() -> list[str]:
    """Return the cautions about inventories' files that were not returned yet."""
    found = [text for text, is_reported in _cautions.items() if not is_reported]
    _cautions.update(dict.fromkeys(found, True))
    return found


def limited(inventory: Inventory, patterns: Collection[str]) -> tuple[str, ...]:
    """Return the names of the hosts that patterns name, as pyinfra's own --limit has it: groups, names, and globs.

    All of them where there is no pattern. Raise LimitError where one of them names no host.
    """
    if not patterns:
        return tuple(host.name for host in inventory)
    found: set[str] = set()
    every = {host.name for host in inventory}
    for pattern in patterns:
        of_group = inventory.groups.get(pattern)
        if of_group is not None:
            own = {host.name for host in of_group}
        elif _GLOB.isdisjoint(pattern):
            # Of ten thousand hosts some hundred may be named one by one.
            own = {pattern} & every
        else:
            own = {name for name in every if fnmatch(name, pattern)}
        if not own:
            raise LimitError(pattern, "the inventory", map(str, inventory.groups))
        found |= own
    return tuple(host.name for host in inventory if host.name in found)


def host_data(inventory: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return host -> data of an inventory, its groups' data merged key by key; raise InventoryError."""
    return {name: found.data for name, found in layered_data(inventory).items()}


def layered_data(inventory: str | os.PathLike[str]) -> dict[str, HostData]:
    """Return host -> data of an inventory, with what a host's own mappings drop; raise InventoryError."""
    return {host.name: data_of(host) for host in load_inventory(inventory)}
