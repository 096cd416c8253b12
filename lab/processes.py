"""Programs that outlive the command that starts them, known by process id and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpunode.lab.errors import LabError
from gpunode.lab.state import read_json, write_json

_PATIENCE_S = 10.0
# Of the words of /proc/PID/stat behind the program's name: its state, and when it started.
_STATE, _STARTED = 0, 19


def start(folder: Path, name: str, words: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Start a program in `folder`, its words to NAME.log there; one that runs is kept. Raise LabError."""
    if runs(folder, name):
        return
    with (folder / f"{name}.log").open("ab") as log:
        try:
            process = subprocess.Popen(
                words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, env=None if environment is None else {**os.environ, **environment},
            )  # fmt: skip
        except OSError as error:
            raise LabError(f"{name} cannot be started: {words[0]}: {error.strerror}") from error
    write_json(_note(folder, name), {"pid": process.pid, "started": _started(process.pid)})


def runs(folder: Path, name: str) -> bool:
    """Say whether the program runs."""
    return _process(folder, name) is not None


def stop(folder: Path, name: str) -> bool:
    """End the program, and return whether it ran; by force where it does not end by itself."""
    process = _process(folder, name)
    if process is None:
        return False
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(process, sent)
        deadline = time.monotonic() + _PATIENCE_S
        while runs(folder, name) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not runs(folder, name):
            break
    else:
        raise LabError(f"{name} (process {process}) does not end")
    _note(folder, name).unlink(missing_ok=True)
    return True


def last_words(folder: Path, name: str) -> str:
    """Return the end of what the program said."""
    path = folder / f"{name}.log"
    last = path.read_text(encoding="utf-8", errors="replace").splitlines()[-6:] if path.exists() else []
    return f"{name} said (all of it in {path}):\n" + "\n".join(line[:300] for line in last)


def _note(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def _process(folder: Path, name: str) -> int | None:
    """Return the process id while the program runs; a number that another one has got since is none."""
    noted = read_json(_note(folder, name))
    process = noted.get("pid")
    if not isinstance(process, int) or noted.get("started") is None:
        return None
    return process if _started(process) == noted["started"] else None


def _started(process: int) -> int | None:
    """Return when the process started, in the kernel's ticks since the boot; None where it is gone, or a zombie."""
    with suppress(OSError, ValueError, IndexError):
        # The name before the last parenthesis may hold anything.
        words = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if words[_STATE] in "ZX" else int(words[_STARTED])
    return None
