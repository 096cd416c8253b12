"""What a person reads of a rollout: how it begins, what happens, how it ends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpunode.base.findings import FindingClass
from gpunode.base.folding import fold
from gpunode.base.host_names import folded, folded_in_a_line
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.cli.output import columns, is_quiet, talk

if TYPE_CHECKING:
    from gpunode.fleet.call import Call
    from gpunode.fleet.rollout.progress import Progress


def tell(line: str) -> None:
    """Tell what happens, folded under itself; to standard error where standard output has the document."""
    indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
    talk(fold(line, columns(), indent))


def say_head(progress: Progress) -> None:
    """Tell how much is to do, by which rules, and who is left out."""
    begun, policy = progress.begun, progress.begun.policy
    first = folded(policy.canaries) or "none"
    tell(
        f"{begun.inventory}: {len(begun.nodes) - len(progress.passed)} of {len(begun.hosts)} nodes to do; "
        f"canary: {first}; at most "
        f"{policy.max_unavailable} unavailable; {policy.failure_budget or 'none'} may fail"
    )
    if begun.cluster is not None and begun.cluster.reason:
        mended = "; the first wave with a node of it mends that" if begun.cluster.passed else ""
        tell(f"  the cluster: {begun.cluster.reason}{mended}")
    tell("gate: pyinfra's run, a reading as `gpunode drift` has it, and the cluster where there is one")
    for reason, names in _left_out(progress):
        tell(f"  left out: {folded_in_a_line(names, columns())}: {reason}")


def _left_out(progress: Progress, bad: bool = False) -> Iterable[tuple[str, list[str]]]:
    """Yield (why, the nodes that are left out for that); bad: not those that are as desired."""
    found: dict[str, list[str]] = {}
    for name, left in progress.begun.left_out.items():
        if not bad or left.finding_class is not FindingClass.OK:
            found.setdefault(left.told, []).append(name)
    return found.items()


def _say_bad(progress: Progress) -> None:
    """Say what is not as desired, and nothing else."""
    from gpunode.fleet.rollout.conduct import outcome_lines

    lines = [
        f"{folded_in_a_line(names, columns())}: left out: {reason}" for reason, names in _left_out(progress, bad=True)
    ]
    lines += [line.strip() for line in outcome_lines(progress.failed)]
    ended = progress.ended
    if ended is not None and ended.how != "finished":
        said = f"{ended.how}: {ended.reason}" if ended.reason else ended.how
        lines.append(said if ended.code is None else with_code(said, ended.code))
    for line in lines:
        say(fold(line, columns(), "  "))


def say_end(call: Call, progress: Progress, files: Path | None) -> None:
    """Tell how the rollout ended, and how it is gone on with; files: its folder, None where nothing was begun."""
    from gpunode.fleet.rollout.opening import ANOTHER, resumption
    from gpunode.fleet.rollout.progress import stopped_for_good

    ended = progress.ended
    if is_quiet():
        _say_bad(progress)
    if files is not None and ended is not None:
        taken = len(progress.begun.nodes)
        done = f"{len(progress.passed)} of {taken} nodes are done" if taken else "nothing was to be done"
        said = f"{ended.how}: " + (f"{ended.reason}; {done}" if ended.reason else done)
        tell(said if ended.code is None else with_code(said, ended.code))
        if progress.untouched:
            tell(f"  not touched: {folded_in_a_line(progress.untouched, columns())}")
        tell(f"  journal and logs: {files}")
        if stopped_for_good(progress):
            tell(f"  {ANOTHER}: {call.of('rollout')}")
        elif ended.how != "finished":
            tell(f"  go on: {resumption(call, progress.begun)}")
