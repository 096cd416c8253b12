"""How a rollout is begun, and whether one may be gone on with. Pure: readings and a journal in, a verdict out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpunode.base.findings import NodeReport
from gpunode.fleet.rollout.amount import Amount
from gpunode.fleet.rollout.asked import Asked, difference
from gpunode.fleet.rollout.choice import canaries, sorted_out
from gpunode.fleet.rollout.clock import now
from gpunode.fleet.rollout.entries import Begun, Policy
from gpunode.fleet.rollout.journal import Journal, JournalError
from gpunode.fleet.rollout.progress import Progress, stopped_for_good

# What is to be done where a rollout stopped for good.
ANOTHER = "Begin another one when they answer again, or with a larger --max-unavailable: it reads all nodes anew"


class ChangedError(Exception):
    """Say that the inventory, or gpunode, is no longer what the rollout was begun with, and what to do."""

    def __init__(self, changed: str) -> None:
        """Take what changed."""
        super().__init__(
            f"not what this rollout was begun with: {changed}. Its canary proved nothing of what is asked now. Put it "
            "back and --resume, or begin another rollout with --anew: it leaves out the nodes that are as desired"
        )


@dataclass(frozen=True)
class Request:
    """Hold how somebody wants the nodes taken: see the options of `gpunode rollout`."""

    canary: str
    max_unavailable: Amount | None
    failure_budget: Amount
    everyone: bool


def begun(inventory: str, request: Request, desired: Asked, reports: Iterable[NodeReport], gpunode: str) -> Begun:
    """Return the entry that opens a rollout's journal, by a reading of every node; raise CanaryError.

    Percentages are of all the inventory's hosts; gpunode is its version.
    """
    nodes, left = sorted_out(reports, request.everyone, desired.allowed)
    hosts, most = len(desired.hosts), request.max_unavailable
    policy = Policy(
        canaries=canaries(request.canary, nodes, left),
        # A percentage of a few nodes is none, and then nothing would ever be done.
        max_unavailable=max(1, most.of(hosts)) if most is not None else desired.max_parallel,
        failure_budget=request.failure_budget.of(hosts),
    )
    return Begun(
        gpunode=gpunode, inventory=inventory, at=now(), hosts=desired.hosts, policy=policy, nodes=nodes, left_out=left
    )


def refuse_beside(last: Journal | None) -> None:
    """Raise JournalError where the last rollout was broken off: somebody must say what becomes of it."""
    if last is not None and last.progress is not None and last.progress.open:
        begun = last.progress.begun
        raise JournalError(
            f"the last rollout of {begun.inventory}, begun {begun.at:%Y-%m-%d %H:%M} UTC, was broken off: go on with "
            "it by --resume, or begin another one by --anew"
        )


def resumable(last: Journal | None, inventory: str, desired: Asked, gpunode: str) -> tuple[Journal, Progress]:
    """Return the rollout to go on with; raise JournalError where there is none, ChangedError where it is another's."""
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
    if progress.begun.gpunode != gpunode:
        changes.insert(0, f"gpunode is {gpunode}, and was {progress.begun.gpunode}")
    if changed := "; ".join(change for change in changes if change):
        raise ChangedError(changed)
    return last, progress
