"""pyinfra's and gpunode's command lines, forked from one process that has imported them.

A new interpreter spends a second of processor time on what it imports, and a scenario makes some fifty runs. A forked
run is the same run: its own arguments, environment, folder, standard streams, session and exit status. The process that
forks is no part of pytest's own, so that what a test patched there is not in the run. What is about the start itself
still starts the program; `GPUNODE_TEST_COLD=1` has all of them do so.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import logging
import os
import pkgutil
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from gpunode import PACKAGE

CHECKOUT = Path(__file__).parents[2]
PROGRAMS = ("pyinfra", "gpunode")
# The longest request: arguments, environment and folder.
_LONGEST = 1 << 20
_ROOMS = ("facts", "operations", "deploys")
# Deploys that act when they are imported.
_ACT = ("__main__", "deploys.gpu_node", "deploys.smoke")
# pyinfra's connector for hosts that are not there reads these when it is imported.
_AT_IMPORT = {"PYINFRA_FAKE_DELAY": "0", "PYINFRA_FAKE_DELAY_JITTER": "0"}
_CONNECTORS = ("fake", "local", "ssh")
# Taken before gevent is imported, which puts its own in their place: who forks has no loop of gevent's to share.
_fork, _wait = os.fork, os.wait4

# Seconds of a processor that runs have taken, for whoever measures the tests.
taken = 0.0


def run(
    program: str, *words: object, cwd: Path = CHECKOUT, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run `gpunode` or `pyinfra` with nothing on standard input; see run_bytes."""
    done = run_bytes(program, *words, cwd=cwd, env=env, timeout=timeout)
    return subprocess.CompletedProcess(
        done.args, done.returncode, *(text.decode(errors="replace") for text in (done.stdout, done.stderr))
    )


def run_bytes(
    program: str,
    *words: object,
    cwd: Path = CHECKOUT,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 120,
) -> subprocess.CompletedProcess[bytes]:
    """Run `gpunode` or `pyinfra` to its end, with bytes on standard input; threads may do so at the same time.

    A run that a signal ended has its negative number as exit status. After `timeout` seconds its whole session is
    killed, and subprocess.TimeoutExpired raised.
    """
    global taken
    line = [str(Path(sys.executable).with_name(program)), *map(str, words)]
    environment = dict(os.environ if env is None else env)
    if os.environ.get("GPUNODE_TEST_COLD") == "1":
        return subprocess.run(
            line, cwd=cwd, env=environment, input=stdin, capture_output=True, timeout=timeout, check=False
        )
    with contextlib.ExitStack() as files:
        given, printed, said = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        told, tells = os.pipe()
        request = {"line": line, "environment": environment, "folder": str(cwd)}
        try:
            descriptors = [given.fileno(), printed.fileno(), said.fileno(), tells]
            socket.send_fds(_forking().channel, [json.dumps(request).encode()], descriptors)
        except BrokenPipeError:
            raise RuntimeError(f"the process that forks has ended: {_forking().process.wait()}") from None
        finally:
            os.close(tells)
        with os.fdopen(told, "rb", buffering=0):
            code, seconds = _end(told, line, timeout)
        taken += seconds
        for file in (printed, said):
            file.seek(0)
        return subprocess.CompletedProcess(line, code, printed.read(), said.read())


def started() -> None:
    """Have the process that forks begin to import, for whoever does not want it to be the first run's own."""
    _forking()


@dataclass(frozen=True)
class _Forking:
    """Hold the process that forks, and the way to it; it ends with this process, whose end of the way is gone then."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    def end(self) -> None:
        self.channel.close()
        self.process.wait(timeout=60)


@cache
def _forking() -> _Forking:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
            cwd=CHECKOUT, env={**os.environ, **_AT_IMPORT}, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
        )  # fmt: skip
    found = _Forking(process, ours)
    atexit.register(found.end)
    return found


def _end(told: int, line: list[str], timeout: float) -> tuple[int, float]:
    """Return a run's exit status and processor seconds: what is told last, after the run's process."""
    deadline = time.monotonic() + timeout
    text = b""
    while text.count(b"\n") < 2:
        ready, _, _ = select.select([told], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            if b"\n" in text:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(text.split()[0]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(line, timeout)
        more = os.read(told, 100)
        if not more:
            raise RuntimeError(f"{line[0]}: whoever awaited this run has died")
        text += more
    _, code, seconds = text.split()
    return int(code), float(seconds)


def _serve(channel: socket.socket) -> NoReturn:
    """Fork a process for each request, until there is nobody to ask."""
    programs = _imported()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 4)
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
    from gpunode.base.fast_import import pyinfra_cli  # noqa: F401  # isort: skip
    from pyinfra_cli.main import main as pyinfra

    from gpunode.cli import main as gpunode

    for connector in _CONNECTORS:
        importlib.import_module(f"pyinfra.connectors.{connector}")
    for package in _packages():
        _import_below(package)
    return {"pyinfra": pyinfra, "gpunode": gpunode}


def _packages() -> list[str]:
    """Return the packages that runs import; `gpunode.__path__` has the whole checkout, tests too."""
    folders = [path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    return [f"gpunode.{name}" for name in sorted({*(path.name for path in folders), *_ROOMS})]


def _import_below(package: str) -> None:
    """Import every module of a package, but for what runs do not import."""
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.name.endswith(_ACT):
            continue
        if found.ispkg:
            _import_below(found.name)
        else:
            importlib.import_module(found.name)


def _attend(request: dict[str, Any], descriptors: list[int], programs: dict[str, Callable[[], object]]) -> NoReturn:
    """Fork the run, and tell its process, and then how it ended and what it took."""
    *streams, tells = descriptors
    run = _fork()
    if run == 0:
        # A session of its own: no terminal is there to be asked for a password.
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        # What a run starts is not to keep them open.
        for descriptor in descriptors:
            os.close(descriptor)
        os._exit(_lived(request, programs))
    os.write(tells, f"{run}\n".encode())
    _, status, used = _wait(run, 0)
    seconds = used.ru_utime + used.ru_stime
    # Whoever waited may have given up.
    with contextlib.suppress(BrokenPipeError):
        os.write(tells, f"{os.waitstatus_to_exitcode(status)} {seconds:.3f}\n".encode())
    os._exit(0)


def _lived(request: dict[str, Any], programs: dict[str, Callable[[], object]]) -> int:
    """Be the run, as a new interpreter would; return its exit status."""
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    # The time zone is read from the environment when a process begins, and so is chance.
    time.tzset()
    random.seed()
    # By it click would take this module for the program.
    sys.modules["__main__"].__package__ = None
    sys.argv = request["line"]
    program = Path(sys.argv[0])
    sys.path[0] = str(program.parent)
    importlib.import_module("gevent").reinit()
    code: object = 1
    try:
        code = programs[program.name]()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    # No core of a run that a test kills.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ours = socket.socket(fileno=int(sys.argv[1]))
    # Where the tests' own process is gevent's, so was this end when it was made.
    ours.setblocking(True)
    _serve(ours)
