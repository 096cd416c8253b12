"""A rollout's journal: what was begun and what became of it, on disk before and after each wave.

It only grows, by whole lines, each flushed to the disk before anything is done that rests on it. A last line without
its end was cut while it was written, and counts as never written: then a wave is repeated, which changes nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gpunode.base.errors import CodedError
from gpunode.base.folding import in_one_line
from gpunode.base.messages import command_error
from gpunode.fleet.rollout.entries import Begun, Ended, Resumed, WaveBegun, WaveEnded, read_entry
from gpunode.fleet.rollout.progress import OutOfOrder, Progress


class JournalError(CodedError):
    """Say which journal cannot be read or written, where, and what to do."""

    code = command_error(
        "rollout.journal", "The rollout's journal is missing, unfinished, or cannot be read or written.",
        "A rollout records each wave in its journal before the wave begins. Without the journal it is not known which "
        "nodes are done.",
        remedy="go on with --resume, or start a new rollout with --anew, as the message says",
    )  # fmt: skip


def fold(lines: Iterable[bytes]) -> Progress | None:
    """Return how far the journal with these whole lines is; None where there is none; raise JournalError."""
    progress: Progress | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry = read_entry(line)
            if progress is not None:
                progress = progress.after(entry)
            elif isinstance(entry, Begun):
                progress = Progress(entry)
            else:
                raise OutOfOrder("the journal does not begin with a rollout")
        except ValueError as error:
            raise JournalError(f"line {number} is not to be understood: {in_one_line(error)}") from None
    return progress


class Journal:
    """Hold an open journal: its progress, and the file that it is appended to."""

    def __init__(self, path: Path) -> None:
        """Read the journal at `path`, which may be missing; raise JournalError."""
        self.path = path
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise JournalError(f"{path} cannot be read: {error.strerror}") from None
        *lines, torn = content.split(b"\n")
        self._whole = len(content) - len(torn)
        try:
            self.progress = fold(lines)
        except JournalError as error:
            raise JournalError(f"{path}: {error}. Begin another rollout with --anew") from None

    @property
    def known(self) -> Progress:
        """Return the progress of a rollout that was begun; raise JournalError where none was."""
        if self.progress is None:
            raise JournalError(f"{self.path}: there is no rollout to go on with")
        return self.progress

    def append(self, entry: Begun | WaveBegun | WaveEnded | Ended | Resumed) -> Progress:
        """Write one entry, to the disk, and return the progress after it; raise JournalError."""
        if self.progress is None:
            progress = Progress(entry) if isinstance(entry, Begun) else self.known
        else:
            progress = self.progress.after(entry)
        try:
            self._write(entry.model_dump_json().encode() + b"\n")
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from None
        self.progress = progress
        return progress

    def _write(self, line: bytes) -> None:
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # What an earlier writer left of a line goes.
            os.ftruncate(descriptor, self._whole)
            os.lseek(descriptor, self._whole, os.SEEK_SET)
            left = memoryview(line)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._whole += len(line)
        if new:
            flush_folder(self.path.parent)


def flush_folder(folder: Path) -> None:
    """Have a new name in a folder outlive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
