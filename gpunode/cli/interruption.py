"""What Ctrl-C, a lost terminal and a termination do to a command: it ends its child, and says so."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpunode.base.errors import INTERRUPTED, Interrupted
from gpunode.base.findings import ExitCode
from gpunode.base.terminal import say
from gpunode.cli.errors import end
from gpunode.cli.output import is_terminal

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
