"""What a command prints, read within limits while it arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import gevent  # type: ignore[import-untyped]
from paramiko import SSHException
from pyinfra.api.output import format_text
from pyinfra.connectors import util
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.probe_output import ANSWER_SIZE, too_large

# Of `kubectl get --output json`: a node takes about 20 kB, a pod 10 kB.
CLUSTER_SIZE = 128 << 20
# What a line counts for at least: an empty one takes 200 bytes of memory.
_LINE_SIZE, _PART_SIZE = 64, 8 << 10
# Characters of standard output and standard error together; whether the newest lines are kept instead of failing.
_limit: ContextVar[tuple[int, bool]] = ContextVar("output_limit", default=(ANSWER_SIZE, False))


class TooLarge(SSHException):
    """A command printed more than its limit allows."""


@contextmanager
def output_limit(size: int, keeps_newest: bool = False) -> Iterator[None]:
    """Limit what the commands print that this greenlet runs."""
    token = _limit.set((size, keeps_newest))
    try:
        yield
    finally:
        _limit.reset(token)


def read_output(
    stdout: Any, stderr: Any, timeout: int | None, print_output: bool = False, print_prefix: str = ""
) -> CommandOutput:
    """Return what a command printed, as pyinfra's `read_output_buffers` does; raise TooLarge, TimeoutError."""
    (left, keeps_newest), lines = _limit.get(), deque[OutputLine]()
    size = left

    def read(name: str, buffer: Any) -> None:
        nonlocal left
        if hasattr(buffer, "FLAG_BINARY"):
            # paramiko would decode each part by itself.
            buffer._flags |= buffer.FLAG_BINARY
        line = bytearray()
        # paramiko copies what it holds for each line: parts are small.
        while (part := buffer.readline(_PART_SIZE)) or line:
            line += part
            if part and part[-1:] != b"\n" and len(line) <= size:
                continue
            lines.append(OutputLine(name, line.decode().rstrip("\n")))
            left -= max(len(line), _LINE_SIZE)
            while left < 0:
                if not keeps_newest:
                    raise gevent.GreenletExit
                left += max(len(lines.popleft().line), _LINE_SIZE)
            if print_output:
                text = lines[-1].line if name == "stdout" else format_text(lines[-1].line, "red")
                util.echo(f"{print_prefix}{text}", err=True)
            line.clear()

    readers = [gevent.spawn(read, "stdout", stdout), gevent.spawn(read, "stderr", stderr)]
    try:
        for _ in gevent.iwait(readers, timeout):
            if left < 0:
                raise TooLarge(too_large(size))
        if not all(reader.dead for reader in readers):
            raise TimeoutError
    finally:
        gevent.killall([reader for reader in readers if not reader.dead], timeout=1)
    return CommandOutput(list(lines))
