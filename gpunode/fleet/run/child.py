"""Run pyinfra as a process of its own, and follow what it tells of itself; its log goes to a file."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

from gpunode.base import parent_watch
from gpunode.base.errors import CodedError, in_words
from gpunode.base.messages import command_error
from gpunode.base.run_context import RUN_NAME
from gpunode.fleet.call import set_words
from gpunode.fleet.run.events import EVENTS, read
from gpunode.fleet.run.progress import Progress, after
from gpunode.settings import overrides

DEPLOY = "deploys/gpu_node.py"
# Seconds: between two looks at pyinfra, and from asking it to end to ending it.
_LOOK, _PATIENCE = 0.1, 10.0

# Called with how far the run is: after each event, and from time to time in between.
Watch = Callable[[Progress], None]


class ProgramError(CodedError):
    """Say what of pyinfra is missing, and what to do."""

    code = command_error(
        "run.no-program", "pyinfra, or deploys/gpu_node.py in the current folder, is missing.",
        "gpunode runs pyinfra with the main deploy of the repository in which it is called.",
        remedy="run gpunode in the checkout, or in a folder that `gpunode init` wrote",
    )  # fmt: skip


def unwatched(progress: Progress) -> None:
    """Show nobody how far the run is."""


@dataclass(frozen=True)
class Files:
    """Hold the files of one run: what pyinfra logs, what it prints (JSON), and what it tells while it is at work."""

    log: Path
    output: Path
    events: Path


def program() -> str:
    """Return the path of pyinfra: the one of gpunode's own environment, else the one on the PATH."""
    beside = Path(sys.executable).with_name("pyinfra")
    found = str(beside) if beside.is_file() else shutil.which("pyinfra")
    if found is None:
        raise ProgramError("there is no program pyinfra: run `make setup`, and gpunode from .venv/bin")
    if not Path(DEPLOY).is_file():
        raise ProgramError(f"there is no {DEPLOY} here: run gpunode in the checkout, or in what `gpunode init` wrote")
    return found


def limit_pattern(name: str, groups: Collection[str]) -> str:
    """Return what pyinfra's --limit takes for this host alone.

    It takes a group of that name first, and else a pattern of fnmatch's.
    """
    if name not in groups:
        return escape(name)
    # The same name as a pattern, which is no group's.
    at = next(index for index, letter in enumerate(name) if letter.isalnum())
    return f"{escape(name[:at])}[{name[at]}]{escape(name[at + 1 :])}"


def command(pyinfra: str, inventory: str, nodes: Sequence[str], groups: Collection[str]) -> list[str]:
    """Return the command line of a run on these nodes alone."""
    limits = [word for name in nodes for word in ("--limit", limit_pattern(name, groups))]
    return [pyinfra, "-y", "--json", *limits, inventory, DEPLOY]


def run(
    words: Sequence[str], files: Files, name: str, hosts: int, environment: Mapping[str, str], watch: Watch = unwatched
) -> tuple[int, Progress]:
    """Run pyinfra to its end; return its exit status, negative for a signal, and all that it told.

    It ends with this process, however that ends.
    name: what a node's lock names the run by; hosts: how many it is run on; environment: with this process's own;
    watch: not called any more once it raised an Exception. Raise OSError where a file cannot be written.
    """
    with files.log.open("ab") as errors, files.output.open("wb") as printed:
        errors.write(f"# {datetime.now(UTC).isoformat(timespec='seconds')} {shlex.join(words)}\n".encode())
        if settings := overrides.shown():
            errors.write(f"# with {shlex.join(set_words(settings))}\n".encode())
        errors.flush()
        # Of this run alone: a wave that is taken again has its files already.
        files.events.write_bytes(b"")
        # In a session of its own, so that Ctrl-C reaches the controller alone: pyinfra would exit 0 by it.
        process = subprocess.Popen(
            parent_watch.bound(words),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, **environment, RUN_NAME: name, EVENTS: str(files.events.resolve())},
        )
        with ended_with_us(process, os.killpg):
            return _followed(process, files.events, Progress(hosts), _while_it_shows(watch, errors.fileno()))


def _followed(process: subprocess.Popen[bytes], events: Path, progress: Progress, watch: Watch) -> tuple[int, Progress]:
    with events.open("rb") as told:
        rest = b""
        while True:
            # Asked first: what it told before it ended is read behind that.
            code = process.poll()
            found, rest = read(told, rest)
            for event in found:
                progress = after(progress, event)
                watch(progress)
            if code is not None:
                return code, progress
            watch(progress)
            time.sleep(_LOOK)


def _while_it_shows(watch: Watch, log: int) -> Watch:
    """Return what shows how far a run is, until that fails: nodes are in the middle of a step, whatever becomes of it.

    log: a descriptor of pyinfra's log, which then says so
    """
    shows = watch

    def shown(progress: Progress) -> None:
        nonlocal shows
        try:
            shows(progress)
        except Exception as error:
            # A signal's SystemExit is none, and ends the run.
            shows = unwatched
            said = f"# gpunode cannot show any more how far the run is: {in_words(error)}\n"
            with suppress(OSError):
                os.write(log, said.encode(errors="replace"))

    return shown


@contextmanager
def ended_with_us(process: subprocess.Popen[Any], tell: Callable[[int, int], None] = os.kill) -> Iterator[None]:
    """Have pyinfra end where an exception, an interruption say, leaves this: nobody tells any more how it goes on.

    What it had begun on a node as a transaction goes on there, and the next run waits for it. tell: sends a signal to
    the process, or to the group that it leads
    """
    try:
        yield
    except BaseException:
        _end(process, tell)
        raise


def _end(process: subprocess.Popen[Any], tell: Callable[[int, int], None]) -> None:
    for number, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, _PATIENCE)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            tell(process.pid, number)
        until = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < until:
            time.sleep(_LOOK)


def last_lines(log: Path, most: int = 20) -> str:
    """Return the last lines of a log, for whoever has to know why there is nothing else to tell."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-most:])
    except OSError as error:
        return f"{log}: {error.strerror}"


ROOT = Path(".apply")


def begin(folder: Path) -> Files:
    """Return the files of a run that begins now, in a new folder of its own; raise OSError where that cannot be made.

    folder: of the inventory, see gpunode.fleet.rollout.journal
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    mine, number = folder / stamp, 1
    # Settings of a run may be secret: they are nobody's else to read.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        try:
            mine.mkdir(mode=0o700)
        except FileExistsError:
            # Two within one second.
            mine, number = folder / f"{stamp}-{number}", number + 1
            continue
        return Files(mine / "run.log", mine / "run.json", mine / "run.events")
