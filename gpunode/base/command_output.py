"""What a command prints, read within limits while it arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import gevent  # type: ignore[import-untyped]
from paramiko import SSHException
from pyinfra.api.output import format_text
from pyinfra.connectors import util
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.probe_output import ANSWER_SIZE, too_large


class OutputLimit(NamedTuple):
    """How much a command may print; keeps_newest: drop the oldest lines above `size` instead of failing.

    size: characters of standard output and standard error together; a line counts as `LEAST` at least
    """

    size: int
    keeps_newest: bool = False


# An empty line takes 200 bytes of memory.
LEAST = 64
_PART_SIZE = 8 << 10
ANSWER = OutputLimit(ANSWER_SIZE)
# A change that printed much is not broken off: what it prints last says why it failed. apt, dnf and NVIDIA's installer
# print below 1 MiB.
CHANGE = OutputLimit(ANSWER_SIZE, keeps_newest=True)
# `kubectl get --output json`: a node takes about 20 kB, a pod 10 kB.
CLUSTER = OutputLimit(128 << 20)
_limit: ContextVar[OutputLimit] = ContextVar("output_limit", default=ANSWER)


class TooLarge(SSHException):
    """A command printed more than its limit allows."""


@contextmanager
def output_limit(limit: OutputLimit) -> Iterator[None]:
    """Apply a limit to the commands that this greenlet runs."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


class _Lines(deque[OutputLine]):
    """The lines of one command; takes the place of the queue into which pyinfra's two readers write."""

    def __init__(self, limit: OutputLimit) -> None:
        super().__init__()
        self._limit, self._left, self.is_too_large = limit, limit.size, False

    def put(self, line: OutputLine) -> None:
        """Add a line; end the reading greenlet where it goes beyond the limit."""
        self.append(line)
        self._left -= max(len(line.line), LEAST)
        while self._left < 0:
            if not self._limit.keeps_newest:
                self.is_too_large = True
                raise gevent.GreenletExit
            self._left += max(len(self.popleft().line), LEAST)


def _whole_lines(buffer: Any, size: int) -> Iterator[bytes]:
    """Yield the lines of a stream; of a line above `size`, parts that are larger than that."""
    if hasattr(buffer, "FLAG_BINARY"):
        # paramiko would decode each part by itself.
        buffer._flags |= buffer.FLAG_BINARY
    line, length = [], 0
    # What paramiko keeps of a longer part is copied for each line.
    while part := buffer.readline(_PART_SIZE):
        line.append(part)
        length += len(part)
        if part.endswith(b"\n") or length > size:
            yield b"".join(line)
            line, length = [], 0
    if line:
        yield b"".join(line)


def read_output(
    stdout: Any, stderr: Any, timeout: int | None, print_output: bool = False, print_prefix: str = ""
) -> CommandOutput:
    """Return what a command printed, as pyinfra's `read_output_buffers` does; raise TooLarge, TimeoutError."""
    limit = _limit.get()
    lines = _Lines(limit)

    def reader(name: str, buffer: Any, shown: Callable[[str], str]) -> gevent.Greenlet:
        whole = _whole_lines(buffer, limit.size)
        return gevent.spawn(util.read_buffer, name, whole, lines, print_output, lambda line: print_prefix + shown(line))

    readers = [reader("stdout", stdout, str), reader("stderr", stderr, lambda line: format_text(line, "red"))]
    ended = 0
    try:
        for _ in gevent.iwait(readers, timeout):
            if lines.is_too_large:
                raise TooLarge(too_large(limit.size))
            ended += 1
    finally:
        if ended < len(readers):
            gevent.killall(readers, timeout=1)
    if ended < len(readers):
        raise TimeoutError
    return CommandOutput(list(lines))
