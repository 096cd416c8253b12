"""The phases of a pyinfra run: operations announce what they read, are prepared for every host, and carried out then.

A deploy body runs once to announce; an operation of ours then goes as far as its first probe, and is not added to the
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyinfra.api import Host
from pyinfra.api.arguments import all_argument_meta
from pyinfra.context import ctx_host

from gpunode.base.probe import Announced
from gpunode.base.run_context import ANNOUNCING, Slot


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


def is_executing() -> bool:
    """Say whether the run's operations are carried out; else they are prepared."""
    current = ctx_host.get()
    return current is not None and current.state is not None and bool(current.state.is_executing)


_image = Slot(bool)


def begin_image() -> None:
    """Note that an image is made of this host, a root directory that no systemd has booted: nothing of it runs."""
    _image.set(ctx_host.get(), True)


def is_image() -> bool:
    """Say whether an image is made of this host: nothing is started or stopped, and there is no systemd to ask."""
    current = ctx_host.get()
    return current is not None and _image.of(current)


def is_unattended() -> bool:
    """Say whether the run shows no plan before it is carried out, and asks nobody (`pyinfra -y`)."""
    current = ctx_host.get()
    return current is not None and current.state is not None and not current.state.should_check_for_changes()
