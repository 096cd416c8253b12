"""Have a command carried out on the parts of an inventory by Dask's workers, and take what they printed.

The client of Dask's is a process of its own (gpunode.fleet.engine.dask_client); this is its other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from gpunode.fleet.engine.parts import EngineError, Member, Scheduler
from gpunode.settings import layers, overrides
from gpunode.settings.problems import SECRET

# Seconds within which the client has its workers end what is at work.
_PATIENCE = 30.0
_CLIENT = ("-m", "gpunode.fleet.engine.dask_client")


@dataclass(frozen=True)
class Outcome:
    """Hold what became of a part: the document that its command printed, or why there is none.

    status: the command's exit status, None where there is none; began: whether the command may have begun
    """

    names: tuple[str, ...]
    worker: str | None
    document: Mapping[str, Any] | None
    status: int | None
    why: str | None
    began: bool


def outcomes(
    scheduler: Scheduler,
    inventory: str,
    words: Sequence[str],
    members: Sequence[Member],
    changes: bool = False,
    done: Callable[[int], None] = lambda hosts: None,
) -> Iterator[Outcome]:
    """Yield what became of each part, as they come; every member is in one of them.

    words: gpunode's, without --limit and the inventory; changes: the command changes nodes, and is begun once; done: is
    told of how many hosts there is an outcome

    Raises EngineError where the engine cannot be used.
    """
    if find_spec("distributed") is None:
        raise EngineError("Dask is not installed here: install gpunode with its extra, gpunode[dask]")
    if any(word.endswith(f"={SECRET}") for word in overrides.shown()):
        raise EngineError(
            "a secret behind --set would go through the scheduler: let the workers' own inventory have it"
        )
    request = {
        "scheduler": str(scheduler),
        "inventory": inventory,
        "words": list(words),
        "members": [asdict(member) for member in members],
        "environment": layers.environment(),
        "gpunode": version("gpunode"),
        "changes": changes,
    }
    left, heard = {member.name for member in members}, 0
    with _client(request) as (lines, how_it_ended):
        for line in lines:
            told = json.loads(line)
            if "refused" in told:
                raise EngineError(told["refused"])
            if "names" not in told:
                continue
            why = told.get("broken") or told.get("lost") or told.get("waiting")
            names, began = tuple(told["names"]), "waiting" not in told
            found = Outcome(names, told.get("worker"), told.get("document"), told.get("status"), why, began)
            left -= set(found.names)
            heard += len(found.names)
            done(heard)
            yield found
        if left:
            names = tuple(member.name for member in members if member.name in left)
            yield Outcome(names, None, None, None, f"the client of the engine ended: {how_it_ended()}", True)


@contextlib.contextmanager
def _client(request: Mapping[str, Any]) -> Iterator[tuple[Iterator[bytes], Callable[[], str]]]:
    """Give the client's lines, and what tells how it ended; have it end its workers' commands where this is left."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            # Ended with this process, however that dies, and its workers' commands with it.
            [sys.executable, "-m", "gpunode.fleet.engine.leash", str(os.getpid()), sys.executable, *_CLIENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            # So that Ctrl-C reaches the controller alone, which ends this.
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None

        def why() -> str:
            status = process.wait()
            complaints.seek(0)
            last = complaints.read().decode(errors="replace").strip().splitlines()[-1:]
            return ": ".join([f"signal {-status}" if status < 0 else f"exit {status}", *last])

        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.close()
            yield iter(process.stdout.readline, b""), why
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE)
            if process.poll() is None:
                process.kill()
            process.stdout.close()
            process.wait()
