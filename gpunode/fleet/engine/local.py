"""Read a large inventory by several processes at once: one process keeps one processor busy, however many hosts it has.

A child is `python -m gpunode.fleet.engine.local DESCRIPTOR INVENTORY FACT SECONDS`. It reads the hosts whose names its
standard input has as a JSON list, for an inventory need not have the same order, nor the same hosts, in each process.
It writes pickles to the open file DESCRIPTOR: how many hosts it has just done with, and at last what they answered.
Its standard output is the inventory's own, which may print what it likes.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpunode.base.importing import uncollected
from gpunode.base.terminal import has_no_results
from gpunode.fleet.engine.parts import LEAST

# (host, reading or None, reason or None, whether it stays so, see gpunode.fleet.nodes.Answer)
Row = tuple[str, Any, str | None, bool]


def count(hosts: int, processors: int) -> int:
    """Return how many processes read `hosts` hosts best."""
    return max(1, min(processors, hosts // LEAST))


def read(
    inventory: Path, fact: type[Any], names: list[str], processes: int, seconds: float, step: Callable[[], None]
) -> list[Row]:
    """Return a row for each of `names`; a child that ends before its time leaves rows that say so.

    A pool of threads, each of which waits for a child: where one process of a pool of processes dies, all the others'
    work is lost with it.
    """
    children: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(processes) as pool:
        jobs = [
            pool.submit(_read_by_child, inventory, fact, names[number::processes], seconds, step, children)
            for number in range(processes)
        ]
        try:
            return [row for job in jobs for row in job.result()]
        finally:
            # Whatever ended this, nobody waits for them any more.
            for child in children:
                if child.poll() is None:
                    child.kill()


def _read_by_child(
    inventory: Path,
    fact: type[Any],
    names: list[str],
    seconds: float,
    step: Callable[[], None],
    children: list[subprocess.Popen[bytes]],
) -> list[Row]:
    # FileObject reads a pipe while the other threads of this patched process go on.
    from gevent.fileobject import FileObject  # type: ignore[import-untyped]

    told = f"{fact.__module__}:{fact.__qualname__}"
    readable, writable = os.pipe()
    # Files, for nobody reads or writes while the child starts: a pipe would be full after some sixty hosts.
    with (
        tempfile.TemporaryFile() as complaints,
        tempfile.TemporaryFile() as desired,
        FileObject(readable, "rb") as answers,
    ):
        desired.write(json.dumps(names).encode())
        desired.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-m", __name__, str(writable), str(inventory), told, str(seconds)],
            pass_fds=(writable,),
            stdin=desired,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
        )
        children.append(child)
        os.close(writable)
        done = 0
        try:
            while True:
                said = pickle.load(answers)
                if isinstance(said, list):
                    return said
                done += 1
                step()
        except (EOFError, pickle.UnpicklingError):
            for _ in range(len(names) - done):
                step()
            status = child.wait()
            complaints.seek(0)
            error = complaints.read().decode(errors="replace").strip().splitlines()
            how = f"signal {-status}" if status < 0 else f"exit {status}"
            why = f"the process that was reading it ended ({how}){': ' + error[-1] if error else ''}"
            return [(name, None, why, False) for name in names]
        finally:
            child.wait()


def main(arguments: list[str]) -> int:
    """Be a child: read some hosts, and write what its hosts answered."""
    # So that the last words of a child that ends early are its own.
    has_no_results()
    descriptor, inventory, told, seconds = arguments
    # To its end, so that an inventory that reads its standard input finds none.
    names = json.loads(sys.stdin.buffer.read())
    # Late: the parent has its own, and the child's first act is to have its sockets patched.
    with uncollected():
        from gpunode.fleet import nodes as fleet  # isort: skip
        from gpunode.fleet.access import connection

    connection.ask_nobody()
    module, _, name = told.partition(":")
    fact = getattr(importlib.import_module(module), name)
    with os.fdopen(int(descriptor), "wb") as answers:

        def said(what: Any) -> None:
            pickle.dump(what, answers)
            answers.flush()

        said(fleet.read_here(Path(inventory), fact, names, float(seconds), lambda: said(1)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
