"""What a command line says that comes to no result: wrong usage, an interruption, a crash.

The JSON document is printed within the command line, where click knows how the command prints; the text, and the exit
status, come from whoever has called it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from gpunode.base.errors import INTERRUPTED, in_words
from gpunode.base.findings import ExitCode
from gpunode.base.messages import Code, parted
from gpunode.cli.errors import CRASHED, USAGE, complain, say_error, say_usage
from gpunode.cli.interruption import caught, end_line
from gpunode.cli.output import has_output, take_mode_of_words

_INTERRUPTED = "interrupted"


@contextmanager
def documented(context: click.Context, words: Sequence[str]) -> Iterator[None]:
    """Print the document of what ends the command line, where JSON is asked for; that is raised all the same.

    words: the command line's, for click knows of no option where it could not read them
    """
    try:
        yield
    except click.exceptions.Exit:
        # Help or the version was asked for.
        raise
    except click.UsageError as error:
        if not _is_help(error) and (error.ctx is None or has_output(error.ctx.command)):
            take_mode_of_words(context, words)
            say_error(*_usage(error), ExitCode.USAGE)
        raise
    except (click.Abort, KeyboardInterrupt, EOFError):
        say_error(_INTERRUPTED, INTERRUPTED, ExitCode.ERROR)
        raise
    except Exception as error:
        say_error(_crash(error), CRASHED, ExitCode.ERROR)
        raise


@contextmanager
def ended() -> Iterator[None]:
    """End the program with a message and an exit code where the command line comes to no result."""
    try:
        # A job that takes too long is ended by the second, and a closed window by the third.
        with caught(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            yield
    except click.UsageError as error:
        if _is_help(error):
            error.show()
        else:
            say_usage(error)
        sys.exit(ExitCode.USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt, EOFError) as error:
        # Of what click itself makes an Abort, it has ended the line.
        if error.__cause__ is None:
            end_line()
        complain(_INTERRUPTED, INTERRUPTED)
        sys.exit(ExitCode.ERROR)
    except Exception as error:
        complain(_crash(error), CRASHED)
        if os.environ.get("GPUNODE_DEBUG"):
            raise
        sys.exit(ExitCode.ERROR)


def _is_help(error: click.UsageError) -> bool:
    """Say whether it is the help of a group that was given no command; click before 8.2 printed that as a result."""
    return isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))


def _usage(error: click.UsageError) -> tuple[str, Code]:
    """Return what is wrong with the command line, and its code."""
    # In one line, as complain() writes it: click separates the allowed values by lines.
    text, code = parted(" ".join(error.format_message().split()))
    return text, Code(code) if code else USAGE


def _crash(error: Exception) -> str:
    return f"error: {in_words(error)}; GPUNODE_DEBUG=1 shows where"
