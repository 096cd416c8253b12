"""`gpunode apply`: the plan, a question, the run, and how the nodes are then."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpunode.base.codes import with_code
from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode, verdict
from gpunode.base.host_names import folded
from gpunode.base.terminal import say
from gpunode.cli.errors import BROKEN_OFF, NOT_READ, NOTHING_TO_CHANGE, end, end_by, told
from gpunode.cli.interruption import interruptible
from gpunode.cli.selection import limit_option, set_option

if TYPE_CHECKING:
    from gpunode.cli.plan import Plans
    from gpunode.fleet.reports.run_end import HostEnd
    from gpunode.fleet.run.child import Files
    from gpunode.fleet.run.progress import Progress


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@limit_option
@set_option
def apply(inventory: Path, yes: bool, limit: tuple[str, ...]) -> None:
    """Bring the nodes of INVENTORY to what its settings ask, all at once: show the plan, ask, run, say how they are.

    It is `pyinfra INVENTORY deploys/gpu_node.py` with a plan before it; `gpunode rollout` does the same in waves. Exits
    0 where all is as desired, 2 where something is not, waits or is refused, 1 where a node did not answer or the run
    failed, 3 on wrong settings, 64 usage.
    """
    from gpunode.cli.plan import as_text, live_plans

    with told():
        plans = live_plans(inventory, limit)
    say(as_text(plans))
    nodes = _nodes(plans)
    if not nodes:
        unread = any(isinstance(found, str) for found in plans.values())
        end("no node can be changed: see above", NOTHING_TO_CHANGE, ExitCode.ERROR if unread else ExitCode.NEGATIVE)
    if not yes:
        _ask(nodes, plans)
    again = f"gpunode apply {inventory}"
    with interruptible(f"interrupted: what a node was in the middle of ends or is undone there; `{again}` goes on"):
        progress, files = _run(inventory, nodes)
    _finish(inventory, plans, progress, files)


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


def _run(inventory: Path, nodes: Sequence[str]) -> tuple[Progress, Files]:
    from gpunode.cli.live import live
    from gpunode.fleet.inventory import load_inventory
    from gpunode.fleet.rollout import place as rollouts
    from gpunode.fleet.run import child, place

    name = str(inventory)
    with told():
        groups = tuple(map(str, load_inventory(inventory).groups))
    try:
        pyinfra = child.program()
        files = place.begin(rollouts.place(name, place.ROOT))
        say(f"log: {files.log}", err=True)
        # A rollout's wave of the same inventory is waited for, and waits for this.
        with (
            rollouts.run_lock(rollouts.place(name), partial(say, err=True)) as lock,
            live(partial(say, err=True)) as watch,
        ):
            words = child.command(pyinfra, name, nodes, groups)
            code, progress = child.run(words, files, lock, len(nodes), {}, watch, partial(rollouts.name_holder, lock))
    except CodedError as error:
        end_by(error, ExitCode.ERROR)
    except OSError as error:
        end(f"{error.filename}: {error.strerror}" if error.filename else str(error), NOT_READ, ExitCode.ERROR)
    if progress.ends is None and not progress.unreached:
        how = f"was ended by signal {-code}" if code < 0 else f"exited {code}"
        said = f"pyinfra {how} before it could say how the nodes are. Its last lines:"
        say(with_code(said, BROKEN_OFF), err=True)
        say(child.last_lines(files.log), err=True)
        say(f"log: {files.log}", err=True)
        sys.exit(ExitCode.ERROR)
    return progress, files


def _finish(inventory: Path, plans: Plans, progress: Progress, files: Files) -> NoReturn:
    from gpunode.fleet.reports.findings_text import width
    from gpunode.fleet.reports.run_end import report_of, verdict_text

    ends = _ends(plans, progress)
    say(verdict_text(ends, width(), str(inventory)))
    findings = [item for end in ends if (report := report_of(end)) is not None for item in report.findings]
    status = verdict(findings)
    if status is not ExitCode.GOOD:
        say(f"log: {files.log}", err=True)
    sys.exit(status)


def _ends(plans: Plans, progress: Progress) -> list[HostEnd]:
    """Return how the run ended on each host that was planned for, those that it was not made on among them."""
    from gpunode.fleet.reports.run_end import HostEnd, host_end_from, refusal_finding

    run = {end.name: end for end in map(host_end_from, progress.ends or ())}
    ends = []
    for name, found in plans.items():
        if isinstance(found, str):
            ends.append(HostEnd(name, unreached=found))
        elif found.refusals:
            ends.append(HostEnd(name, refused=tuple(map(refusal_finding, found.refusals))))
        elif name in progress.unreached and name not in run:
            ends.append(HostEnd(name, unreached=progress.unreached[name]))
        else:
            ends.append(run.get(name, HostEnd(name)))
    return ends
