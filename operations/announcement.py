"""What the operations of a run are going to ask their nodes, known before the first of them asks.

A deploy body runs once to announce and once in earnest; while it announces, an operation of ours goes as far as its
first probe and is neither added to the run nor asked to change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyinfra.api import Host
from pyinfra.api.arguments import all_argument_meta

from gpunode.base.probe import Announced
from gpunode.base.run_context import ANNOUNCING


@contextmanager
def announcing(host: Host) -> Iterator[None]:
    """Let operations announce their probes instead of being added.

    A deploy body that reads a fact itself ends there: what it would do next may depend on the answer.
    """
    ANNOUNCING.set(host, True)
    try:
        yield
    except Announced:
        pass
    finally:
        ANNOUNCING.set(host, False)


def is_announcing(host: Host | None) -> bool:
    """Say whether operations on this host only announce."""
    return host is not None and ANNOUNCING.of(host)


def announced(function: Callable[..., Iterator[Any]], *args: Any, **kwargs: Any) -> None:
    """Run an operation's own function up to its first probe or command, whichever comes first."""
    own = {key: value for key, value in kwargs.items() if key not in all_argument_meta}
    # What is wrong with it is said when it is prepared in earnest.
    with suppress(Announced, Exception):
        next(function(*args, **own), None)
