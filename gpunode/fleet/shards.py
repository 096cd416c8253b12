"""Read a large inventory by several processes at once: one process keeps one processor busy, however many hosts it has.

A child is `python -m gpunode.fleet.shards DESCRIPTOR INVENTORY FACT SECONDS`. It reads the hosts whose names its
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
from pathlib import Path
from typing import Any

from gpunode.base.importing import uncollected

# Below this many hosts for each, another process costs more than it saves: it takes a second to start.
HOSTS_EACH = 32
# (host, reading or None, reason or None, whether it stays so, see gpunode.fleet.nodes.Answer)
Row = tuple[str, Any, str | None, bool]


def count(hosts: int, processors: int) -> int:
    """Return how many processes read `hosts` hosts best."""
    return max(1, min(processors, hosts // HOSTS_EACH))


def of(names: list[str], number: int, shards: int) -> list[str]:
    """Return the hosts of one shard; together the shards have each host once."""
    return names[number::shards]


def read(
    inventory: Path, fact: type[Any], names: list[str], shards: int, seconds: float, step: Callable[[], None]
) -> list[Row]:
    """Return a row for each of `names`; a child that ends before its time leaves rows that say so."""
    import gevent  # type: ignore[import-untyped]

    jobs = [gevent.spawn(_shard, inventory, fact, of(names, number, shards), seconds, step) for number in range(shards)]
    try:
        gevent.joinall(jobs, raise_error=True)
    finally:
        gevent.killall(jobs)
    return [row for job in jobs for row in job.value]


def _shard(inventory: Path, fact: type[Any], names: list[str], seconds: float, step: Callable[[], None]) -> list[Row]:
    from gevent.fileobject import FileObject  # type: ignore[import-untyped]

    readable, writable = os.pipe()
    # A file, for nobody reads it before the end: a pipe would be full after some sixty hosts that fail.
    complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed below, on every way out)
    told = f"{fact.__module__}:{fact.__qualname__}"
    # A file again: the names of a large inventory would wait in a pipe for a child that is still starting.
    with tempfile.TemporaryFile() as desired:
        desired.write(json.dumps(names).encode())
        desired.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-m", __name__, str(writable), str(inventory), told, str(seconds)],
            pass_fds=(writable,),
            stdin=desired,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
        )
    os.close(writable)
    done = 0
    try:
        with FileObject(readable, "rb") as answers:
            while True:
                said = pickle.load(answers)
                if isinstance(said, list):
                    return said
                done += 1
                step()
    except (EOFError, pickle.UnpicklingError):
        for _ in range(len(names) - done):
            step()
        child.wait()
        complaints.seek(0)
        error = complaints.read().decode(errors="replace").strip().splitlines()
        status = child.returncode
        how = f"signal {-status}" if status < 0 else f"exit {status}"
        why = f"the process that was reading it ended ({how}){': ' + error[-1] if error else ''}"
        return [(name, None, why, False) for name in names]
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        complaints.close()


def main(arguments: list[str]) -> int:
    """Be a child: read one shard, and write what its hosts answered."""
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
