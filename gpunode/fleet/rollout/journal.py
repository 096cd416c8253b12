"""A rollout's journal: what was begun and what became of it, on disk before and after each wave; where it is kept.

It only grows, by whole lines, each flushed to the disk before anything is done that rests on it. A last line without
its end was cut while it was written, and counts as never written: then a wave is repeated, which changes nothing twice.

.rollout/prod-1f2e3d4c/lock                          held by the controller: one rollout of an inventory runs at a time
.rollout/prod-1f2e3d4c/20261122T030405Z/journal      one folder for each rollout
.rollout/prod-1f2e3d4c/20261122T030405Z/wave-1.log
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gpunode.base.errors import CodedError
from gpunode.base.folding import in_one_line
from gpunode.base.messages import command_error
from gpunode.fleet.call import Call
from gpunode.fleet.engine.parts import expected
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
            _flush(self.path.parent)


def _flush(folder: Path) -> None:
    """Have a new name in a folder outlive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


ROOT = Path(".rollout")


class LockedError(CodedError):
    """Say who holds a lock, and what to do."""

    code = command_error(
        "rollout.at-work", "Another rollout of the same inventory is running.",
        "Two at once would disturb more nodes than the settings allow. The message has its process.",
        remedy="wait until it ends, or end it with Ctrl-C",
    )  # fmt: skip


def place(inventory: str, root: Path = ROOT) -> Path:
    """Return the folder of an inventory's rollouts, the same by whatever path the inventory is named."""
    path = Path(inventory)
    whole = str(path.resolve()) if path.exists() else inventory
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)[:40]
    return root / f"{stem}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def latest(folder: Path) -> Journal | None:
    """Return the journal of an inventory's newest rollout, None where there never was one; raise JournalError."""
    newest = max((path for path in folder.glob("*/") if path.is_dir()), default=None)
    journal = Journal(newest / "journal") if newest is not None else None
    # A rollout that was killed before its first entry was on the disk did not touch anything.
    return journal if journal is not None and journal.progress is not None else None


def begin(folder: Path) -> Journal:
    """Return the empty journal of a new rollout, newer than all others; raise JournalError."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    # Two within one second, and a clock that was put back.
    newest = max((path.name for path in folder.glob("*/")), default="")
    mine = folder / (stamp if stamp > newest else f"{newest}-1")
    try:
        mine.mkdir(mode=0o700)
        _flush(folder)
    except OSError as error:
        raise JournalError(f"{mine} cannot be made: {error.strerror}") from None
    return Journal(mine / "journal")


@contextmanager
def controller_lock(folder: Path, inventory: str) -> Iterator[None]:
    """Hold the lock of an inventory's rollouts; raise LockedError where another rollout of it is at work."""
    path = folder / "lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_foreign(folder)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unopened(path, error) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"another rollout of {inventory} is at work {_holder(descriptor)}: wait until it has ended, "
                "or end it with Ctrl-C"
            ) from None
        os.ftruncate(descriptor, 0)
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        os.pwrite(descriptor, f"{os.getpid()}\n{now}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def refuse_beside_rollout(folder: Path, inventory: str) -> None:
    """Raise LockedError where a rollout of the inventory is at work, JournalError where that cannot be told."""
    if expected() is not None:
        # Whoever gave out this part has looked.
        return
    path = folder / "lock"
    try:
        _refuse_foreign(folder)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unopened(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        from gpunode.fleet.rollout.opening import resumption

        last, call = latest(folder), Call(inventory)
        again = resumption(call, last.known.begun) if last else call.of("rollout", "--resume")
        raise LockedError(
            f"a rollout of {inventory} is at work {_holder(descriptor)}, and says how many nodes may be unavailable at "
            "once: a run on all of them beside it is refused. Wait until it has ended, or end it with Ctrl-C, run, and "
            f"go on with it by `{again}`"
        ) from None
    finally:
        os.close(descriptor)


def _refuse_foreign(folder: Path) -> None:
    """Raise JournalError where another user may write in a folder of rollouts, and so forge its lock and journals."""
    for each in (folder.parent, folder):
        found = each.stat()
        # In a checkout of another user everything is that user's, the inventory too.
        if found.st_uid not in (0, os.geteuid(), Path().stat().st_uid) or found.st_mode & stat.S_IWOTH:
            who = f"{each} is of user {found.st_uid} and mode {found.st_mode & 0o7777:o}: others may write in it"
            raise JournalError(f"{who}; run gpunode in a folder of your own, or remove {each} with its journals")


def _unopened(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"{path} cannot be opened: {error.strerror}; whoever runs gpunode here has to be able to write in {path.parent}"
    )


def _holder(descriptor: int) -> str:
    """Return which process holds a lock, since when; as far as that is written yet."""
    process, since, *_ = [*os.pread(descriptor, 4096, 0).decode(errors="replace").split("\n"), "", ""]
    return f"(process {process or 'unknown'})" + (f" since {since}" if since else "")
