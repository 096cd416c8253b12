"""Where the lab keeps what is expensive to make again: base images and package repositories."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder, made if it is absent: $XDG_CACHE_HOME/gpunode, else ~/.cache/gpunode.

    Everything in it can be made again, so it may be deleted at any time.
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative values ignored.
    base = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    folder = base / "gpunode"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (made if absent), waiting for whoever holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
