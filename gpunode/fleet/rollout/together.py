"""Nodes that a rollout takes in one wave or not at all: those that get another list of their IMEX domain. Pure.

nvidia-imex blocks a node whose list is another one, until it ends: it is stopped on all of them before it starts on
any, and none of them is well before all have the list (docs/imex.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpunode.base.errors import CodedError
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.base.host_names import folded
from gpunode.base.messages import command_error
from gpunode.components.imex.decide import FILE
from gpunode.settings.imex import known

Groups = tuple[tuple[str, ...], ...]


class TogetherError(CodedError, ValueError):
    """Say that a wave has no room for nodes that go together, and what to do."""

    code = command_error(
        "rollout.together", "More nodes have to go in one wave than may be unavailable.",
        "These nodes get a new list of their IMEX domain: nvidia-imex is stopped on all of them before it starts on "
        "any, so a wave with only some of them would fail its gate. Nothing was changed.",
        remedy="give --max-unavailable as the message has it, or start the whole domain with `gpunode apply --limit`",
        exit="64",
    )  # fmt: skip


def together(nodes: Sequence[str], reports: Iterable[NodeReport], domains: Mapping[str, frozenset[str]]) -> Groups:
    """Return the groups of nodes, of those that are taken, in their order; a node that goes alone is in none.

    domains: host -> all hosts of its IMEX domain, as its settings have them
    """
    gets = {report.name for report in reports if _gets_a_list(report)}
    groups: dict[frozenset[str], list[str]] = {}
    for name in nodes:
        if name in gets and name in domains:
            groups.setdefault(domains[name], []).append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _gets_a_list(report: NodeReport) -> bool:
    return any(
        item.component == "imex" and FILE.named(item) == known().nodes_file and not item.by_person
        for item in report.findings
        if item.finding_class not in (FindingClass.OK, FindingClass.NOT_KNOWN)
    )


def refuse_cut(groups: Groups, most: int, away: int) -> None:
    """Raise TogetherError where the largest group is larger than a wave.

    most: how many nodes may be unavailable; away: how many are before the rollout begins
    """
    group = max(groups, key=len, default=())
    if len(group) > most - away > 0:
        already = f", of which {away} {'is' if away == 1 else 'are'} already" if away else ""
        raise TogetherError(
            f"{folded(group)} get another list of their IMEX domain, for which nvidia-imex is stopped on all of them "
            f"before it starts on any. They go in one wave, and {most} may be unavailable{already}: give "
            f"--max-unavailable {len(group) + away}"
        )


def with_mates(names: Iterable[str], groups: Groups) -> tuple[str, ...]:
    """Return the names, each followed by those that go with it."""
    mates = {name: group for group in groups for name in group}
    return tuple(dict.fromkeys(mate for name in names for mate in (name, *mates.get(name, ()))))


def fitting(names: Sequence[str], capacity: int, groups: Groups) -> tuple[str, ...]:
    """Return the first of these names, as many as there is room for, and no group in part."""
    found: list[str] = []
    for name in names:
        mine = [each for each in with_mates((name,), groups) if each in names and each not in found]
        if name in found:
            continue
        if len(found) + len(mine) > capacity:
            break
        found += mine
    return tuple(found)
