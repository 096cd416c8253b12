"""A wave's run: pyinfra as a process of its own, on the wave's nodes alone, its output in files beside the journal."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import IO

from gpunode.fleet.rollout.gate import RunResult
from gpunode.fleet.rollout.journal import JournalError
from gpunode.fleet.rollout.place import name_holder, run_lock
from gpunode.fleet.rollout.progress import Wave
from gpunode.kubernetes.drain import WAVE

DEPLOY = "deploys/gpu_node.py"
# Seconds: between two looks at pyinfra, and from asking it to end to ending it.
_LOOK, _PATIENCE = 0.1, 10.0


class ProgramError(Exception):
    """Say what of pyinfra is missing, and what to do."""


def program() -> str:
    """Return the path of pyinfra: the one of gpunode's own environment, else the one on the PATH."""
    beside = Path(sys.executable).with_name("pyinfra")
    found = str(beside) if beside.is_file() else shutil.which("pyinfra")
    if found is None:
        raise ProgramError("there is no program pyinfra: run `make setup`, and gpunode from .venv/bin")
    if not Path(DEPLOY).is_file():
        raise ProgramError(f"there is no {DEPLOY} here: run gpunode rollout in the checkout")
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
    """Return the command line of a wave's run."""
    limits = [word for name in nodes for word in ("--limit", limit_pattern(name, groups))]
    return [pyinfra, "-y", "--json", *limits, inventory, DEPLOY]


@dataclass(frozen=True)
class WaveRunner:
    """Run waves of one inventory.

    folder: of the inventory's rollouts, where the lock is; files: where this rollout's logs go
    """

    pyinfra: str
    inventory: str
    groups: Collection[str]
    folder: Path
    files: Path
    tell: Callable[[str], None]

    def run(self, wave: Wave) -> RunResult:
        """Run the main job on the wave's nodes, to its end; raise JournalError where nothing can be written."""
        log, output = log_of(self.files, wave.number), self.files / f"wave-{wave.number}.json"
        words = command(self.pyinfra, self.inventory, wave.nodes, self.groups)
        with run_lock(self.folder, self.tell) as lock:
            try:
                with log.open("ab") as errors, output.open("wb") as printed:
                    errors.write(f"# {datetime.now(UTC).isoformat(timespec='seconds')} {shlex.join(words)}\n".encode())
                    errors.flush()
                    code = _code(words, printed, errors, lock, len(wave.nodes))
            except OSError as error:
                raise JournalError(f"{error.filename or self.pyinfra}: {error.strerror}") from None
        return result(wave.nodes, code, output.read_bytes(), str(log))


def log_of(files: Path, number: int) -> Path:
    """Return the file that gets what pyinfra logs of a wave."""
    return files / f"wave-{number}.log"


def _code(words: list[str], printed: IO[bytes], errors: IO[bytes], lock: int, nodes: int) -> int:
    # In a session of its own, so that Ctrl-C reaches the controller alone: pyinfra would exit 0 by it.
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=errors,
        pass_fds=(lock,),
        start_new_session=True,
        env={**os.environ, WAVE: str(nodes)},
    )
    try:
        name_holder(lock, process.pid)
        while process.poll() is None:
            time.sleep(_LOOK)
    except BaseException:
        _end(process)
        raise
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """End pyinfra; what it had begun on a node as a transaction goes on there, and the next run waits for it."""
    for number, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, _PATIENCE)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < until:
            time.sleep(_LOOK)


def result(nodes: Sequence[str], code: int, printed: bytes, log: str) -> RunResult:
    """Return on which of the wave's nodes the run failed, by pyinfra's exit code and JSON.

    pyinfra prints none where no host was left, or anything else ended it: then no node counts as done.
    """
    if code == 0:
        return RunResult()
    how = f"pyinfra was ended by signal {-code}" if code < 0 else f"pyinfra exited {code}"
    try:
        failed = frozenset(json.loads(printed)["results"]["failed_hosts"])
    except (ValueError, KeyError, TypeError):
        return RunResult(frozenset(nodes), f"the run failed, {how}: {log}")
    # It failed, and on none of ours that it would name.
    return RunResult(failed & set(nodes) or frozenset(nodes), f"the run failed on it: {log}")
