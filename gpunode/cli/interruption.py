"""What ends a command without a result: Ctrl-C, a lost terminal, a termination, wrong usage, a crash.

The JSON document is printed within the command line, where click knows how the command prints; the text, and the exit
status, come from whatever has called it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from gpunode.base.errors import INTERRUPTED, Interrupted, in_words
from gpunode.base.findings import ExitCode
from gpunode.base.messages import Code, parted
from gpunode.base.terminal import say
from gpunode.cli.errors import CRASHED, USAGE, complain, end, say_error, say_usage
from gpunode.cli.output import has_output, is_terminal, take_mode_of_words

# Where a command had changed no node yet.
NOTHING_DONE = "interrupted: nothing was done"


@contextmanager
def caught(*signals: signal.Signals) -> Iterator[None]:
    """Have each of these signals raise Interrupted."""

    def interrupt(number: int, frame: object) -> None:
        _say_nothing_of_connections()
        if (hub := _hub_of_another_greenlet()) is None:
            raise Interrupted
        # Raised here it would end whoever is at work at this moment, the connection of one host say, and nothing else.
        hub.loop.run_callback(hub.parent.throw, Interrupted)

    # Whoever ignores one of them, by nohup say, wants the command to go on.
    heeded = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, interrupt) for each in heeded}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _say_nothing_of_connections() -> None:
    """Have Python not tell of connections that are left in the middle: nobody need hear of them any more.

    A file of one closes when nobody has it any more, and cannot where gevent's loop itself is at work.
    """
    before = sys.unraisablehook

    def told(left: Any) -> None:
        if left.exc_type.__name__ != "BlockingSwitchOutError":
            before(left)

    sys.unraisablehook = told


def _hub_of_another_greenlet() -> Any:
    """Return gevent's hub where another greenlet than the main one runs; None where the main one does, or no gevent."""
    greenlet, gevent = sys.modules.get("greenlet"), sys.modules.get("gevent")
    if greenlet is None or gevent is None or greenlet.getcurrent().parent is None:
        return None
    return gevent.get_hub()


@dataclass
class Interruption:
    """Hold what is said of an interruption, which whoever changes nodes says anew: what came of it, and what to do."""

    said: str = NOTHING_DONE


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Have a lost terminal and a termination do what Ctrl-C does; say then what was done, and end with 1."""
    interruption = Interruption()
    try:
        with caught(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            yield interruption
    except Interrupted:
        end_line()
        end(interruption.said, INTERRUPTED, ExitCode.ERROR)


def end_line() -> None:
    """End the line in which the terminal shows ^C, or a question stands that nobody has answered."""
    if is_terminal(sys.stderr):
        say("", err=True)


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
