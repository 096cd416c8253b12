"""What a page shows, whatever document it was made from: hosts, the rows that they make, and a legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from gpunode.base.folding import folded_first
from gpunode.base.messages import CODE, Scope, as_remedy
from gpunode.fleet.call import Call

# What a document calls `disruption`, in words; the least first.
COSTS = {
    "nothing": "disturbs nothing",
    "restart": "restarts a service",
    "reset": "resets a GPU",
    "reboot": "boots the node",
}
# The kind of a host's part that is told for a person to know, and is as desired all the same.
CAUTION = "caution"
# The labels of texts with commands of gpunode's.
_COMMANDS = ("remedy", "code")


@dataclass(frozen=True)
class Kind:
    """Hold a verdict: its name, the sign that stands for it beside the colour, and what it says.

    colour: a name of page.css; is_quiet: nothing differs, so that it is not among the differences
    """

    name: str
    mark: str
    colour: str
    meaning: str
    is_quiet: bool = False


@dataclass(frozen=True)
class Item:
    """Hold one thing told of a host: of which component, its verdict, both sides, and more as (label, text).

    cost: a key of COSTS; None where nobody can say. Two that differ in `since` alone are equal.
    """

    component: str
    kind: str
    what: str
    actual: str | None = None
    desired: str | None = None
    told: tuple[tuple[str, str], ...] = ()
    cost: str | None = None
    since: str | None = field(default=None, compare=False)

    @property
    def commands(self) -> list[str]:
        """Return the commands between backquotes: a remedy has no others here, other texts may have a node's words."""
        return [each for label, text in self.told if label in _COMMANDS for each in text.split("`")[1::2]]


@dataclass(frozen=True)
class Host:
    """Hold a host, or the cluster: its verdict, and what the document has of it, in order."""

    name: str
    kind: str
    items: tuple[Item, ...]
    scope: Scope = Scope.NODE


@dataclass(frozen=True)
class View:
    """Hold a page's content.

    title, subject: what was looked at (`Drift`, an inventory's path or None). said: the verdict in a sentence. kinds:
    the gravest first. columns: the map's, in order. at: when, in ISO 8601, None where the document does not say. costs:
    what the list of costs is headed by, None where nothing is told of them. heal: the command that mends hosts,
    to which `--limit HOST` may be added.
    """

    title: str
    subject: str | None
    said: str
    kinds: tuple[Kind, ...]
    columns: tuple[str, ...]
    hosts: tuple[Host, ...]
    version: str | None
    at: str | None
    costs: str | None = "Healing, by host"
    heal: str | None = None
    # Of all hosts that were looked at: where --limit chose them, a run without it would change others.
    heal_all: str | None = None

    def kind(self, name: str) -> Kind:
        return next(each for each in self.kinds if each.name == name)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Return how grave each kind is, 0 the gravest."""
        return {kind.name: at for at, kind in enumerate(self.kinds)}

    @cached_property
    def quiet(self) -> frozenset[str]:
        """Return the kinds of which nothing differs."""
        return frozenset(kind.name for kind in self.kinds if kind.is_quiet)


def pairs(told: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of those that have a text."""
    return tuple((name, str(text)) for name, text in told.items() if text)


def columns(hosts: Iterable[Host]) -> tuple[str, ...]:
    """Return the components in the order of the host that has most of them, then those that only others have."""
    orders = sorted(
        (list(dict.fromkeys(item.component for item in host.items)) for host in hosts), key=lambda order: -len(order)
    )
    return tuple(dict.fromkeys(name for order in orders for name in order))


def in_words(at: str) -> str:
    """Return a time of ISO 8601 as people read it, in UTC; what is none is returned as it is."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return at


def call_of(document: Mapping[str, Any]) -> Call | None:
    """Return how the command was called whose document this is; None where no inventory is known."""
    inventory = document.get("inventory")
    # A page may be made of a document of an earlier version.
    limit, words = (tuple(map(str, document.get(key) or ())) for key in ("limit", "set"))
    return Call(str(inventory), limit, words) if inventory else None


def healing(call: Call | None) -> str | None:
    """Return the command of a run without --limit: the page adds a row's hosts, and a second pattern adds more."""
    return None if call is None else call.of_all.run


def with_command(remedy: str | None, call: Call | None) -> str | None:
    """Return the remedy with gpunode's own commands alone between backquotes, and its run as one of them."""
    own = remedy and as_remedy(remedy)
    return call.pasted(own) if own and call else own


def explained(code: str | None) -> str | None:
    """Return the command that explains a code, between backquotes; None where the document has none that is one."""
    return f"`gpunode explain {code}`" if code and CODE.fullmatch(code) else None


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return `1 host`, `1,000 hosts`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def cleaned(value: Any) -> Any:
    """Return a document with each character that is not printed as its escape (`\\u202e`); ends of lines stay.

    What turns a line around, hides text or moves a cursor is seen so, and no lone surrogate is left to be encoded.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_cleaned, value))
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return value


def _cleaned(letter: str) -> str:
    return letter if letter == "\n" or letter.isprintable() else letter.encode("unicode_escape").decode()


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


def map_rows(view: View) -> tuple[Row, ...]:
    """Return the rows: the cluster's, then the gravest first, those that differ in the same columns together."""
    alike: dict[tuple[object, ...], list[Host]] = {}
    for host in view.hosts:
        differing = tuple(item for item in host.items if item.kind not in view.quiet)
        alike.setdefault((host.scope, host.kind, _cells(view, host), differing), []).append(host)
    found = [_row(view, hosts) for hosts in alike.values()]
    last = len(view.kinds)
    return tuple(
        sorted(
            found,
            key=lambda row: (
                row.scope is Scope.NODE,
                min((view.ranks[kind] for kind in (row.kind, *row.cells) if kind is not None), default=last),
                [last if kind is None or kind in view.quiet else view.ranks[kind] for kind in row.cells],
            ),
        )
    )


def differences(view: View) -> tuple[tuple[Item, tuple[str, ...], Scope], ...]:
    """Return each difference once, with its hosts or the cluster: the gravest first, then that of most hosts."""
    found: dict[tuple[Item, Scope], list[str]] = {}
    for host in view.hosts:
        for item in host.items:
            if item.kind not in view.quiet:
                found.setdefault((item, host.scope), []).append(host.name)
    ordered = sorted(found.items(), key=lambda each: (view.ranks[each[0][0].kind], -len(each[1])))
    return tuple((item, tuple(dict.fromkeys(names)), scope) for (item, scope), names in ordered)


def costs(view: View) -> tuple[tuple[str, int], ...]:
    """Return (what it costs, of how many hosts), by each host's gravest; of those on which something differs."""
    order = list(COSTS)
    found: Counter[str] = Counter()
    for host in view.hosts:
        if host.kind in view.quiet or host.scope is Scope.CLUSTER:
            continue
        known = [order.index(item.cost) for item in host.items if item.kind not in view.quiet and item.cost in COSTS]
        found[COSTS[order[max(known)]] if known else UNKNOWN_COST] += 1
    words = (*reversed(COSTS.values()), UNKNOWN_COST)
    return tuple((each, found[each]) for each in words if found[each])


def _cells(view: View, host: Host) -> tuple[str | None, ...]:
    found: dict[str, int] = {}
    for item in host.items:
        found[item.component] = min(found.get(item.component, len(view.ranks)), view.ranks[item.kind])
    return tuple(view.kinds[found[name]].name if name in found else None for name in view.columns)


def _row(view: View, hosts: list[Host]) -> Row:
    first = hosts[0]
    names = tuple(host.name for host in hosts)
    items = tuple(_longest(item, hosts) if item.since else item for item in first.items if item.kind not in view.quiet)
    label, good = folded_first(names, _NAMES), tuple(_good(hosts, view.quiet))
    return Row(label, names, first.kind, _cells(view, first), items, good, first.scope)


def _longest(item: Item, hosts: list[Host]) -> Item:
    """Return the item as the host has it that has waited longest."""
    return min(
        (each for host in hosts for each in host.items if each == item and each.since), key=lambda x: x.since or ""
    )


def _good(hosts: list[Host], quiet: Collection[str]) -> Iterable[Item]:
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
