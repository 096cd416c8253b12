"""gpunode's and pyinfra's command lines, run in children of one process that has imported them already.

A new interpreter imports pyinfra for about a second of a processor; a child that is forked behind the imports begins at
once. The process that forks is no part of pytest's own, so that what a test changed there (a patch, pyinfra's context,
hooks) is not in the child: it has what a new interpreter would have. Arguments, folder, environment, standard input,
exit status and output are a real process's. What is about the start itself (a signal, the imports, the path) still
starts the program.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

CHECKOUT = Path(__file__).parents[2]
_BIN = Path(sys.executable).parent
# Seconds of a processor that the children have taken, for whoever measures the tests.
taken = 0.0
# pyinfra's connector for hosts that are not there reads these when it is imported.
_AT_IMPORT = {"PYINFRA_FAKE_DELAY": "0", "PYINFRA_FAKE_DELAY_JITTER": "0"}
_IMPORTED = ("pyinfra_cli.main", "pyinfra.connectors.fake", "pyinfra.connectors.local", "pyinfra.connectors.ssh",
             "gpunode.cli.check", "gpunode.cli.ci", "gpunode.cli.cluster", "gpunode.cli.drift", "gpunode.cli.facts",
             "gpunode.cli.plan", "gpunode.cli.rollout", "gpunode.cli.runtime", "gpunode.hooks", "gpunode.drift",
             "gpunode.ci", "deploys.device_plugin", "deploys.drain")  # fmt: skip


def run(
    program: str,
    *words: object,
    cwd: Path = CHECKOUT,
    env: Mapping[str, str] | None = None,
    timeout: int = 120,
) -> subprocess.CompletedProcess[str]:
    """Run `gpunode` or `pyinfra` with nothing on standard input; raise TimeoutExpired as subprocess does."""
    done = run_bytes(program, *words, cwd=cwd, env=env, timeout=timeout)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_bytes(
    program: str,
    *words: object,
    cwd: Path = CHECKOUT,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: int = 120,
) -> subprocess.CompletedProcess[bytes]:
    """Run `gpunode` or `pyinfra` with bytes on standard input, and return what it prints as bytes."""
    line = [str(_BIN / program), *map(str, words)]
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name) / each for each in ("stdin", "stdout", "stderr")]
        files[0].write_bytes(stdin)
        asked = {"line": line, "cwd": str(cwd), "env": dict(os.environ if env is None else env),
                 "files": [str(file) for file in files], "timeout": timeout}  # fmt: skip
        status = _status(json.dumps(asked))
        if status == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(line, timeout, files[1].read_bytes(), files[2].read_bytes())
        return subprocess.CompletedProcess(line, status, files[1].read_bytes(), files[2].read_bytes())


def _status(asked: str) -> int:
    global taken
    process = started()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(asked + "\n")
    process.stdin.flush()
    status, seconds = process.stdout.readline().split()
    taken = float(seconds)
    return int(status)


@cache
def started() -> subprocess.Popen[str]:
    """Start the process that forks; it ends with this one, whose end of the pipe is gone then."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from tests.unit import warm; warm.serve()"], cwd=CHECKOUT,
        env={**os.environ, **_AT_IMPORT}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def serve() -> None:
    """Be the process that forks: answer each line of standard input with the exit status of what it asks for."""
    # gevent's own, which take their place with the imports, would have this process run a loop of events.
    fork, waitpid = os.fork, os.waitpid
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        child = fork()
        if child == 0:
            _become(**json.loads(line))
        status = os.waitstatus_to_exitcode(waitpid(child, 0)[1])
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(status, usage.ru_utime + usage.ru_stime, flush=True)


def _become(line: list[str], cwd: str, env: dict[str, str], files: list[str], timeout: int) -> NoReturn:
    """Be the program that was asked for, to its end."""
    # A session of its own: no terminal is there to be asked for a password.
    os.setsid()
    signal.alarm(timeout)
    for number, (file, flags) in enumerate(zip(files, (os.O_RDONLY, *2 * [os.O_WRONLY | os.O_CREAT]), strict=True)):
        opened = os.open(file, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.path[0] = line, str(_BIN)
    random.seed()
    importlib.import_module("gevent").reinit()
    main = importlib.import_module({"gpunode": "gpunode.cli", "pyinfra": "pyinfra_cli.main"}[Path(line[0]).name]).main
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by way of the interpreter's own end, which visits, and so copies, all that is shared with the parent.
    os._exit(code or 0)
