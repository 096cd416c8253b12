"""One process that has imported pyinfra and gpunode and forks each run from itself: `python -m tests.molecule.warm FD`.

A scenario runs pyinfra and gpunode some twenty times, and each new interpreter spends a second of processor time on
what it imports. A forked run is the same run: its own environment, folder, standard streams, session and exit status.
`GPUNODE_TEST_COLD=1` starts every run as a user does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

CHECKOUT = Path(__file__).parent.parent.parent
PROGRAMS = ("pyinfra", "gpunode")
# The longest request: arguments, environment and folder.
_LONGEST = 1 << 20
# What runs import besides the two programs; the deploys and gpunode's own commands import late.
_ROOMS = ("gpunode", "facts", "operations", "deploys")
# Taken before gevent is imported, which puts its own in their place: who forks has no loop of gevent's to share.
_fork, _wait = os.fork, os.waitpid


class Warm:
    """Hold the process that runs are forked from; it ends with the one who made it."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.molecule.warm", str(theirs.fileno())],
                cwd=CHECKOUT, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            )  # fmt: skip

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one of PROGRAMS to its end; raise subprocess.TimeoutExpired, with the whole session killed, after that.

        A run that a signal ended has its negative number as exit status.
        """
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
            told, tells = os.pipe()
            request = {"arguments": list(arguments), "environment": dict(environment), "folder": str(folder)}
            try:
                descriptors = [printed.fileno(), said.fileno(), tells]
                socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
            finally:
                os.close(tells)
            with os.fdopen(told, "rb", buffering=0):
                code = _status(told, arguments, seconds)
            output, errors = (_whole(file) for file in (printed, said))
        return subprocess.CompletedProcess(list(arguments), code, output, errors)

    def end(self) -> None:
        """End the process; runs that are under way go on."""
        self._channel.close()
        self._process.wait(timeout=30)


def _status(told: int, arguments: Sequence[str], seconds: float) -> int:
    """Return the exit status: the second line of what is told, after the run's process."""
    deadline = time.monotonic() + seconds
    text = b""
    while text.count(b"\n") < 2:
        ready, _, _ = select.select([told], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            if b"\n" in text:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(text.split()[0]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), seconds)
        more = os.read(told, 100)
        if not more:
            raise RuntimeError(f"{arguments[0]}: whoever awaited this run has died")
        text += more
    return int(text.split()[1])


def _whole(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))


def _serve(channel: socket.socket) -> NoReturn:
    """Fork a process for each request, until there is nobody to ask."""
    programs = _imported()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 3)
        if not message:
            os._exit(0)
        if _fork() == 0:
            channel.close()
            _attend(json.loads(message), descriptors, programs)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            while _wait(-1, os.WNOHANG)[0]:
                pass


def _imported() -> dict[str, Callable[[], object]]:
    """Import all that runs do, and return the programs."""
    from gpunode.patched import pyinfra_cli  # noqa: F401  # isort: skip
    from pyinfra_cli.main import main as pyinfra

    from gpunode.cli import main as gpunode

    for room in _ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            # What a deploy does, it does when it is imported; __main__ is a program.
            if not found.name.endswith((".__main__", "deploys.gpu_node", "deploys.smoke")):
                importlib.import_module(found.name)
    return {"pyinfra": pyinfra, "gpunode": gpunode}


def _attend(request: dict[str, Any], descriptors: list[int], programs: dict[str, Callable[[], object]]) -> NoReturn:
    """Fork the run, and tell its process and then its exit status."""
    printed, said, tells = descriptors
    run = _fork()
    if run == 0:
        os.setsid()
        os.close(tells)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (printed, 1), (said, 2)):
            os.dup2(descriptor, place)
        os._exit(_lived(request, programs))
    os.write(tells, f"{run}\n".encode())
    _, status = _wait(run, 0)
    os.write(tells, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _lived(request: dict[str, Any], programs: dict[str, Callable[[], object]]) -> int:
    """Be the run, as a new interpreter would; return its exit status."""
    import gevent  # type: ignore[import-untyped]

    gevent.reinit()
    os.environ.clear()
    os.environ.update(request["environment"])
    # TZ is read from the environment when a process begins.
    time.tzset()
    # By it click would take this module for the program.
    sys.modules["__main__"].__package__ = None
    os.chdir(request["folder"])
    program, *_ = sys.argv = request["arguments"]
    code: object = 1
    try:
        code = programs[Path(program).name]()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
