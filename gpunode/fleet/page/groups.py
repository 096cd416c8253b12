"""A view's hosts as the rows of the map: hosts of which the same is told are one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpunode.base.host_names import folded_first
from gpunode.base.messages import Scope
from gpunode.fleet.page.view import COSTS, Host, Item, View

# How many values of one thing, and how many names of a row, are told.
_VALUES = 4
_NAMES = 2
UNKNOWN_COST = "takes a person, or nobody can say"


@dataclass(frozen=True)
class Row:
    """Hold hosts that are alike, or the cluster: their verdict, each column's (None: nothing is told), what differs.

    good: what is as desired; where the hosts' values differ, some of them
    """

    label: str
    hosts: tuple[str, ...]
    kind: str
    cells: tuple[str | None, ...]
    items: tuple[Item, ...]
    good: tuple[Item, ...]
    scope: Scope


def rows(view: View) -> tuple[Row, ...]:
    """Return the rows: the cluster's, then the gravest first, those that differ in the same columns together."""
    alike: dict[tuple[object, ...], list[Host]] = {}
    quiet = {kind.name for kind in view.kinds if kind.is_quiet}
    for host in view.hosts:
        differing = tuple(item for item in host.items if item.kind not in quiet)
        alike.setdefault((host.scope, host.kind, _cells(view, host), differing), []).append(host)
    found = [_row(view, hosts, quiet) for hosts in alike.values()]
    last = len(view.kinds)
    ranks = {kind.name: at for at, kind in enumerate(view.kinds)}
    return tuple(
        sorted(
            found,
            key=lambda row: (
                row.scope is Scope.NODE,
                min((ranks[kind] for kind in (row.kind, *row.cells) if kind is not None), default=last),
                [last if kind is None or kind in quiet else ranks[kind] for kind in row.cells],
            ),
        )
    )


def differences(view: View) -> tuple[tuple[Item, tuple[str, ...], Scope], ...]:
    """Return each difference once, with its hosts or the cluster: the gravest first, then that of most hosts."""
    quiet = {kind.name for kind in view.kinds if kind.is_quiet}
    found: dict[tuple[Item, Scope], list[str]] = {}
    for host in view.hosts:
        for item in host.items:
            if item.kind not in quiet:
                found.setdefault((item, host.scope), []).append(host.name)
    ordered = sorted(found.items(), key=lambda each: (view.rank(each[0][0].kind), -len(each[1])))
    return tuple((item, tuple(dict.fromkeys(names)), scope) for (item, scope), names in ordered)


def costs(view: View) -> tuple[tuple[str, int], ...]:
    """Return (what it costs, of how many hosts), by each host's gravest; of those on which something differs."""
    order = list(COSTS)
    quiet = {kind.name for kind in view.kinds if kind.is_quiet}
    found: Counter[str] = Counter()
    for host in view.hosts:
        if host.kind in quiet or host.scope is Scope.CLUSTER:
            continue
        known = [order.index(item.cost) for item in host.items if item.kind not in quiet and item.cost in COSTS]
        found[COSTS[order[max(known)]] if known else UNKNOWN_COST] += 1
    words = (*reversed(COSTS.values()), UNKNOWN_COST)
    return tuple((each, found[each]) for each in words if found[each])


def _cells(view: View, host: Host) -> tuple[str | None, ...]:
    ranks = {kind.name: at for at, kind in enumerate(view.kinds)}
    found: dict[str, int] = {}
    for item in host.items:
        found[item.component] = min(found.get(item.component, len(ranks)), ranks[item.kind])
    return tuple(view.kinds[found[name]].name if name in found else None for name in view.columns)


def _row(view: View, hosts: list[Host], quiet: set[str]) -> Row:
    first = hosts[0]
    names = tuple(host.name for host in hosts)
    items = tuple(_longest(item, hosts) if item.since else item for item in first.items if item.kind not in quiet)
    label, good = folded_first(names, _NAMES), tuple(_good(hosts, quiet))
    return Row(label, names, first.kind, _cells(view, first), items, good, first.scope)


def _longest(item: Item, hosts: list[Host]) -> Item:
    """Return the item as the host has it that has waited longest."""
    return min(
        (each for host in hosts for each in host.items if each == item and each.since), key=lambda x: x.since or ""
    )


def _good(hosts: list[Host], quiet: set[str]) -> Iterable[Item]:
    values: dict[tuple[str, str, str], dict[tuple[str | None, str | None], Item]] = {}
    for host in hosts:
        for item in host.items:
            if item.kind in quiet:
                values.setdefault((item.component, item.kind, item.what), {}).setdefault(
                    (item.actual, item.desired), item
                )
    for each in values.values():
        items = tuple(each.values())
        yield from items[: _VALUES - 1]
        more = len(items) - (_VALUES - 1)
        if more == 1:
            yield items[-1]
        elif more > 1:
            last = items[0]
            yield Item(last.component, last.kind, last.what, f"{more:,} other values", last.desired)


def indexed(items: Iterable[Item], known: dict[tuple[Item, str | None], int]) -> list[int]:
    """Return the number of each item, and enter those that are new; `since` tells items apart here."""
    return [known.setdefault((item, item.since), len(known)) for item in items]


def counts(view: View) -> Mapping[str, int]:
    """Return kind -> how many hosts are of it."""
    return Counter(host.kind for host in view.hosts if host.scope is Scope.NODE)
