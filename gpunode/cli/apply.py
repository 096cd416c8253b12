"""`gpunode apply`: the plan, a question, the run, and how the nodes are then."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gpunode.base.errors import INTERRUPTED, CodedError
from gpunode.base.findings import CLUSTER, ExitCode, NodeReport
from gpunode.base.folding import folded
from gpunode.base.terminal import say, say_coloured
from gpunode.cli.engine import engine_option
from gpunode.cli.errors import NOT_READ, NOTHING_TO_CHANGE, complain, end, end_by, told
from gpunode.cli.interruption import NOTHING_DONE, Interruption, end_line, interruptible
from gpunode.cli.output import Mode, columns, is_json, is_quiet, mode, output_option, say_document, talk
from gpunode.cli.recording import history_option, recorded
from gpunode.cli.selection import called, inventory_argument, limit_option, retry_option, set_option

if TYPE_CHECKING:
    from gpunode.cli.plan import Plans
    from gpunode.fleet.call import Call
    from gpunode.fleet.reports.run_end import HostEnd
    from gpunode.fleet.run.child import Files
    from gpunode.fleet.run.progress import Progress


_UNJUDGED = "no operation failed on it, and it was not verified"


def end_of_nodes(call: Call, ends: Collection[HostEnd]) -> NoReturn:
    """Say how the nodes are behind a run of other machines, and end the program."""
    from gpunode.fleet.reports.run_end import status_of

    _say_ends(ends, call)
    sys.exit(status_of(ends))


def end_of_run(call: Call, plans: Plans, code: int, progress: Progress, files: Files, nodes: int) -> NoReturn:
    """Say how the nodes are behind a run, and end the program; code: pyinfra's, nodes: how many it was made on."""
    from gpunode.fleet.reports.run_end import BROKEN_OFF, ends_of, how_it_ended, is_lost, status_of
    from gpunode.fleet.run.child import last_lines

    ends = ends_of(_of_nodes(plans), progress, code, str(files.log))
    before = " before it could say how the nodes are" if progress.ends is None else ""
    lost = f"{how_it_ended(code)}{before}" if is_lost(ends, progress, nodes) else None
    _say_ends(ends, call, files, lost)
    if lost is not None:
        complain(f"{lost}. Its last lines are these", BROKEN_OFF)
        say(last_lines(files.log), err=True)
    status = status_of(ends)
    if status is not ExitCode.GOOD:
        talk(f"log: {files.log}", err=True)
    sys.exit(status)


def _say_ends(ends: Collection[HostEnd], call: Call, files: Files | None = None, lost: str | None = None) -> None:
    """Say how the nodes are; files: of the run, None where none was made; lost: how it was broken off."""
    from gpunode.cli.drift import coloured
    from gpunode.fleet.reports.run_end import report_of, status_of, verdict_text

    reports = [report for each in ends if (report := report_of(each)) is not None]
    alone = {end.name: end.left_alone or end.unverified or _UNJUDGED for end in ends if report_of(end) is None}
    found = document(call, reports, alone, status_of(ends), files, lost)
    if is_json():
        say_document(found)
    elif text := verdict_text(ends, columns(), call, coloured, is_quiet()):
        say_coloured(text)
    recorded(found, "apply")


def document(
    call: Call,
    reports: Sequence[NodeReport],
    alone: Mapping[str, str],
    status: ExitCode,
    files: Files | None = None,
    lost: str | None = None,
) -> dict[str, Any]:
    """Return what drift's document says, of the nodes as the run left them; `alone`: why others were not judged."""
    from gpunode.fleet.reports.document import document as document_of
    from gpunode.fleet.reports.run_end import BROKEN_OFF

    log = None if files is None else str(files.log)
    errors = [] if lost is None else [{"error": lost, "code": BROKEN_OFF}]
    own = {"exit_code": int(status), "errors": errors, "left_alone": dict(alone), "log": log}
    return {**document_of(reports, call), **own}


# What becomes of nodes that were in the middle of something.
_LEFT = "what a node was in the middle of ends or is undone there"


@click.command()
@inventory_argument()
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@output_option("how each node is then (docs/output.md)", "what is not as desired at the end")
@history_option
@engine_option
@limit_option
@set_option
@retry_option
def apply(inventory: Path, yes: bool, scheduler: str | None, limit: tuple[str, ...]) -> None:
    """Bring the nodes of INVENTORY to what its settings ask, all at once: show the plan, ask, run, say how they are.

    It is `pyinfra INVENTORY deploys/gpu_node.py` with a plan before it; `gpunode rollout` does the same in waves, and
    is not run beside. Exits 0 where all is as desired, 2 where something is not, waits or is refused, or the answer was
    no, 1 where a node did not answer or the run failed, 3 on wrong settings, 64 usage.
    """
    from gpunode.cli.plan import live_plans

    # Refuse to ask nobody before any node is read.
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("no terminal to answer the question: give --yes to run without it")
    with interruptible() as interruption:
        with _refused(), told():
            # Behind pyinfra, which `told` imports: it patches the process's sockets.
            from gpunode.fleet.rollout import journal as rollouts

            rollouts.refuse_beside_rollout(rollouts.place(str(inventory)), str(inventory))
            plans = live_plans(inventory, limit, scheduler)
        call = called(inventory, limit)
        _shown(plans, call, yes)
        _allowed(plans, yes, call)
        if scheduler is not None:
            end_of_nodes(call, _by_engine(inventory, scheduler, plans, call, interruption))
        code, progress, files = _run(inventory, plans, call, interruption)
    end_of_run(call, plans, code, progress, files, len(_nodes(plans)))


def _by_engine(
    inventory: Path, scheduler: str, plans: Plans, call: Call, interruption: Interruption
) -> Collection[HostEnd]:
    """Have the workers run on the nodes that can be changed; return how each node is then."""
    from gpunode.fleet.engine.apply import ends, looked_again, lost

    again = call.of("apply", "--engine", str(scheduler))
    with _refused(), told():
        asked = f"interrupted: the workers were asked to end; {_LEFT}"
        interruption.said = f"{asked}; `{again}` goes on"
        found = ends(scheduler, inventory, _of_nodes(plans), _nodes(plans), partial(talk, err=True))
        if gone := lost(found):
            talk(f"looking again, by other workers, how {folded(gone)} {'is' if len(gone) == 1 else 'are'}", err=True)
            found = looked_again(scheduler, inventory, found)
    return found


@contextmanager
def _refused() -> Iterator[None]:
    """Say in one message why nothing can be run."""
    try:
        yield
    except CodedError as error:
        end_by(error, ExitCode.ERROR)
    except OSError as error:
        end(f"{error.filename}: {error.strerror}" if error.filename else str(error), NOT_READ, ExitCode.ERROR)


def _shown(plans: Plans, call: Call, yes: bool) -> None:
    """Show the plan where the mode has it; whoever is asked has to see it, in any mode."""
    from gpunode.cli.plan import say_plans

    if not yes or not is_quiet():
        say_plans(plans, call, err=mode() in (Mode.JSON, Mode.QUIET))


def _allowed(plans: Plans, yes: bool, call: Call) -> None:
    """Go on where a node can be changed, and a person, or --yes, wants it; where nothing is to do, without a question.

    A run of nodes with nothing to do verifies them.
    """
    from gpunode.fleet.reports.run_end import ends_of, status_of
    from gpunode.fleet.run.progress import Progress
    from gpunode.node.plan import Plan

    nodes = _nodes(plans)
    if not nodes:
        told_of = "" if yes and is_quiet() else ": see above"
        complain(f"no node can be changed{told_of}", NOTHING_TO_CHANGE)
        ends = ends_of(_of_nodes(plans), Progress(0), 0)
        # In the other modes the plan has said it.
        if is_json() or is_quiet():
            _say_ends(ends, call)
        sys.exit(status_of(ends))
    if all(isinstance(each, Plan) and each.verdict == "nothing to do" for each in plans.values()):
        talk("nothing to do: this run verifies the nodes", err=True)
    elif not yes:
        _ask(nodes, plans, call)


def _nodes(plans: Plans) -> list[str]:
    """Return the nodes that the run is made on: those that answered and are not refused."""
    from gpunode.node.plan import Plan

    return [name for name, found in _of_nodes(plans).items() if isinstance(found, Plan) and not found.refusals]


def _of_nodes(plans: Plans) -> Plans:
    return {name: found for name, found in plans.items() if name != CLUSTER}


def _ask(nodes: Sequence[str], plans: Plans, call: Call) -> None:
    from gpunode.fleet.reports.plan_text import verdicts

    others = len(_of_nodes(plans)) - len(nodes)
    left = f"; {others} stay as they are" if others else ""
    failing = verdicts(plans).get("would fail", 0)
    some = f", of which {failing} would fail" if failing else ""
    asked = f"Run this on {len(nodes)} node{'' if len(nodes) == 1 else 's'} ({folded(nodes)}){some}{left}?"
    try:
        agreed = click.confirm(asked, err=is_json() or is_quiet())
    except click.Abort:
        # By Ctrl-C, or the end of what is typed.
        end_line()
        end(NOTHING_DONE, INTERRUPTED, ExitCode.ERROR)
    if not agreed:
        if is_json():
            # The one document: no node was read again.
            no = dict.fromkeys(nodes, "nothing was done: the question was answered with no")
            say_document(document(call, [], no, ExitCode.NEGATIVE))
        talk("nothing was done")
        sys.exit(ExitCode.NEGATIVE)


def _run(inventory: Path, plans: Plans, call: Call, interruption: Interruption) -> tuple[int, Progress, Files]:
    """Run on the nodes that can be changed; return how that ended."""
    from gpunode.cli.live import live
    from gpunode.fleet.inventory import load_inventory
    from gpunode.fleet.rollout import journal as rollouts
    from gpunode.fleet.run import child

    name = call.name
    with told():
        groups = tuple(map(str, load_inventory(inventory).groups))
    with _refused():
        pyinfra = child.program()
        files = child.begin(rollouts.place(name, child.ROOT))
        talk(f"log: {files.log}", err=True)
        # One may have begun since.
        rollouts.refuse_beside_rollout(rollouts.place(name), name)
        nodes = _nodes(plans)
        words = child.command(pyinfra, name, nodes, groups)
        interruption.said = f"interrupted: {_LEFT}; `{call.of('apply')}` goes on"
        with live(partial(talk, err=True)) as watch:
            return *child.run(words, files, f"`gpunode apply {name}`", len(nodes), call.environment(), watch), files
