"""pyinfra with its command line, imported for less; import this before pyinfra, and before anything opens a socket.

pyinfra_cli patches this process for gevent. It then searches all objects that there are for locks, so that little
should have been imported by then. Two things on the way cost more than they are worth:

- gevent and pyinfra ask some 30 times which plugins are installed, and each time the files of every installed package
  are read: 0.1 s of about one. Once is enough, for as long as the process lives.
- paramiko imports invoke, 45 modules, to run what `Match exec` names in an ssh_config, and goes without where it is
  not installed. pyinfra puts its own in that place (pyinfra/connectors/sshuserclient/config.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from typing import Any

from gpunode.base.importing import uncollected


@contextmanager
def _looked_up_once() -> Iterator[None]:
    desired = metadata.entry_points
    every = cache(desired)

    def known(**chosen: Any) -> Any:
        return every().select(**chosen) if chosen else every()

    metadata.entry_points = known
    try:
        yield
    finally:
        metadata.entry_points = desired


@contextmanager
def _left_out(name: str) -> Iterator[None]:
    """Have a module not found meanwhile, as where it is not installed; one that is there already stays."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with uncollected(), _looked_up_once(), _left_out("invoke"):
    import pyinfra_cli  # isort: split

    # Now: the one keeps what was looked up, the other puts its own where paramiko has found no invoke.
    import pyinfra.api.connectors
    import pyinfra.connectors.sshuserclient  # noqa: F401

__all__ = ["pyinfra_cli"]
