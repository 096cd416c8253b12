"""pyinfra's command line, which patches this process's sockets for gevent; import it before anything opens one.

gevent asks 25 times on the way which plugins are installed, and each time the files of every installed package are
read: 0.1 s of about one. Once is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any


@contextmanager
def _looked_up_once() -> Iterator[None]:
    asked = metadata.entry_points
    every = asked()

    def known(**chosen: Any) -> Any:
        return every.select(**chosen) if chosen else every

    metadata.entry_points = known
    try:
        yield
    finally:
        metadata.entry_points = asked


with _looked_up_once():
    import pyinfra_cli

__all__ = ["pyinfra_cli"]
