"""What is wrong with a command's input, as one message with its code, and an exit code; never as a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

import click

from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode
from gpunode.base.folding import fold_lines
from gpunode.base.messages import Code, command_caution, command_error, parted, with_code
from gpunode.base.terminal import printable, say
from gpunode.cli.output import error_columns, is_json, is_said, say_document, talk
from gpunode.cli.selection import told_of

NOT_WRITTEN = command_error(
    "report.not-written", "A report, a page or a manual page could not be written.",
    "The file is as it was before. The findings were printed, in JSON with this error among `errors`, and other "
    "reports were written.",
    remedy="correct the path, its permissions or the space on its file system, and run the command again",
)  # fmt: skip
NOT_READ = command_error(
    "file.unreadable", "A file that the command needs cannot be read or written.",
    remedy="correct the path or its permissions",
)  # fmt: skip
NO_FACTS = command_error(
    "facts.none", "A node gave no facts.",
    "It could not be reached, or its answer was not understood. The facts of the other nodes were printed.",
    remedy="correct what the message says of the node, and run the command again",
)  # fmt: skip
NOTHING_TO_CHANGE = command_error(
    "apply.nothing-to-change", "No node can be changed.",
    "Every node is refused or did not answer; the plan above the message has the reason of each. Nothing was done.",
    remedy="correct what the plan says of the nodes", exit="1 where a node did not answer, else 2",
)  # fmt: skip
UNKNOWN_CODE = command_error(
    "explain.unknown", "No message has this code.",
    remedy="`gpunode explain` lists all codes", exit="64",
)  # fmt: skip
NO_CLUSTER = command_error(
    "cluster.none", "The settings bring the GPUs of no host into a cluster.",
    remedy="set kubernetes.enabled = True and device_plugin.method for the hosts that are the cluster's nodes",
    exit="2",
)  # fmt: skip
RUNTIME_REFUSED = command_error(
    "runtime.refused", "A container runtime's file is not edited.",
    "It cannot be parsed, an edit would lose part of it, or the runtime's version is not supported.",
    remedy="correct it by hand as the message says, or move it away", exit="3",
)  # fmt: skip
ALREADY_THERE = command_error(
    "init.already-there", "A file to be written exists already.",
    "gpunode init never overwrites a file. Nothing was written.",
    remedy="name another folder or inventory", exit="3",
)  # fmt: skip
NOT_MADE = command_error(
    "init.not-written", "A file could not be written, and no part of it was left.",
    remedy="correct the path or its permissions, and run the command again",
)  # fmt: skip
CRASHED = command_error(
    "gpunode.crashed", "gpunode met an error that it did not expect.",
    "This is a defect of gpunode. It says nothing about the nodes.",
    remedy="run the command again with GPUNODE_DEBUG=1, and report its output",
)  # fmt: skip
USAGE = command_error(
    "gpunode.usage", "The command line is wrong.",
    "An argument or option is missing, unknown or has a wrong value. Nothing was done.",
    remedy="see the command's --help", exit="64",
)  # fmt: skip
BUNDLES_NOT_WRITTEN = command_error(
    "agent.not-written", "Bundles could not be written.",
    "The folder, or a file in it, cannot be written. Existing files stay.",
    remedy="name another folder, or make it writable",
)  # fmt: skip
USER_DATA_LARGE = command_caution(
    "agent.user-data-large", "The user data for new machines are larger than a cloud accepts.",
    "EC2 accepts 16 KiB after compression (--gzip); other clouds have their own limits. The data were printed.",
    remedy="leave --ca out where the machines trust the server anyway, or shorten that file",
)  # fmt: skip


NUMBER_AHEAD = command_caution(
    "agent.number-ahead", "A bundle has a number far ahead of the time.",
    "A node that applies it refuses every bundle with a smaller number, and so those made without --number, whose "
    "number is the time in seconds. The bundles were written.",
    remedy="if the number is wrong, make bundles without --number and with --withdraw NUMBER",
)  # fmt: skip


def say_error(message: str, code: Code, status: ExitCode, **more: Any) -> None:
    """Print the document of an error, where JSON is asked for and no document is printed yet.

    code: what `gpunode explain` knows it by; more: what the document says besides
    """
    from gpunode.base.document import ERROR_SCHEMA, head

    if is_json() and not is_said():
        say_document({**head(ERROR_SCHEMA, {}, status, told_of()), "error": message, "code": code, **more})


def complain(text: str, code: Code | None = None) -> None:
    """Tell a person what is wrong, with the code at its end, folded to the terminal that standard error is.

    code: None where the text has its own
    """
    said = text if code is None else with_code(text, code)
    say(fold_lines(printable(said), error_columns()), err=True)


def say_usage(error: click.UsageError) -> None:
    """Tell what is wrong with the command line as click does, with the code at its end, and folded."""
    # The list of what is allowed, which click parts by lines.
    said = " ".join(error.format_message().split())
    said = f"Error: {said if parted(said)[1] else with_code(said, USAGE)}"
    # In the command's own mode, which ends with its context.
    with error.ctx.scope(cleanup=False) if error.ctx is not None else nullcontext():
        folded = fold_lines(printable(said), error_columns())
        click.UsageError(folded.removeprefix("Error: "), error.ctx).show()


def end(text: str, code: Code, status: ExitCode, **more: Any) -> NoReturn:
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
    from gpunode.fleet.engine.parts import EngineError, PartError
    from gpunode.fleet.inventory import LimitError
    from gpunode.fleet.inventory_files import InventoryError
    from gpunode.node.recorded import FactsError
    from gpunode.settings import SettingsError
    from gpunode.settings.layers import OverrideError

    try:
        yield
        say_cautions()
    except (SettingsError, OverrideError, FactsError, PartError) as error:
        end_by(error, ExitCode.INPUT_REFUSED)
    except LimitError as error:
        refuse_limit(error)
    except InventoryError as error:
        end_by(error, error.status)
    except (MachinesError, EngineError) as error:
        end_by(error, ExitCode.ERROR)


def say_cautions() -> None:
    """Print each new caution about the inventory's files to standard error."""
    from gpunode.fleet.inventory import new_cautions

    for caution in new_cautions():
        talk(f"caution: {caution}", err=True)
