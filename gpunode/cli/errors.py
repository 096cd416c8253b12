"""What is wrong with a command's input, as one message with its code, and an exit code; never as a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

import click

from gpunode.base.codes import has_code, with_code
from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode
from gpunode.base.folding import fold_lines
from gpunode.base.terminal import printable, say
from gpunode.cli.output import error_columns, is_json, is_said, say_document
from gpunode.cli.selection import told_of

# What no class of its own stands for; `gpunode explain` has their pages.
NOT_WRITTEN = "report.not-written"
NOT_READ = "file.unreadable"
NO_FACTS = "facts.none"
NOTHING_TO_CHANGE = "apply.nothing-to-change"
BROKEN_OFF = "run.broken-off"
UNKNOWN_CODE = "explain.unknown"
NO_CLUSTER = "cluster.none"
RUNTIME_REFUSED = "runtime.refused"
ALREADY_THERE = "init.already-there"
NOT_MADE = "init.not-written"
CRASHED = "gpunode.crashed"
INTERRUPTED = "gpunode.interrupted"
USAGE = "gpunode.usage"


def say_error(message: str, code: str, status: ExitCode, **more: Any) -> None:
    """Print the document of an error, where JSON is asked for and no document is printed yet.

    code: what `gpunode explain` knows it by; more: what the document says besides
    """
    from gpunode.base.document import error_document

    if is_json() and not is_said():
        say_document({**error_document(message, code, status, told_of()), **more})


def complain(text: str, code: str | None = None) -> None:
    """Tell a person what is wrong, with the code at its end, folded to the terminal that standard error is.

    code: None where the text has its own
    """
    said = text if code is None else with_code(text, code)
    say(fold_lines(printable(said), error_columns()), err=True)


def say_usage(error: click.UsageError) -> None:
    """Tell what is wrong with the command line as click does, with the code at its end, and folded."""
    # The list of what is allowed, which click parts by lines.
    said = " ".join(error.format_message().split())
    said = f"Error: {said if has_code(said) else with_code(said, USAGE)}"
    # In the command's own mode, which ends with its context.
    with error.ctx.scope(cleanup=False) if error.ctx is not None else nullcontext():
        folded = fold_lines(printable(said), error_columns())
        click.UsageError(folded.removeprefix("Error: "), error.ctx).show()


def end(text: str, code: str, status: ExitCode, **more: Any) -> NoReturn:
    """Say why the command cannot do its work, with its code behind it, and end the program.

    more: what the JSON document says besides, where one is asked for
    """
    say_error(text, code, status, **more)
    complain(text, code)
    sys.exit(status)


def end_by(error: CodedError, status: ExitCode, before: str = "", **more: Any) -> NoReturn:
    """Say an error with its code, and end the program; before: what stands in front of it; more: as above."""
    from gpunode.settings.problems import SettingsError

    text = f"{before}{error}"
    if isinstance(error, SettingsError):
        more |= {"problems": [problem.to_json() for problem in error.problems]}
    say_error(text, error.code, status, **more)
    # Each of its mistakes has a code.
    complain(text, None if isinstance(error, SettingsError) else error.code)
    sys.exit(status)


def refuse_limit(error: CodedError) -> NoReturn:
    """Refuse a pattern behind --limit that names no host: it is wrong usage, as is a --set of no setting."""
    said, context = with_code(str(error), error.code), click.get_current_context(silent=True)
    raise click.BadParameter(said, context, param_hint="--limit") from None


@contextmanager
def told() -> Iterator[None]:
    """End the program with 3 where settings or facts are refused, with 1 where the machines cannot be had.

    Raise click's BadParameter, which ends it with 64, where --limit names no host.
    """
    # Late, so that the commands' help needs none of it.
    from gpunode.fleet.ci.machines import MachinesError
    from gpunode.fleet.engine.address import EngineError
    from gpunode.fleet.engine.expected import PartError
    from gpunode.fleet.inventory import InventoryError
    from gpunode.fleet.limit import LimitError
    from gpunode.node.recorded import FactsError
    from gpunode.settings import SettingsError
    from gpunode.settings.set_option import OverrideError

    try:
        yield
    except (SettingsError, OverrideError, FactsError, PartError) as error:
        end_by(error, ExitCode.INPUT_REFUSED)
    except LimitError as error:
        refuse_limit(error)
    except (InventoryError, MachinesError, EngineError) as error:
        end_by(error, ExitCode.ERROR)
