"""`gpunode rollout`: bring an inventory's nodes to what is asked, a few at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from gpunode.base.codes import with_code
from gpunode.base.findings import ExitCode
from gpunode.base.host_names import folded
from gpunode.base.terminal import say
from gpunode.cli.errors import end_by, told
from gpunode.cli.interruption import interruptible
from gpunode.cli.report_file import html_option, write_page
from gpunode.cli.selection import called, set_option
from gpunode.fleet.rollout.amount import Amount, AmountError, amount

if TYPE_CHECKING:
    from gpunode.base.findings import NodeReport
    from gpunode.fleet.call import Call
    from gpunode.fleet.rollout.gate import RunResult
    from gpunode.fleet.rollout.journal import Journal
    from gpunode.fleet.rollout.opening import Asked, Request
    from gpunode.fleet.rollout.progress import Progress, Wave

# What a rollout is begun with stands in its journal.
_BEGUN_WITH = {"canary": "--canary", "most": "--max-unavailable", "budget": "--failure-budget", "everyone": "--all"}

Tell = Callable[[str], None]


def _amount(context: click.Context, option: click.Parameter, text: str | None) -> Amount | None:
    try:
        return None if text is None else amount(text, least=1 if option.name == "most" else 0)
    except AmountError as error:
        raise click.BadParameter(with_code(str(error), error.code)) from None


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
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
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; what happens goes to standard error.")
@set_option
@html_option
@click.pass_context
def rollout(
    context: click.Context,
    inventory: Path,
    canary: str,
    most: Amount | None,
    budget: Amount,
    interval: float,
    pauses: bool,
    everyone: bool,
    resume: bool,
    anew: bool,
    dry: bool,
    as_json: bool,
    html: Path | None,
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
    tell: Tell = partial(say, err=as_json)
    with told():
        call = called(inventory)
    files: Path | None = None
    with (
        told(),
        _refused(),
        interruptible(f"interrupted. Where a wave was begun: {call.of('rollout', '--resume')}"),
    ):
        if dry:
            progress = _planned(inventory, call, request, tell)
        else:
            progress, files = _carried_out(inventory, call, request, anew, interval, pauses, tell)
    _finish(call, progress, files, tell, as_json, html)


@contextmanager
def _refused() -> Iterator[None]:
    """Say in one message why a rollout is not begun, or cannot go on."""
    from gpunode.fleet.rollout.choice import CanaryError
    from gpunode.fleet.rollout.journal import JournalError
    from gpunode.fleet.rollout.opening import ChangedError
    from gpunode.fleet.rollout.place import LockedError
    from gpunode.fleet.run.child import ProgramError

    try:
        yield
    except CanaryError as error:
        raise click.BadParameter(with_code(str(error), error.code), param_hint="--canary") from None
    except (ChangedError, JournalError, LockedError, ProgramError) as error:
        end_by(error, ExitCode.INPUT_REFUSED if isinstance(error, ChangedError) else ExitCode.ERROR)


def _planned(inventory: Path, call: Call, request: Request | None, tell: Tell) -> Progress:
    from gpunode.fleet.rollout.conduct import wave_line
    from gpunode.fleet.rollout.entries import Resumed, now
    from gpunode.fleet.rollout.opening import asked, begun, resumable
    from gpunode.fleet.rollout.place import latest, place
    from gpunode.fleet.rollout.progress import Progress, waves_to_come

    name, found, ours = str(inventory), asked(inventory), version("gpunode")
    if request is None:
        _, last = resumable(latest(place(name)), call, found, ours)
        progress = last.after(Resumed(at=now()))
    else:
        progress = Progress(begun(call, request, found, _everybody(inventory), ours))
    _header(progress, tell)
    waves, end = waves_to_come(progress)
    for wave in waves:
        tell(wave_line(wave))
    tell(f"would stop: {end.reason}" if end.reason else f"waves, where every node passes: {len(waves)}")
    return progress


def _carried_out(
    inventory: Path, call: Call, request: Request | None, anew: bool, interval: float, pauses: bool, tell: Tell
) -> tuple[Progress, Path]:
    from gpunode.cli.live import live
    from gpunode.fleet.drift import inspect
    from gpunode.fleet.inventory import foreign_names, host_data
    from gpunode.fleet.rollout.conduct import Hands, conduct
    from gpunode.fleet.rollout.opening import asked, difference
    from gpunode.fleet.rollout.place import controller_lock, place
    from gpunode.fleet.rollout.wave_run import WaveRunner
    from gpunode.fleet.run.child import program
    from gpunode.settings import check_hosts

    pyinfra, found = program(), asked(inventory)
    folder = place(str(inventory))
    with controller_lock(folder, str(inventory)):
        journal = _journal(inventory, call, request, anew, found, folder)
        _header(journal.known, tell)
        hosts, files = journal.known.begun.hosts, journal.path.parent
        tell(f"log of each wave: {files}/wave-N.log")

        def read(nodes: Sequence[str]) -> tuple[NodeReport, ...]:
            return inspect(inventory, only=nodes)

        def against(nodes: Sequence[str]) -> dict[str, str]:
            from gpunode.fleet import drift_cluster

            return drift_cluster.against(inventory, check_hosts(host_data(str(inventory)), foreign_names()), nodes)

        def run(wave: Wave) -> RunResult:
            # In a log too: a wave may take an hour.
            with live(tell) as watch:
                return WaveRunner(pyinfra, str(inventory), found.groups, folder, files, tell, watch).run(wave)

        hands = Hands(run, read, lambda: difference(hosts, asked(inventory).hosts), tell, against)
        return conduct(journal, hands, interval, pauses), files


def _journal(inventory: Path, call: Call, request: Request | None, anew: bool, found: Asked, folder: Path) -> Journal:
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
    entry = begun(call, request, found, _everybody(inventory), ours)
    journal = begin(folder)
    journal.append(entry)
    return journal


def _everybody(inventory: Path) -> tuple[NodeReport, ...]:
    from gpunode.cli.drift import watched
    from gpunode.fleet.drift import inspect

    with watched() as watch:
        return inspect(inventory, watch)


def _header(progress: Progress, tell: Tell) -> None:
    begun, policy = progress.begun, progress.begun.policy
    first = ", ".join(policy.canaries) or "none"
    tell(
        f"{begun.inventory}: {len(begun.nodes) - len(progress.passed)} of {len(begun.hosts)} nodes to do; "
        f"canary: {first}; at most "
        f"{policy.max_unavailable} unavailable; {policy.failure_budget or 'none'} may fail"
    )
    tell("gate: pyinfra's run, a reading as `gpunode drift` has it, and the cluster where there is one")
    # Of a large fleet most are as desired, and one line says so.
    reasons: dict[str, list[str]] = {}
    for name, left in begun.left_out.items():
        reasons.setdefault(left.reason, []).append(name)
    for reason, names in reasons.items():
        tell(f"  left out: {folded(names)}: {reason}")


def _finish(
    call: Call, progress: Progress, files: Path | None, tell: Tell, as_json: bool, html: Path | None
) -> NoReturn:
    from gpunode.fleet.rollout.document import document, exit_code
    from gpunode.fleet.rollout.opening import ANOTHER, resumption
    from gpunode.fleet.rollout.progress import stopped_for_good

    ended = progress.ended
    if files is not None and ended is not None:
        taken = len(progress.begun.nodes)
        done = f"{len(progress.passed)} of {taken} nodes are done" if taken else "nothing was to be done"
        tell(f"{ended.how}: " + (f"{ended.reason}; {done}" if ended.reason else done))
        if progress.untouched:
            tell(f"  not touched: {', '.join(progress.untouched)}")
        tell(f"  journal and logs: {files}")
        if stopped_for_good(progress):
            tell(f"  {ANOTHER}: {call.of('rollout')}")
        elif ended.how != "finished":
            tell(f"  go on: {resumption(call, progress.begun)}")
    told_of = document(progress, files)
    if as_json:
        say(json.dumps(told_of))
    if html is not None:
        write_page(html, "rollout", told_of)
    sys.exit(exit_code(progress))
