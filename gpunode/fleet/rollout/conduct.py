"""Conduct a rollout, wave after wave, until none is left or too much fails; what it came to: exit code and document.

Each wave stands between two entries of the journal. The JSON document is that of `gpunode rollout --json`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpunode.base.document import ROLLOUT_SCHEMA as SCHEMA
from gpunode.base.errors import in_words
from gpunode.base.findings import EXIT_CODES, ExitCode, Finding, FindingClass, NodeReport, gravest
from gpunode.base.folding import folded
from gpunode.base.messages import with_code
from gpunode.base.run_context import WAVE
from gpunode.base.structured_text import load_json
from gpunode.fleet.reports.run_end import how_it_ended, run_ends, why_failed
from gpunode.fleet.rollout.choice import NOT_ALL_KNOWN, RUN_FAILED, ClusterView, cluster_outcome, outcomes
from gpunode.fleet.rollout.entries import Ended, Outcome, WaveBegun, WaveEnded, now
from gpunode.fleet.rollout.journal import Journal, JournalError
from gpunode.fleet.rollout.opening import ChangedError
from gpunode.fleet.rollout.progress import Progress, Wave, WaveRecord, next_step, waves_to_come
from gpunode.fleet.run import child
from gpunode.fleet.run.progress import Progress as RunProgress


@dataclass(frozen=True)
class Hands:
    """Hold what a rollout does beyond deciding.

    run: run a wave. read: read these nodes again. changed: say what of the inventory changed since the beginning.
    tell: a line for whoever watches. cluster: the cluster's view of nodes, where there is a cluster
    """

    run: Callable[[Wave], Mapping[str, Finding]]
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
    first = True
    try:
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
            _take(journal, step, hands)
        return journal.append(Ended(how="finished" if step.finished else "stopped", reason=step.reason, at=now()))
    except BaseException as error:
        if journal.known.ended is None:
            reason = "by a signal" if isinstance(error, SystemExit) else in_words(error)
            journal.append(Ended(how="interrupted", reason=reason, at=now()))
        raise


def _take(journal: Journal, wave: Wave, hands: Hands) -> None:
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


def run_wave(
    pyinfra: str, inventory: str, groups: Collection[str], files: Path, watch: child.Watch, wave: Wave
) -> dict[str, Finding]:
    """Run the main job on a wave's nodes, to its end; return node -> why it failed there.

    files: where this rollout's logs go; watch: how far the wave is. Raises JournalError where nothing can be written.
    """
    log, output = log_of(files, wave.number), files / f"wave-{wave.number}.json"
    of_run = child.Files(log, output, files / f"wave-{wave.number}.events")
    words = child.command(pyinfra, inventory, wave.nodes, groups)
    name, count = f"a wave of `gpunode rollout {inventory}`", len(wave.nodes)
    try:
        code, progress = child.run(words, of_run, name, count, {WAVE: str(count)}, watch)
    except OSError as error:
        raise JournalError(f"{error.filename or pyinfra}: {error.strerror}") from None
    return result(wave.nodes, code, output.read_bytes(), str(log), progress)


def log_of(files: Path, number: int) -> Path:
    """Return the file that gets what pyinfra logs of a wave."""
    return files / f"wave-{number}.log"


def result(nodes: Sequence[str], code: int, printed: bytes, log: str, progress: RunProgress) -> dict[str, Finding]:
    """Return on which of the wave's nodes the run failed, and why.

    code, printed: pyinfra's exit code and JSON; progress: what the run reported. pyinfra prints nothing where no host
    was left, or anything else ended it: then no node counts as done, whatever it exits. By SIGINT it exits 0.
    """
    failed = set(nodes)
    with suppress(ValueError, KeyError, TypeError):
        named = failed.intersection(load_json(printed)["results"]["failed_hosts"])
        # Where the run failed, and on none of these nodes that it would name, none is known to be done.
        failed = named if named or code == 0 else failed
    how = f"{how_it_ended(code)}, and reports no failure of this node"
    other = Finding("run", FindingClass.ERROR, "pyinfra", cause=how, remedy="read the log", code=RUN_FAILED, log=log)
    ends = run_ends(nodes, progress, code, log)
    return {end.name: why_failed(end) or other for end in ends if end.name in failed}


# What a node must pass behind its wave; the cluster where it is a node of one (gpunode/fleet/rollout/choice.py).
GATE = ("run", "drift", "cluster")


def exit_code(progress: Progress) -> ExitCode:
    """Return 0 where all went well so far, 1 where a node could not be read or the rollout was broken off, else 2."""
    if progress.ended is not None and progress.ended.how == "interrupted":
        return ExitCode.ERROR
    classes = [left.finding_class for left in progress.begun.left_out.values() if left.is_negative]
    classes += [outcome.finding_class for outcome in progress.failed.values()]
    if (cluster := progress.newest_cluster) is not None and cluster.reason is not None:
        classes.append(cluster.finding_class)
    found = EXIT_CODES[gravest(classes)]
    failed = progress.failed or (progress.ended is not None and progress.ended.how == "stopped")
    # A node on which the run failed may be as desired all the same.
    return ExitCode.NEGATIVE if found is ExitCode.GOOD and failed else found


def document(progress: Progress, files: Path | None) -> dict[str, Any]:
    """Return the document; `files` is the folder of journal and logs, None where nothing was begun (`--dry`).

    Its errors are none yet, for whoever prints it.
    """
    begun, ended = progress.begun, progress.ended
    to_come, _ = waves_to_come(progress)
    return {
        "schema": SCHEMA,
        "gpunode": begun.gpunode,
        "inventory": begun.inventory,
        "limit": list(begun.limit),
        "set": list(begun.settings or ()),
        "begun": begun.at.isoformat(),
        "at": _latest(progress).isoformat(),
        "counts": {"nodes": _counts(progress)},
        "state": "planned" if files is None else ended.how if ended is not None else "at work",
        "reason": ended.reason if ended is not None else None,
        "code": ended.code if ended is not None else None,
        "exit_code": int(exit_code(progress)),
        "errors": [],
        "gate": list(GATE),
        "policy": begun.policy.model_dump(mode="json"),
        "journal": str(files / "journal") if files is not None else None,
        "waves": [_wave_json(record, files) for record in progress.waves],
        "cluster": None if begun.cluster is None else _outcome_json(begun.cluster),
        "to_come": [{"number": wave.number, "kind": wave.kind, "nodes": list(wave.nodes)} for wave in to_come],
        "untouched": list(progress.untouched),
        "left_out": {
            name: {"class": left.finding_class.value, "reason": left.reason, "code": left.code}
            for name, left in begun.left_out.items()
        },
    }


def _counts(progress: Progress) -> dict[str, int]:
    """Return how many nodes are done, failed, are at work or to come again, were touched by no wave, or left out."""
    begun = progress.begun
    counts = {
        "passed": len(progress.passed),
        "failed": len(progress.failed),
        "untouched": len(progress.untouched),
        "left_out": len(begun.left_out),
    }
    return {**counts, "under_way": len(begun.nodes) + len(begun.left_out) - sum(counts.values())}


def _latest(progress: Progress) -> datetime:
    """Return the time of the last thing that happened, which is what the document says how it stood at."""
    times = [progress.begun.at]
    times += [record.ended.at if record.ended is not None else record.begun.at for record in progress.waves]
    return max([*times, progress.ended.at] if progress.ended is not None else times)


def _wave_json(record: WaveRecord, files: Path | None) -> dict[str, Any]:
    outcomes = record.ended.outcomes if record.ended is not None else {}
    return {
        "number": record.begun.number,
        "kind": record.begun.kind,
        "begun": record.begun.at.isoformat(),
        "ended": record.ended.at.isoformat() if record.ended is not None else None,
        "log": str(log_of(files, record.begun.number)) if files is not None else None,
        "nodes": {name: _outcome_json(outcomes[name]) if name in outcomes else None for name in record.begun.nodes},
        "cluster": _outcome_json(record.ended.cluster) if record.ended is not None and record.ended.cluster else None,
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    found = outcome.model_dump(mode="json")
    return {"class": found.pop("finding_class"), **found}
