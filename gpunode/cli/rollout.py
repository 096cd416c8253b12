"""`gpunode rollout`: bring an inventory's nodes to what is asked, a few at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from gpunode.base.findings import ExitCode
from gpunode.base.folding import fold, folded, folded_in_a_line
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.cli.engine import engine_option, inspected
from gpunode.cli.errors import end_by, told
from gpunode.cli.interruption import interruptible
from gpunode.cli.output import columns, is_quiet, output_option, talk
from gpunode.cli.recording import history_option, recorded
from gpunode.cli.report_file import finish, html_option, unwritten_page
from gpunode.cli.selection import called, inventory_argument, limit_option, retry_option, set_option

if TYPE_CHECKING:
    from gpunode.base.findings import Finding, NodeReport
    from gpunode.cli.interruption import Interruption
    from gpunode.fleet.call import Call
    from gpunode.fleet.rollout.journal import Journal
    from gpunode.fleet.rollout.opening import Amount, Asked, Request
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
    from gpunode.fleet.rollout.conduct import exit_code
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


def planned(inventory: Path, scheduler: str | None, call: Call, request: Request | None) -> Progress:
    """Tell the waves of a rollout that is not made; return how it would stand."""
    from gpunode.fleet.rollout.conduct import wave_line
    from gpunode.fleet.rollout.entries import STOPPED, Resumed, now
    from gpunode.fleet.rollout.journal import latest, place
    from gpunode.fleet.rollout.opening import asked, begun, resumable
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
    scheduler: str | None,
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
    from gpunode.fleet.rollout.conduct import Hands, conduct, run_wave
    from gpunode.fleet.rollout.journal import controller_lock, place
    from gpunode.fleet.rollout.opening import asked, difference
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
            from gpunode.fleet import cluster

            return cluster.against(inventory, host_settings(inventory), nodes)

        def run(wave: Wave) -> dict[str, Finding]:
            # In a log too: a wave may take an hour.
            with live(tell) as watch:
                return run_wave(pyinfra, str(inventory), found.groups, files, watch, wave)

        hands = Hands(run, read, lambda: difference(hosts, asked(inventory, call.limit).hosts), tell, against)
        interruption.said = f"interrupted; `{call.of('rollout', '--resume')}` goes on"
        return conduct(journal, hands, interval, pauses), files


def _journal(
    inventory: Path,
    scheduler: str | None,
    call: Call,
    request: Request | None,
    anew: bool,
    found: Asked,
    folder: Path,
) -> Journal:
    """Return the journal of the rollout that is resumed, or of one that begins now."""
    from gpunode.fleet.rollout.entries import Resumed, now
    from gpunode.fleet.rollout.journal import begin, latest
    from gpunode.fleet.rollout.opening import begun, refuse_beside, resumable

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


def _every_node(inventory: Path, scheduler: str | None, call: Call) -> tuple[NodeReport, ...]:
    from gpunode.cli.drift import watched

    with watched() as watch:
        return inspected(inventory, scheduler, watch, limit=call.limit, whole=True)


# What a rollout is begun with stands in its journal.
_BEGUN_WITH = {"canary": "--canary", "most": "--max-unavailable", "budget": "--failure-budget", "everyone": "--all"}


def _amount(context: click.Context, option: click.Parameter, text: str | None) -> Amount | None:
    from gpunode.fleet.rollout.opening import AmountError, amount

    try:
        return None if text is None else amount(text, least=1 if option.name == "most" else 0)
    except AmountError as error:
        raise click.BadParameter(with_code(str(error), error.code)) from None


@click.command()
@inventory_argument()
@click.option(
    "--canary",
    metavar="N|NAME,NAME",
    default="1",
    show_default=True,
    help="Who goes first, and must pass before any other node is touched: so many nodes, or these.",
)
@click.option(
    "--max-unavailable",
    "most",
    metavar="N|P%",
    callback=_amount,
    help="How many nodes may be unavailable at once, those that failed or did not answer among them.  "
    "[default: the settings' disruption.max_parallel]",
)
@click.option(
    "--failure-budget",
    "budget",
    metavar="N|P%",
    callback=_amount,
    default="0",
    show_default=True,
    help="How many nodes may fail before the rollout stops.",
)
@click.option("--interval", type=click.FloatRange(min=0), default=0, metavar="SECONDS", help="Wait between two waves.")
@click.option("--pause", "pauses", is_flag=True, help="End after one wave; --resume goes on.")
@click.option("--all", "everyone", is_flag=True, help="Take the nodes that are as desired, too.")
@click.option("--resume", is_flag=True, help="Go on with the last rollout: paused, interrupted, killed or stopped.")
@click.option("--anew", is_flag=True, help="Begin another rollout, though the last one was broken off.")
@click.option("--dry", is_flag=True, help="Print the waves, and touch nothing.")
@output_option("the result (docs/rollout.md)", "the nodes that failed or cannot be done")
@engine_option
@limit_option
@set_option
@retry_option
@html_option
@history_option
@click.pass_context
def rollout(
    context: click.Context,
    inventory: Path,
    scheduler: str | None,
    canary: str,
    most: Amount | None,
    budget: Amount,
    interval: float,
    pauses: bool,
    everyone: bool,
    resume: bool,
    anew: bool,
    dry: bool,
    html: Path | None,
    limit: tuple[str, ...],
) -> None:
    """Bring the nodes of INVENTORY to what its settings ask, in waves.

    A wave is a run of pyinfra on a few nodes, the canary's first; a node passes where the run succeeded on it and a
    reading then finds it as desired. Exits 0 where all went well, 2 where a node failed or cannot be what is asked, 1
    where one did not answer or the rollout was broken off, 3 on wrong settings and where the inventory is not the one
    that the rollout was begun with, 64 usage. docs/how-to/rollout.md says more.
    """
    from gpunode.fleet.rollout.opening import Request

    if resume and anew:
        raise click.UsageError("give either --resume or --anew")
    given = [
        option
        for name, option in _BEGUN_WITH.items()
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    if resume and given:
        raise click.UsageError(f"--resume goes on as the rollout was begun: leave out {', '.join(given)}")
    request = None if resume else Request(canary, most, budget, everyone)
    with told():
        call = called(inventory, limit)
    files: Path | None = None
    with told(), _refused(), interruptible() as interruption:
        if dry:
            progress = planned(inventory, scheduler, call, request)
        else:
            progress, files = carried_out(inventory, scheduler, call, request, anew, interval, pauses, interruption)
    _finish(call, progress, files, html)


@contextmanager
def _refused() -> Iterator[None]:
    """Say in one message why a rollout is not begun, or cannot go on."""
    from gpunode.fleet.rollout.choice import CanaryError
    from gpunode.fleet.rollout.journal import JournalError, LockedError
    from gpunode.fleet.rollout.opening import ChangedError
    from gpunode.fleet.rollout.progress import TogetherError
    from gpunode.fleet.run.child import ProgramError

    try:
        yield
    except CanaryError as error:
        raise click.BadParameter(with_code(str(error), error.code), param_hint="--canary") from None
    except TogetherError as error:
        raise click.BadParameter(with_code(str(error), error.code), param_hint="--max-unavailable") from None
    except (ChangedError, JournalError, LockedError, ProgramError) as error:
        end_by(error, ExitCode.INPUT_REFUSED if isinstance(error, ChangedError) else ExitCode.ERROR)


def _finish(call: Call, progress: Progress, files: Path | None, html: Path | None) -> NoReturn:
    from gpunode.fleet.rollout.conduct import document, exit_code

    say_end(call, progress, files)
    told_of = document(progress, files)
    if files is not None:
        recorded(told_of, "rollout")
    finish(told_of, unwritten_page(html, "rollout", told_of), exit_code(progress))
