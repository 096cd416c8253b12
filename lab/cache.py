"""Where the lab keeps what is expensive to make again: base images and package repositories."""

from __future__ import annotations

import fcntl
import os
import shutil
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


@contextmanager
def complete_or_nothing(path: Path) -> Iterator[Path]:
    """Give an empty folder that becomes `path` where the block ends well, and is removed where it does not."""
    partial = path.with_name(f"{path.name}.partial")
    partial.mkdir()
    partial.chmod(0o755)
    try:
        yield partial
    except BaseException:
        remove(partial)
        raise
    partial.rename(path)


def link(source: Path, target: Path) -> None:
    """Make a hard link of a file, or a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def mark_used(*folders: Path) -> None:
    """Note that the folders are in use today."""
    for folder in folders:
        if folder.is_dir():
            os.utime(folder)


def remove_partial(folder: Path) -> None:
    """Remove what interrupted builds left in a folder; the caller holds its lock, so whoever left them is gone."""
    for path in folder.glob("*.partial"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a folder of the cache."""
    # A sibling name first: a removal that is interrupted must not leave half an image under its good name.
    doomed = path if path.name.endswith(".partial") else path.rename(path.with_name(f"{path.name}.partial"))
    shutil.rmtree(doomed)
