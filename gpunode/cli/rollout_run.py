"""What `gpunode rollout` does and prints: it takes all nodes wave by wave, or prints the waves alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from gpunode.base.findings import ExitCode
from gpunode.base.folding import fold, folded, folded_in_a_line
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.cli.engine import inspected
from gpunode.cli.output import columns, is_quiet, talk
from gpunode.cli.recording import recorded

if TYPE_CHECKING:
    from gpunode.base.findings import NodeReport
    from gpunode.cli.interruption import Interruption
    from gpunode.fleet.call import Call
    from gpunode.fleet.engine.parts import Scheduler
    from gpunode.fleet.rollout.choice import RunResult
    from gpunode.fleet.rollout.journal import Journal
    from gpunode.fleet.rollout.opening import Asked, Request
    from gpunode.fleet.rollout.progress import Progress, Wave


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
        if not bad or left.is_negative:
            found.setdefault(left.told, []).append(name)
    return found.items()


def _say_bad(progress: Progress) -> None:
    """Say what is not as desired, and nothing else."""
    from gpunode.fleet.rollout.conduct import outcome_lines

    lines = [
        f"{folded_in_a_line(names, columns())}: left out: {reason}" for reason, names in _left_out(progress, bad=True)
    ]
    cluster = progress.newest_cluster
    of_cluster = {} if cluster is None or cluster.reason is None else {"the cluster": cluster}
    lines += [line.strip() for outcomes in (progress.failed, of_cluster) for line in outcome_lines(outcomes)]
    ended = progress.ended
    if ended is not None and ended.how != "finished":
        said = f"{ended.how}: {ended.reason}" if ended.reason else ended.how
        lines.append(said if ended.code is None else with_code(said, ended.code))
    for line in lines:
        say(fold(line, columns(), "  "))


def say_end(call: Call, progress: Progress, files: Path | None) -> None:
    """Tell how the rollout ended, and how it is gone on with; files: its folder, None where nothing was begun."""
    from gpunode.fleet.rollout.document import exit_code
    from gpunode.fleet.rollout.opening import ANOTHER, resumption
    from gpunode.fleet.rollout.progress import stopped_for_good

    ended = progress.ended
    if is_quiet():
        _say_bad(progress)
    if files is not None and ended is not None:
        taken = len(progress.begun.nodes)
        done = f"{len(progress.passed)} of {taken} nodes are done"
        if not taken:
            is_good = exit_code(progress) is ExitCode.GOOD
            done = "nothing was to be done" if is_good else "no node was taken, and not everything is known as desired"
        said = f"{ended.how}: " + (f"{ended.reason}; {done}" if ended.reason else done)
        tell(said if ended.code is None else with_code(said, ended.code))
        if progress.untouched:
            tell(f"  not touched: {folded_in_a_line(progress.untouched, columns())}")
        tell(f"  journal and logs: {files}")
        if stopped_for_good(progress):
            tell(f"  {ANOTHER}: {call.of('rollout')}")
        elif ended.how != "finished":
            tell(f"  go on: {resumption(call, progress.begun)}")


def planned(inventory: Path, scheduler: Scheduler | None, call: Call, request: Request | None) -> Progress:
    """Tell the waves of a rollout that is not made; return how it would stand."""
    from gpunode.fleet.rollout.conduct import wave_line
    from gpunode.fleet.rollout.entries import STOPPED, Resumed, now
    from gpunode.fleet.rollout.opening import asked, begun, resumable
    from gpunode.fleet.rollout.place import latest, place
    from gpunode.fleet.rollout.progress import Progress, waves_to_come

    name, found, ours = str(inventory), asked(inventory, call.limit), version("gpunode")
    if request is None:
        _, last = resumable(latest(place(name)), call, found, ours)
        progress = last.after(Resumed(at=now()))
    else:
        progress = Progress(begun(call, request, found, _every_node(inventory, scheduler, call), ours))
    say_head(progress)
    waves, end = waves_to_come(progress)
    for wave in waves:
        tell(wave_line(wave))
    would_stop = with_code(f"would stop: {end.reason}", STOPPED)
    tell(would_stop if end.reason else f"waves, where every node passes: {len(waves)}")
    return progress


def carried_out(
    inventory: Path,
    scheduler: Scheduler | None,
    call: Call,
    request: Request | None,
    anew: bool,
    interval: float,
    pauses: bool,
    interruption: Interruption,
) -> tuple[Progress, Path]:
    """Take wave after wave; return how the rollout then stands, and the folder of its files."""
    from gpunode.cli.live import live
    from gpunode.fleet.engine.parts import EngineError
    from gpunode.fleet.inventory import host_settings
    from gpunode.fleet.reports.document import document
    from gpunode.fleet.rollout.conduct import Hands, conduct
    from gpunode.fleet.rollout.document import WaveRunner
    from gpunode.fleet.rollout.opening import asked, difference
    from gpunode.fleet.rollout.place import controller_lock, place
    from gpunode.fleet.run.child import program

    pyinfra, found = program(), asked(inventory, call.limit)
    folder = place(str(inventory))
    with controller_lock(folder, str(inventory)):
        journal = _journal(inventory, scheduler, call, request, anew, found, folder)
        say_head(journal.known)
        hosts, files = journal.known.begun.hosts, journal.path.parent
        tell(f"log of each wave: {files}/wave-N.log")

        def read(nodes: Sequence[str]) -> tuple[NodeReport, ...]:
            try:
                reports = inspected(inventory, scheduler, only=nodes, whole=True)
            except EngineError as error:
                again = call.of("rollout", "--resume")
                raise EngineError(
                    f"{error}. The rollout is interrupted, and `{again}` goes on, by any engine"
                ) from None
            recorded(document(reports, replace(call, limit=tuple(nodes))), "rollout")
            return reports

        def against(nodes: Sequence[str]) -> dict[str, str]:
            from gpunode.fleet import drift_cluster

            return drift_cluster.against(inventory, host_settings(inventory), nodes)

        def run(wave: Wave) -> RunResult:
            # In a log too: a wave may take an hour.
            with live(tell) as watch:
                return WaveRunner(pyinfra, str(inventory), found.groups, files, watch).run(wave)

        hands = Hands(run, read, lambda: difference(hosts, asked(inventory, call.limit).hosts), tell, against)
        interruption.said = f"interrupted; `{call.of('rollout', '--resume')}` goes on"
        return conduct(journal, hands, interval, pauses), files


def _journal(
    inventory: Path,
    scheduler: Scheduler | None,
    call: Call,
    request: Request | None,
    anew: bool,
    found: Asked,
    folder: Path,
) -> Journal:
    """Return the journal of the rollout that is resumed, or of one that begins now."""
    from gpunode.fleet.rollout.entries import Resumed, now
    from gpunode.fleet.rollout.opening import begun, refuse_beside, resumable
    from gpunode.fleet.rollout.place import begin, latest

    ours = version("gpunode")
    if request is None:
        journal, _ = resumable(latest(folder), call, found, ours)
        journal.append(Resumed(at=now()))
        return journal
    if not anew:
        refuse_beside(latest(folder), call)
    # Before there is a journal all nodes are read: nothing is begun where that cannot be done.
    entry = begun(call, request, found, _every_node(inventory, scheduler, call), ours)
    journal = begin(folder)
    journal.append(entry)
    return journal


def _every_node(inventory: Path, scheduler: Scheduler | None, call: Call) -> tuple[NodeReport, ...]:
    from gpunode.cli.drift import watched

    with watched() as watch:
        return inspected(inventory, scheduler, watch, limit=call.limit, whole=True)
