"""What Ctrl-C, a lost terminal and a termination do to a command that changes nodes: it ends its child, and says so."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from gpunode.base.findings import ExitCode
from gpunode.cli.errors import INTERRUPTED, end


class Interrupted(SystemExit):
    """Unwind a command for a signal; gevent prints a traceback of KeyboardInterrupt, and none of this."""


@contextmanager
def interruptible(remedy: str) -> Iterator[None]:
    """Have a lost terminal and a termination do what Ctrl-C does; print the remedy then, and end with 1."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    # Whoever ignores one of them, by nohup say, wants the command to go on.
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, interrupt) for each in caught}
    try:
        yield
    except Interrupted:
        end(remedy, INTERRUPTED, ExitCode.ERROR)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
