"""`gpunode apply`: the plan, a question, the run, and how the nodes are then."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gpunode.base.findings import ExitCode, NodeReport, verdict
from gpunode.base.host_names import folded
from gpunode.base.terminal import say, say_coloured
from gpunode.cli.errors import told
from gpunode.cli.interruption import interruptible
from gpunode.cli.output import Mode, columns, end, is_json, is_quiet, mode, output_option, say_document, talk
from gpunode.cli.selection import limit_option, set_option

if TYPE_CHECKING:
    from gpunode.cli.plan import Plans
    from gpunode.fleet.reports.run_end import HostEnd
    from gpunode.fleet.run.child import Files
    from gpunode.fleet.run.progress import Progress

_UNJUDGED = "no operation failed on it, and it was not verified"


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@output_option("how each node is then (docs/output.md)", "what is not as desired at the end")
@limit_option
@set_option
def apply(inventory: Path, yes: bool, limit: tuple[str, ...]) -> None:
    """Bring the nodes of INVENTORY to what its settings ask, all at once: show the plan, ask, run, say how they are.

    It is `pyinfra INVENTORY deploys/gpu_node.py` with a plan before it; `gpunode rollout` does the same in waves. Exits
    0 where all is as desired, 2 where something is not, waits or is refused, 1 where a node did not answer or the run
    failed, 3 on wrong settings, 64 usage.
    """
    from gpunode.cli.plan import live_plans, say_plans

    with told():
        plans = live_plans(inventory, limit)
    # Whoever is asked has to see it, in any mode.
    if not yes or not is_quiet():
        say_plans(plans, inventory, err=mode() in (Mode.JSON, Mode.QUIET))
    nodes = _nodes(plans)
    if not nodes:
        say("no node can be changed" + ("" if yes and is_quiet() else ": see above"), err=True)
        _finish(inventory, plans, None, None)
    if not yes:
        _ask(inventory, nodes, plans)
    again = f"gpunode apply {inventory}"
    with interruptible(f"interrupted: what a node was in the middle of ends or is undone there; `{again}` goes on"):
        progress, files = _run(inventory, nodes)
    _finish(inventory, plans, progress, files)


def _nodes(plans: Plans) -> list[str]:
    """Return the nodes that the run is made on: those that answered and are not refused."""
    return [name for name, found in plans.items() if not isinstance(found, str) and not found.refusals]


def _ask(inventory: Path, nodes: Sequence[str], plans: Plans) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("nobody is there to be asked: give --yes to run without a question")
    others = len(plans) - len(nodes)
    left = f"; {others} stay as they are" if others else ""
    asked = f"Run this on {len(nodes)} node{'' if len(nodes) == 1 else 's'} ({folded(nodes)}){left}?"
    if not click.confirm(asked, err=is_json() or is_quiet()):
        if is_json():
            # The one document: nobody looked again at a node that nothing was done to.
            say_document(_document(inventory, [], {name: "nothing was done: somebody said no" for name in nodes}))
        talk("nothing was done")
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
        talk(f"log: {files.log}", err=True)
        # A rollout's wave of the same inventory is waited for, and waits for this.
        with (
            rollouts.run_lock(rollouts.place(name), partial(talk, err=True)) as lock,
            live(partial(talk, err=True)) as watch,
        ):
            words = child.command(pyinfra, name, nodes, groups)
            code, progress = child.run(words, files, lock, len(nodes), {}, watch, partial(rollouts.name_holder, lock))
    except (child.ProgramError, OSError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        end(said, ExitCode.ERROR)
    if progress.ends is None and not progress.unreached:
        how = f"was ended by signal {-code}" if code < 0 else f"exited {code}"
        last = child.last_lines(files.log)
        end(
            f"pyinfra {how} before it could say how the nodes are. Its last lines:\n{last}\nlog: {files.log}",
            ExitCode.ERROR,
        )
    return progress, files


def _finish(inventory: Path, plans: Plans, progress: Progress | None, files: Files | None) -> NoReturn:
    """Say how the nodes are, and end; progress: None where no run was made."""
    from gpunode.cli.drift import coloured
    from gpunode.fleet.reports.run_end import report_of, verdict_text

    ends = _ends(plans, progress)
    reports = [report for each in ends if (report := report_of(each)) is not None]
    if is_json():
        alone = {each.name: each.left_alone or _UNJUDGED for each in ends if report_of(each) is None}
        say_document(_document(inventory, reports, alone, files))
    elif progress is not None or is_quiet():
        text = verdict_text(ends, columns(), str(inventory), coloured, is_quiet())
        if text:
            say_coloured(text)
    status = verdict(item for report in reports for item in report.findings)
    if files is not None and status is not ExitCode.GOOD:
        talk(f"log: {files.log}", err=True)
    sys.exit(status)


def _document(
    inventory: Path, reports: Sequence[NodeReport], alone: Mapping[str, str], files: Files | None = None
) -> dict[str, Any]:
    """Return what drift's document says, of the nodes as the run left them; `alone`: why others were not judged."""
    from gpunode.fleet.reports.document import document

    found = document(reports, inventory=str(inventory))
    return {**found, "left_alone": dict(alone), "log": None if files is None else str(files.log)}


def _ends(plans: Plans, progress: Progress | None) -> list[HostEnd]:
    """Return how the run ended on each host that was planned for, those that it was not made on among them."""
    from gpunode.fleet.reports.run_end import HostEnd, host_end_from, refusal_finding

    run = {each.name: each for each in map(host_end_from, progress.ends or ())} if progress is not None else {}
    unreached = progress.unreached if progress is not None else {}
    ends = []
    for name, found in plans.items():
        if isinstance(found, str):
            ends.append(HostEnd(name, unreached=found))
        elif found.refusals:
            ends.append(HostEnd(name, refused=tuple(map(refusal_finding, found.refusals))))
        elif name in unreached and name not in run:
            ends.append(HostEnd(name, unreached=unreached[name]))
        else:
            ends.append(run.get(name, HostEnd(name)))
    return ends
