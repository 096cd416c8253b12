"""Rollouts of nodes gpu-1 to gpu-N, and what becomes of them wave after wave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.fleet.rollout.entries import Begun, Ended, LeftOut, Outcome, Policy, Resumed, WaveBegun, WaveEnded
from gpunode.fleet.rollout.progress import Progress, Stop, Wave, next_step

AT = datetime(2026, 1, 2, tzinfo=UTC)
PASSED = Outcome(finding_class=FindingClass.OK, passed=True)
FAILED = Outcome(finding_class=FindingClass.DRIFT, passed=False, reason="drift")


def rollout(
    nodes: int, canary: int = 1, most: int = 1, budget: int = 0, away: int = 0, canary_names: tuple[str, ...] = ()
) -> Progress:
    names = tuple(f"gpu-{number}" for number in range(1, nodes + 1))
    left = {f"away-{number}": LeftOut(finding_class=FindingClass.UNREACHABLE, reason="") for number in range(away)}
    policy = Policy(canaries=canary_names or names[:canary], max_unavailable=most, failure_budget=budget)
    return Progress(
        Begun(gpunode="1", inventory="x.py", at=AT, hosts=dict.fromkeys((*names, *left), ""), policy=policy,
              nodes=names, left_out=left)
    )  # fmt: skip


OF_NOBODY = rollout(0).begun


@dataclass(frozen=True)
class Way:
    """Hold the nodes of each wave so far, what comes next, and which nodes no wave has taken."""

    waves: tuple[tuple[str, ...], ...]
    next: Wave | Stop
    untouched: tuple[str, ...]


def way(events: list[str], policy: dict[str, Any], together: tuple[tuple[str, ...], ...] = ()) -> Way:
    """Return how far a rollout is after events.

    events: `wave` with the nodes that fail in it; `killed` in a wave; `stopped`, `paused`, `resumed`
    policy: arguments of `rollout`; together: groups of nodes that go in one wave
    """
    progress = rollout(**policy)
    progress = replace(progress, begun=progress.begun.model_copy(update={"together": together}))
    for event in events:
        word, *failing = event.split()
        if word in ("wave", "killed"):
            wave = next_step(progress)
            assert isinstance(wave, Wave)
            progress = begun(progress, wave)
            progress = ended(progress, wave, *failing) if word == "wave" else progress
        elif word == "resumed":
            progress = resumed(progress)
        else:
            progress = progress.after(Ended.model_validate({"how": word, "at": AT}))
    waves = tuple(each.begun.nodes for each in progress.waves)
    return Way(waves, next_step(progress), progress.untouched)


def begun(progress: Progress, wave: Wave) -> Progress:
    return progress.after(WaveBegun(number=wave.number, kind=wave.kind, nodes=wave.nodes, at=AT))


def ended(progress: Progress, wave: Wave, *failing: str) -> Progress:
    found = {name: FAILED if name in failing else PASSED for name in wave.nodes}
    return progress.after(WaveEnded(number=wave.number, outcomes=found, at=AT))


def resumed(progress: Progress) -> Progress:
    return progress.after(Resumed(at=AT))


def stopped(progress: Progress) -> Progress:
    return progress.after(Ended(how="stopped", at=AT))


def report(name: str, *classes: FindingClass) -> NodeReport:
    return NodeReport(
        name, tuple(Finding("driver", each, "loaded module", "1", "2", code="driver.loaded-module") for each in classes)
    )


REPORTS = (
    report("good", FindingClass.OK),
    report("stale", FindingClass.OK, FindingClass.DRIFT),
    report("gone", FindingClass.UNREACHABLE),
    report("refused", FindingClass.UNSUPPORTED),
    report("sick", FindingClass.ERROR, FindingClass.OK),
    report("mendable", FindingClass.ERROR, FindingClass.REBOOT_PENDING),
)
