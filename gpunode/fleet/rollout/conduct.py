"""Conduct a rollout: wave after wave, each between two entries of the journal, until none is left or too much fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpunode.base.errors import in_words
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.base.folding import folded
from gpunode.base.messages import with_code
from gpunode.fleet.rollout.choice import NOT_ALL_KNOWN, ClusterView, RunResult, cluster_outcome, outcomes
from gpunode.fleet.rollout.entries import Ended, Outcome, WaveBegun, WaveEnded, now
from gpunode.fleet.rollout.journal import Journal
from gpunode.fleet.rollout.opening import ChangedError
from gpunode.fleet.rollout.progress import Progress, Wave, next_step


@dataclass(frozen=True)
class Hands:
    """Hold what a rollout does beyond deciding.

    run: run a wave. read: read these nodes again. changed: say what of the inventory changed since the beginning.
    tell: a line for whoever watches. cluster: the cluster's view of nodes, where there is a cluster
    """

    run: Callable[[Wave], RunResult]
    read: Callable[[Sequence[str]], tuple[NodeReport, ...]]
    changed: Callable[[], str | None]
    tell: Callable[[str], None]
    cluster: ClusterView | None = None
    sleep: Callable[[float], None] = time.sleep


def conduct(journal: Journal, hands: Hands, interval: float = 0, pauses: bool = False) -> Progress:
    """Go on with the journal's rollout until it ends, or until after one wave where it `pauses`.

    interval: seconds between two waves. Raises ChangedError, JournalError, and whatever a reading raises; the journal
    then says that it was interrupted, as it does after a signal.
    """
    try:
        return _conducted(journal, hands, interval, pauses)
    except BaseException as error:
        if journal.known.ended is None:
            reason = "by a signal" if isinstance(error, SystemExit) else in_words(error)
            journal.append(Ended(how="interrupted", reason=reason, at=now()))
        raise


def _conducted(journal: Journal, hands: Hands, interval: float, pauses: bool) -> Progress:
    first = True
    while isinstance(step := next_step(journal.known), Wave):
        if not first and pauses:
            return journal.append(Ended(how="paused", at=now()))
        if not first and interval:
            hands.tell(f"waiting {interval:g} s before the next wave")
            hands.sleep(interval)
        first = False
        if changed := hands.changed():
            journal.append(Ended(how="stopped", reason=f"the inventory changed: {changed}", at=now()))
            raise ChangedError(changed)
        _wave(journal, step, hands)
    return journal.append(Ended(how="finished" if step.finished else "stopped", reason=step.reason, at=now()))


def _wave(journal: Journal, wave: Wave, hands: Hands) -> None:
    hands.tell(wave_line(wave))
    journal.append(WaveBegun(number=wave.number, kind=wave.kind, nodes=wave.nodes, at=now()))
    run = hands.run(wave)
    reports = hands.read(wave.nodes)
    judged, cluster = outcomes(wave.nodes, run, reports, hands.cluster), cluster_outcome(reports)
    journal.append(WaveEnded(number=wave.number, outcomes=judged, cluster=cluster, at=now()))
    for line in outcome_lines(judged):
        hands.tell(line)
    if cluster is not None:
        hands.tell(f"  the cluster: {_said(cluster)}")


def wave_line(wave: Wave) -> str:
    """Return what is told of a wave."""
    kinds = {"canary": " (canary)", "retry": " (those that failed, again)", "wave": ""}
    again = ", again: it was interrupted" if wave.repeated else ""
    return f"wave {wave.number}{kinds[wave.kind]}{again}: {folded(wave.nodes)}"


def outcome_lines(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return what is told of the nodes behind the gate, a line for those of which the same is."""
    found: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        found.setdefault(_said(outcome), []).append(name)
    return [f"  {folded(names)}: {said}" for said, names in found.items()]


def _said(outcome: Outcome) -> str:
    if outcome.passed:
        return outcome.reason or ("ok" if outcome.finding_class is FindingClass.OK else NOT_ALL_KNOWN)
    said = f"failed: {outcome.reason}" + (f". Remedy: {outcome.remedy}" if outcome.remedy else "")
    # A journal of an earlier gpunode has none.
    return said if outcome.code is None else with_code(said, outcome.code)
