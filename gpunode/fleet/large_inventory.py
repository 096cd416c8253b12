"""Large inventories, read by pyinfra in a time that grows with the number of hosts, and not with its square.

pyinfra looks for each host in the list of each of its groups, so that ten thousand hosts take five seconds, and a
hundred thousand ten minutes. The lists here know what they hold. A command on a part of an inventory makes hosts of the
part alone: the file is executed as ever, and is as long as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any


class Hosts(list[Any]):
    """Be a group's list of hosts, which knows at once whether it holds one. It is only ever added to."""

    def __init__(self) -> None:
        """Be empty."""
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
    made.defaultdict = _dictionary
    if only is not None:
        files._get_groups_from_filename = _those(groups_of, frozenset(only))
    try:
        yield
    finally:
        made.defaultdict, files._get_groups_from_filename = before, groups_of


def _dictionary(factory: Callable[[], Any]) -> Any:
    return defaultdict(Hosts if factory is list else factory)


def _those(groups_of: Callable[[str], dict[str, Any]], only: frozenset[str]) -> Callable[[str], dict[str, Any]]:
    def found(filename: str) -> dict[str, Any]:
        return {group: _of(those, only) for group, those in groups_of(filename).items()}

    return found


def _of(group: Any, only: frozenset[str]) -> Any:
    """Return a group without other hosts; what a connector makes hosts of stays, for nobody knows yet which."""
    if isinstance(group, tuple):
        hosts, data = group
        return _of(hosts, only), data
    return [each for each in group if (name := _name(each)) in only or name.startswith("@")]


def _name(host: Any) -> str:
    return str(host[0] if isinstance(host, tuple) else host)
