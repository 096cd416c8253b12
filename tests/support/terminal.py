"""A program at a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.one_document import CHECKOUT

SECONDS = 120


def gpunode(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "from gpunode.cli import main; main()", *words)


def _at_its_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A job in the background has ignored the one, and nohup the other.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """Run a program at a terminal, with standard output in a file beside it where one is named."""

    def __init__(
        self, folder: Path, *words: str, printed: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.shown, self._printed = b"", printed
        self._terminal, theirs = pty.openpty()
        path = f"{folder}/bin:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "GPUNODE_OUTPUT")}
        with (printed or Path(os.devnull)).open("wb") as output:
            self.process = subprocess.Popen(
                words, cwd=folder, preexec_fn=_at_its_terminal,
                env={**kept, "PYTHONPATH": str(CHECKOUT), "PATH": path, **(environment or {})},
                stdin=theirs, stdout=output if printed else theirs, stderr=theirs,
            )  # fmt: skip
        os.close(theirs)

    def wait(self, seen: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not seen():
            assert time.monotonic() < end and self._read(), self.shown
        # A signal that comes right before Python begins to read is heeded with the next key.
        time.sleep(1)

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def read(self, until: Callable[[bytes], bool], seconds: float) -> bytes:
        """Return what is shown from now on until it is as awaited, or that time has passed."""
        start, end = len(self.shown), time.monotonic() + seconds
        while not until(self.shown[start:]) and time.monotonic() < end:
            self._read()
        return self.shown[start:]

    def end(self) -> tuple[int, str, str]:
        """Return exit status, what stands in the file, and what was shown."""
        end = time.monotonic() + SECONDS
        while self.process.poll() is None or select.select([self._terminal], [], [], 0)[0]:
            if not self._read():
                break
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(self.shown)
        os.close(self._terminal)
        printed = self._printed.read_text() if self._printed else ""
        return self.process.wait(timeout=SECONDS), printed, self.shown.decode().replace("\r\n", "\n")

    def _read(self) -> bool:
        """Read what is shown by now, if anything; return whether more may come."""
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return True
        try:
            more = os.read(self._terminal, 65536)
        except OSError:
            # Linux says so at the end of a terminal.
            return False
        self.shown += more
        return bool(more)
