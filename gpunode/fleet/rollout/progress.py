"""How far a rollout is, from its journal's entries, and what comes next. Pure: no node, no file.

A node is unavailable while its wave is under way, and where it failed its gate, until it passes; so is one that did not
answer, or that no run can mend, when the rollout began. `Policy.max_unavailable` bounds all of these together.

Nodes that get another list of their IMEX domain go in one wave or not at all: nvidia-imex blocks a node whose list is
another one, until it ends. It is stopped on all of them before it starts on any, and none of them is well before all
have the list (docs/imex.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpunode.base.errors import CodedError
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.base.folding import folded
from gpunode.base.messages import command_error
from gpunode.components.imex.decide import FILE
from gpunode.fleet.rollout.entries import Begun, Ended, LeftOut, Outcome, Resumed, WaveBegun, WaveEnded, WaveKind
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


_AWAY = (FindingClass.UNREACHABLE, FindingClass.ERROR)


class OutOfOrder(ValueError):
    """Say which entry of a journal cannot follow those before it."""


@dataclass(frozen=True)
class Wave:
    """Hold a wave that comes next; `repeated` where it was begun before and never ended."""

    number: int
    kind: WaveKind
    nodes: tuple[str, ...]
    repeated: bool = False


@dataclass(frozen=True)
class Stop:
    """Hold why no further wave comes.

    finished: none is left to come. for_good: going on changes nothing, for the rollout began with it
    """

    finished: bool
    reason: str | None = None
    for_good: bool = False


@dataclass(frozen=True)
class WaveRecord:
    """Hold a wave of the journal; without outcomes where it was not ended."""

    begun: WaveBegun
    ended: WaveEnded | None = None


@dataclass(frozen=True)
class Progress:
    """Hold how far a rollout is.

    passed: nodes that are done. failed: those that are not, with what the gate said. retry: those that failed before a
    stop, and are to be tried again. ended: how it ended; None while it runs, and where its controller was killed.
    cluster: the last gate's outcome for the cluster; None where none has judged it yet, or since a stop for it
    """

    begun: Begun
    waves: tuple[WaveRecord, ...] = ()
    passed: tuple[str, ...] = ()
    failed: dict[str, Outcome] = field(default_factory=dict)
    retry: tuple[str, ...] = ()
    ended: Ended | None = None
    cluster: Outcome | None = None

    @property
    def under_way(self) -> WaveBegun | None:
        """Return the wave that was begun and not ended."""
        return self.waves[-1].begun if self.waves and self.waves[-1].ended is None else None

    @property
    def untouched(self) -> tuple[str, ...]:
        """Return the nodes that no wave has taken yet, in their order."""
        touched = {name for wave in self.waves for name in wave.begun.nodes}
        return tuple(name for name in self.begun.nodes if name not in touched)

    @property
    def away(self) -> tuple[str, ...]:
        """Return the nodes that were unavailable before the rollout began."""
        return unavailable(self.begun.left_out)

    @property
    def _blocked(self) -> tuple[str, ...]:
        """Return the nodes of the last wave, where it stopped for the cluster: the next gate judges that again."""
        is_bad = self.cluster is not None and not self.cluster.passed
        return self.waves[-1].begun.nodes if is_bad else ()

    @property
    def newest_cluster(self) -> Outcome | None:
        """Return the newest outcome for the cluster; that of the beginning only where no wave corrects the cluster."""
        begun = self.begun.cluster
        return self.cluster or (None if begun is None or begun.passed else begun)

    @property
    def open(self) -> bool:
        """Say whether it was broken off, or is at work: neither finished nor stopped by its own judgement."""
        return self.ended is None or self.ended.how in ("paused", "interrupted")

    def after(self, entry: Begun | WaveBegun | WaveEnded | Ended | Resumed) -> Progress:
        """Return the progress after one more entry; raise OutOfOrder where that cannot follow."""
        match entry:
            case WaveBegun():
                return self._wave_begun(entry)
            case WaveEnded():
                return self._wave_ended(entry)
            case Ended():
                return replace(self, ended=entry)
            case Resumed():
                step = next_step(self)
                if isinstance(step, Wave) or step.finished:
                    return replace(self, ended=None)
                # Nothing would come: whoever goes on wants those that failed tried again.
                again = tuple(dict.fromkeys((*self.retry, *self.failed, *self._blocked)))
                passed = _without(self.passed, self._blocked)
                return replace(self, ended=None, cluster=None, passed=passed, failed={}, retry=again)
            case Begun():
                raise OutOfOrder("a rollout begins within another one")

    def _wave_begun(self, entry: WaveBegun) -> Progress:
        under_way = self.under_way
        again = under_way is not None and (under_way.number, under_way.nodes) == (entry.number, entry.nodes)
        if not (again or (under_way is None and entry.number == len(self.waves) + 1)):
            raise OutOfOrder(f"wave {entry.number} begins out of turn")
        if unknown := set(entry.nodes) - set(self.begun.nodes):
            raise OutOfOrder(f"wave {entry.number} takes {', '.join(sorted(unknown))}, which the rollout leaves out")
        waves = (*(self.waves[:-1] if again else self.waves), WaveRecord(entry))
        return replace(self, waves=waves, ended=None, retry=_without(self.retry, entry.nodes))

    def _wave_ended(self, entry: WaveEnded) -> Progress:
        under_way = self.under_way
        if under_way is None or under_way.number != entry.number or set(under_way.nodes) != set(entry.outcomes):
            raise OutOfOrder(f"wave {entry.number} ends without having begun, or with other nodes")
        good = tuple(name for name in under_way.nodes if entry.outcomes[name].passed)
        bad = {name: entry.outcomes[name] for name in under_way.nodes if not entry.outcomes[name].passed}
        waves = (*self.waves[:-1], WaveRecord(under_way, entry))
        passed, cluster = (*self.passed, *good), entry.cluster or self.cluster
        return replace(self, waves=waves, passed=passed, failed={**self.failed, **bad}, cluster=cluster)


def unavailable(left_out: Mapping[str, LeftOut]) -> tuple[str, ...]:
    """Return who is unavailable before a rollout begins, of the nodes that it does not touch."""
    return tuple(name for name, left in left_out.items() if left.finding_class in _AWAY)


def _without(names: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    gone = set(taken)
    return tuple(name for name in names if name not in gone)


def next_step(progress: Progress) -> Wave | Stop:
    """Return the wave that comes next, or why none does."""
    if begun := progress.under_way:
        return Wave(begun.number, begun.kind, begun.nodes, repeated=True)
    if progress.cluster is not None and not progress.cluster.passed:
        return Stop(False, f"the cluster is not as desired: {progress.cluster.reason}")
    policy, failed = progress.begun.policy, progress.failed
    if bad := [name for name in policy.canaries if name in failed]:
        return Stop(False, f"the canary {', '.join(bad)} failed")
    if len(failed) > policy.failure_budget:
        return Stop(False, f"{_nodes(len(failed))} failed, where {policy.failure_budget or 'none'} may")
    remaining = _without(progress.begun.nodes, (*progress.passed, *failed))
    if not remaining:
        return Stop(True)
    capacity = policy.max_unavailable - len(progress.away) - len(failed)
    if capacity <= 0:
        # Who was away is what the rollout was begun with: the nodes are read again by another one alone.
        return Stop(False, _no_room(progress), for_good=policy.max_unavailable <= len(progress.away))
    canaries = tuple(name for name in policy.canaries if name in remaining)
    kind: WaveKind = "canary" if canaries else "retry" if progress.retry else "wave"
    nodes = fitting(canaries or progress.retry or remaining, capacity, progress.begun.together)
    if not nodes:
        return Stop(
            False,
            f"the next nodes go in one wave, and there is no room for all of them, where {', '.join(failed)} failed "
            f"and {policy.max_unavailable} may be unavailable",
        )
    return Wave(len(progress.waves) + 1, kind, nodes)


def stopped_for_good(progress: Progress) -> str | None:
    """Return why no wave ever comes, however often it is gone on with; None where one may."""
    step = next_step(progress)
    return step.reason if isinstance(step, Stop) and step.for_good else None


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _no_room(progress: Progress) -> str:
    away, failed = progress.away, tuple(progress.failed)
    who = [f"{', '.join(names)} ({why})" for names, why in ((away, "left out"), (failed, "failed")) if names]
    return f"as many nodes are unavailable as may be ({progress.begun.policy.max_unavailable}): {'; '.join(who)}"


def waves_to_come(progress: Progress) -> tuple[tuple[Wave, ...], Stop]:
    """Return the waves that would come if every node passed its gate, and what would end them."""
    found: list[Wave] = []
    at = progress.begun.at
    while isinstance(step := next_step(progress), Wave):
        found.append(step)
        passed = Outcome(finding_class=FindingClass.OK, passed=True)
        progress = progress.after(WaveBegun(number=step.number, kind=step.kind, nodes=step.nodes, at=at)).after(
            WaveEnded(number=step.number, outcomes=dict.fromkeys(step.nodes, passed), at=at)
        )
    return tuple(found), step
