"""How a rollout is begun by what an inventory asks, and whether one may be gone on with: hosts, addresses, settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpunode.base.disruption import Disruption
from gpunode.base.errors import CodedError
from gpunode.base.findings import NodeReport, cluster_of, nodes_of
from gpunode.base.messages import command_error
from gpunode.fleet.call import Call
from gpunode.fleet.inventory import checked, fingerprints, limited, load_inventory
from gpunode.fleet.rollout.choice import canaries, cluster_outcome, left_out, sorted_out
from gpunode.fleet.rollout.entries import Begun, LeftOut, Outcome, Policy, now
from gpunode.fleet.rollout.journal import Journal, JournalError
from gpunode.fleet.rollout.progress import Progress, refuse_cut, stopped_for_good, together, unavailable, with_mates
from gpunode.settings.problems import SECRET

_MOST_NAMED = 5
# What is to be done where a rollout stopped for good.
ANOTHER = "Begin another one when they answer again, or with a larger --max-unavailable: it reads all nodes anew"


@dataclass(frozen=True)
class Asked:
    """Hold what a rollout needs of its hosts: their fingerprints, groups, and bounds on disruption.

    `hosts` are those of --limit, `groups` those of the whole inventory, `allowed` is host -> disruption.allow,
    `domains` host -> all hosts of its IMEX domain, `members` are the nodes of a cluster.
    """

    hosts: dict[str, str]
    groups: frozenset[str]
    max_parallel: int
    allowed: Mapping[str, Disruption] = field(default_factory=dict)
    domains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    members: tuple[str, ...] = ()


def asked(inventory: Path, limit: Collection[str] = ()) -> Asked:
    """Read an inventory again, without connecting; raise InventoryError, SettingsError or LimitError."""
    found = load_inventory(inventory)
    data, every = checked(found)
    settings = {name: every[name] for name in limited(found, limit)}
    # One for all hosts of a run, which check_hosts sees to.
    bound = next(iter(settings.values())).disruption.max_parallel
    allowed = {host: Disruption[each.disruption.allow] for host, each in settings.items()}
    domains = {host: frozenset(each.imex.nodes) for host, each in settings.items() if each.imex.enabled}
    members = tuple(host for host, each in settings.items() if each.kubernetes.enabled)
    return Asked(fingerprints(settings, data), frozenset(found.groups), bound, allowed, domains, members)


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return what changed from one set of fingerprints to another, None where nothing did."""
    said = [
        _named("new", [host for host in now if host not in before]),
        _named("gone", [host for host in before if host not in now]),
        _named(
            "with other settings or another address", [host for host in now if before.get(host, now[host]) != now[host]]
        ),
    ]
    return "; ".join(text for text in said if text) or None


def _named(what: str, hosts: list[str]) -> str:
    more = f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
    return f"{what}: {', '.join(hosts[:_MOST_NAMED])}{more}" if hosts else ""


class ChangedError(CodedError):
    """Say that the inventory, or gpunode, is no longer what the rollout was begun with, and what to do."""

    code = command_error(
        "rollout.changed", "The inventory, its settings or gpunode changed since the rollout began.",
        "The canary proved nothing about the present settings, so the rollout does not go on.",
        remedy="restore them and use --resume, or start a new rollout with --anew, which leaves out the nodes that are "
        "as desired", exit="3",
    )  # fmt: skip

    def __init__(self, changed: str, way_back: str = "Put it back and --resume") -> None:
        super().__init__(
            f"not what this rollout was begun with: {changed}. Its canary proved nothing of what is asked now. "
            f"{way_back}, or begin another rollout with --anew: it leaves out the nodes that are as desired"
        )


def _way_back(call: Call, begun: Begun) -> str:
    """Return how to resume as the rollout was begun, where --limit or --set may be what differs."""
    begun_with = begun.settings
    if begun.limit != call.limit:
        return f"Give the same --limit and --set as when it was begun: `{resumption(call, begun)}`"
    if begun_with is None:
        return "Put it back, with the same --set as when it was begun if there was one, and --resume"
    if begun_with != call.settings:
        again = resumption(call, begun)
        words = "the same --set as when it was begun" if begun_with else "no --set, as when it was begun"
        return f"Give {words}: `{again}`"
    if any(word.endswith(f"={SECRET}") for word in begun_with):
        return f"Put it back, with the same --set as when it was begun ({', '.join(begun_with)}), and --resume"
    return "Put it back and --resume"


_WRITTEN = re.compile(r"([0-9]{1,9})(%?)", re.ASCII)


class AmountError(CodedError, ValueError):
    """Say what is no amount, and what is allowed."""

    code = command_error(
        "rollout.amount", "A number of nodes or a percentage cannot be used.",
        "--max-unavailable and --failure-budget take a number of nodes, or a percentage up to 100%.",
        remedy="write a number such as 2, or a percentage such as 10%", exit="64",
    )  # fmt: skip


@dataclass(frozen=True)
class Amount:
    """Hold a number of nodes, or of percent where `percent` is set."""

    value: int
    percent: bool = False

    def of(self, nodes: int) -> int:
        """Return how many of `nodes` that is; a percentage is rounded down."""
        return nodes * self.value // 100 if self.percent else self.value


def amount(text: str, least: int = 0) -> Amount:
    """Return the amount written as `text`; raise AmountError where it is none, or below `least`."""
    match = _WRITTEN.fullmatch(text)
    found = Amount(int(match[1]), bool(match[2])) if match else None
    if found is None or found.value < least or (found.percent and found.value > 100):
        raise AmountError(f"{text!r} is neither a number of nodes from {least} on nor a percentage up to 100%")
    return found


@dataclass(frozen=True)
class Request:
    """Hold how somebody wants the nodes taken: see the options of `gpunode rollout`."""

    canary: str
    max_unavailable: Amount | None
    failure_budget: Amount
    everyone: bool


def begun(call: Call, request: Request, desired: Asked, reports: Iterable[NodeReport], gpunode: str) -> Begun:
    """Return the entry that opens a rollout's journal, by a reading of every node.

    Percentages are of all hosts of the inventory or of --limit; gpunode is its version. Raises CanaryError, and
    TogetherError where a wave has no room for nodes that go together.
    """
    reports = tuple(reports)
    nodes, left = sorted_out(nodes_of(reports), request.everyone, desired.allowed)
    nodes, left, cluster = with_cluster(nodes, left, desired, cluster_of(reports))
    groups = together(nodes, nodes_of(reports), desired.domains)
    hosts, most = len(desired.hosts), request.max_unavailable
    policy = Policy(
        canaries=with_mates(canaries(request.canary, nodes, left), groups),
        # A percentage of a few nodes is none, and then nothing would ever be done.
        max_unavailable=max(1, most.of(hosts)) if most is not None else desired.max_parallel,
        failure_budget=request.failure_budget.of(hosts),
    )
    refuse_cut(groups, policy.max_unavailable, away=len(unavailable(left)))
    return Begun(
        gpunode=gpunode,
        inventory=call.name,
        at=now(),
        hosts=desired.hosts,
        policy=policy,
        nodes=nodes,
        left_out=left,
        together=groups,
        limit=call.limit,
        settings=call.settings,
        cluster=cluster,
    )


def with_cluster(
    nodes: tuple[str, ...], left: dict[str, LeftOut], desired: Asked, report: NodeReport | None
) -> tuple[tuple[str, ...], dict[str, LeftOut], Outcome | None]:
    """Return the nodes that are taken, those that are left out, and how the cluster is.

    Where a run on any node of the cluster mends it, and none is taken, the first that is as desired is.
    """
    if report is None or (outcome := cluster_outcome((report,))) is None:
        return nodes, left, None
    allowed = max((desired.allowed[name] for name in desired.members), default=Disruption.reboot)
    mended = left_out(report, everyone=False, allowed=allowed) is None
    taken = [name for name in desired.members if name in nodes]
    usable = [name for name in desired.members if name in left and not left[name].is_negative]
    if mended and not taken and usable:
        taken = usable[:1]
        # In the order of the inventory.
        nodes = tuple(name for name in desired.hosts if name in nodes or name in taken)
        left = {name: why for name, why in left.items() if name not in taken}
    passed = outcome.reason is None or (mended and bool(taken))
    return nodes, left, outcome.model_copy(update={"passed": passed})


def refuse_beside(last: Journal | None, call: Call) -> None:
    """Raise JournalError where the last rollout was broken off: somebody must say what becomes of it."""
    if last is not None and last.progress is not None and last.progress.open:
        begun = last.progress.begun
        raise JournalError(
            f"the last rollout of {begun.inventory}, begun {begun.at:%Y-%m-%d %H:%M} UTC, was broken off: go on with "
            f"it by `{resumption(call, begun)}`, or begin another one by --anew"
        )


def resumption(call: Call, begun: Begun) -> str:
    """Return the command that goes on with a rollout, with the --limit and --set that it was begun with."""
    settings = call.settings if begun.settings is None else begun.settings
    return replace(call, limit=begun.limit, settings=settings).of("rollout", "--resume")


def resumable(last: Journal | None, call: Call, desired: Asked, gpunode: str) -> tuple[Journal, Progress]:
    """Return the rollout to go on with; raise JournalError where there is none, ChangedError where it is another's."""
    inventory = call.name
    if last is None or last.progress is None:
        raise JournalError(f"there is no rollout of {inventory} to go on with: begin one without --resume")
    progress = last.progress
    if progress.ended is not None and progress.ended.how == "finished":
        raise JournalError(
            f"the last rollout of {inventory} came to its end: begin another one, which takes what is not as desired"
        )
    if reason := stopped_for_good(progress):
        raise JournalError(f"the last rollout of {inventory} cannot be gone on with: {reason}. {ANOTHER}")
    changes = [difference(progress.begun.hosts, desired.hosts)]
    if progress.begun.limit != call.limit:
        given, before = (", ".join(each) or "none" for each in (call.limit, progress.begun.limit))
        changes = [f"--limit is {given}, and was {before}"]
    if progress.begun.gpunode != gpunode:
        changes.insert(0, f"gpunode is {gpunode}, and was {progress.begun.gpunode}")
    if changed := "; ".join(change for change in changes if change):
        raise ChangedError(changed, _way_back(call, progress.begun))
    return last, progress
