"""`gpunode rollout`: bring an inventory's nodes to what is asked, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from gpunode.base.findings import ExitCode
from gpunode.base.messages import with_code
from gpunode.cli.engine import engine_option
from gpunode.cli.errors import end_by, told
from gpunode.cli.interruption import interruptible
from gpunode.cli.output import output_option
from gpunode.cli.recording import history_option, recorded
from gpunode.cli.report_file import finish, html_option, unwritten_page
from gpunode.cli.rollout_run import carried_out, planned, say_end
from gpunode.cli.selection import called, inventory_argument, limit_option, retry_option, set_option
from gpunode.fleet.rollout.amount import Amount, AmountError, amount

if TYPE_CHECKING:
    from gpunode.fleet.call import Call
    from gpunode.fleet.engine.parts import Scheduler
    from gpunode.fleet.rollout.progress import Progress

# What a rollout is begun with stands in its journal.
_BEGUN_WITH = {"canary": "--canary", "most": "--max-unavailable", "budget": "--failure-budget", "everyone": "--all"}


def _amount(context: click.Context, option: click.Parameter, text: str | None) -> Amount | None:
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
    scheduler: Scheduler | None,
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
    from gpunode.fleet.rollout.journal import JournalError
    from gpunode.fleet.rollout.opening import ChangedError
    from gpunode.fleet.rollout.place import LockedError
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
    from gpunode.fleet.rollout.document import document, exit_code

    say_end(call, progress, files)
    told_of = document(progress, files)
    if files is not None:
        recorded(told_of, "rollout")
    finish(told_of, unwritten_page(html, "rollout", told_of), exit_code(progress))
