"""`gpunode apply`: the plan, a question, the run, and how the nodes are then."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpunode.base.codes import with_code
from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode
from gpunode.base.host_names import folded
from gpunode.base.terminal import say
from gpunode.cli.errors import BROKEN_OFF, NOT_READ, NOTHING_TO_CHANGE, end, end_by, told
from gpunode.cli.interruption import interruptible
from gpunode.cli.selection import called, limit_option, set_option

if TYPE_CHECKING:
    from gpunode.cli.plan import Plans
    from gpunode.fleet.call import Call
    from gpunode.fleet.run.child import Files
    from gpunode.fleet.run.progress import Progress


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@limit_option
@set_option
def apply(inventory: Path, yes: bool, limit: tuple[str, ...]) -> None:
    """Bring the nodes of INVENTORY to what its settings ask, all at once: show the plan, ask, run, say how they are.

    It is `pyinfra INVENTORY deploys/gpu_node.py` with a plan before it; `gpunode rollout` does the same in waves, and
    is not run beside. Exits 0 where all is as desired, 2 where something is not, waits or is refused, 1 where a node
    did not answer or the run failed, 3 on wrong settings, 64 usage.
    """
    from gpunode.cli.plan import as_text, live_plans

    with _refused(), told():
        # Behind pyinfra, which `told` imports: it patches the process's sockets.
        from gpunode.fleet.rollout import place as rollouts

        rollouts.refuse_beside_rollout(rollouts.place(str(inventory)), str(inventory))
        plans = live_plans(inventory, limit)
    say(as_text(plans))
    _allowed(plans, yes)
    call = called(inventory, limit)
    again = call.of("apply")
    with interruptible(f"interrupted: what a node was in the middle of ends or is undone there; `{again}` goes on"):
        plans, code, progress, files = _run(inventory, limit, yes, plans, call)
    _finish(call, plans, code, progress, files)


@contextmanager
def _refused() -> Iterator[None]:
    """Say in one message why nothing can be run."""
    try:
        yield
    except CodedError as error:
        end_by(error, ExitCode.ERROR)
    except OSError as error:
        end(f"{error.filename}: {error.strerror}" if error.filename else str(error), NOT_READ, ExitCode.ERROR)


def _allowed(plans: Plans, yes: bool) -> None:
    """Go on where a node can be changed, and a person, or --yes, wants it."""
    nodes = _nodes(plans)
    if not nodes:
        unread = any(isinstance(found, str) for found in plans.values())
        end("no node can be changed: see above", NOTHING_TO_CHANGE, ExitCode.ERROR if unread else ExitCode.NEGATIVE)
    if not yes:
        _ask(nodes, plans)


def _nodes(plans: Plans) -> list[str]:
    """Return the nodes that the run is made on: those that answered and are not refused."""
    return [name for name, found in plans.items() if not isinstance(found, str) and not found.refusals]


def _ask(nodes: Sequence[str], plans: Plans) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("nobody is there to be asked: give --yes to run without a question")
    others = len(plans) - len(nodes)
    left = f"; {others} stay as they are" if others else ""
    if not click.confirm(f"Run this on {len(nodes)} node{'' if len(nodes) == 1 else 's'} ({folded(nodes)}){left}?"):
        say("nothing was done")
        sys.exit(ExitCode.GOOD)


def _run(
    inventory: Path, limit: tuple[str, ...], yes: bool, plans: Plans, call: Call
) -> tuple[Plans, int, Progress, Files]:
    """Run on the nodes that can be changed; return the plans that it was run by, and how that ended."""
    from gpunode.cli.live import live
    from gpunode.fleet.inventory import load_inventory
    from gpunode.fleet.rollout import place as rollouts
    from gpunode.fleet.run import child, place

    name, what = str(inventory), f"`gpunode apply {inventory}`"
    folder, waited = rollouts.place(name), False

    def waits(line: str) -> None:
        nonlocal waited
        waited = True
        say(line, err=True)

    with told():
        groups = tuple(map(str, load_inventory(inventory).groups))
    with _refused():
        pyinfra = child.program()
        files = place.begin(rollouts.place(name, place.ROOT))
        say(f"log: {files.log}", err=True)
        # Another run on the same inventory is waited for, and waits for this.
        with rollouts.run_lock(folder, waits, what) as lock:
            # One may have begun since; from now on its waves wait.
            rollouts.refuse_beside_rollout(folder, name)
            if waited:
                plans = _planned_anew(inventory, limit, yes, plans)
            nodes = _nodes(plans)
            words, started = child.command(pyinfra, name, nodes, groups), partial(rollouts.name_holder, lock, what=what)
            with live(partial(say, err=True)) as watch:
                code, progress = child.run(words, files, lock, len(nodes), call.environment(), watch, started)
    return plans, code, progress, files


def _planned_anew(inventory: Path, limit: tuple[str, ...], yes: bool, shown: Plans) -> Plans:
    """Return what is to be done now that another run has ended; where that is another plan, show it, and ask again."""
    from gpunode.cli.plan import as_text, live_plans

    with told():
        plans = live_plans(inventory, limit)
    if as_text(plans) == as_text(shown):
        say("that has ended; the plan is the same as before", err=True)
        return plans
    say("that has ended, and the plan is another one now:")
    say(as_text(plans))
    _allowed(plans, yes)
    return plans


def _finish(call: Call, plans: Plans, code: int, progress: Progress, files: Files) -> NoReturn:
    from gpunode.fleet.reports.findings_text import width
    from gpunode.fleet.reports.run_end import verdict_text
    from gpunode.fleet.run.child import last_lines
    from gpunode.fleet.run.ends import ends_of, how_it_ended, is_lost, status_of

    ends = ends_of(plans, progress, code)
    say(verdict_text(ends, width(), call))
    if is_lost(ends, progress, len(_nodes(plans))):
        before = " before it could say how the nodes are" if progress.ends is None else ""
        say(with_code(f"{how_it_ended(code)}{before}. Its last lines:", BROKEN_OFF), err=True)
        say(last_lines(files.log), err=True)
    status = status_of(ends)
    if status is not ExitCode.GOOD:
        say(f"log: {files.log}", err=True)
    sys.exit(status)
