"""A client of Dask's, as a process of its own: `python -m gpunode.fleet.engine.dask_client`, asked on standard input.

Commands import pyinfra, which patches their sockets, and in such a process a Dask client never gets a result. This one
imports neither, cuts the hosts into parts by the workers that there are, and prints what became of each as a line of
JSON: see gpunode.fleet.engine.readings, which starts it.

What a scheduler or a worker answers is data: see `confine`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import resource
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TextIO

import dask.config
from distributed import Client, Security
from distributed.comm.core import CommClosedError

from gpunode.fleet.engine import work
from gpunode.fleet.engine.dispatch import CHANGE, READING, LostError, Task, Worker, outcomes
from gpunode.fleet.engine.parts import DASK, TLS, EngineError, Expected, Member, Part, cut

# Seconds to reach the scheduler, at first and after it was lost.
_REACH = 10.0
# Seconds between two looks at whether a line is up again.
_MOMENT = 0.1
# How a worker says of which site it is: `dask worker --resources site-berlin=1`.
SITE = "site-"
_CERTIFICATES = (
    "make TLS certificates, and name them for the scheduler, its workers and gpunode: docs/scale.md has the commands, "
    "in “Certificates”"
)
# Bytes of this process's address space, and for each host: 20 times what a document has of it.
_MEMORY, _OF_HOST = 1 << 30, 256 << 10
# Bytes of a file that it writes: its standard error.
_STDERR = 1 << 20
# Characters of a worker's exception that are shown.
_WORDS = 300
# Seconds within which a scheduler, and all workers that have to end a command, answer.
_ANSWER = 30.0


class DaskCrew:
    """The workers of a Dask cluster."""

    def __init__(self, client: Client) -> None:
        # Of no type: much of it is None until it is connected.
        self._client: Any = client
        self._began = False

    def workers(self) -> Mapping[str, Worker]:
        """Return address -> worker; raise LostError without a scheduler, EngineError where one is not encrypted."""
        # Not scheduler_info(): it hands out what the client keeps, and a clock of the client's own takes all workers
        # out of that every two seconds, so that a whole cluster can seem to have none.
        told = self._asked(self._identity)["workers"]
        # A worker that joins later gets no part, and ends nothing.
        if not self._began and (plain := [address for address in told if not address.startswith(TLS)]):
            raise EngineError(f"the worker at {plain[0]} does not encrypt its connections: {_CERTIFICATES}")
        self._began = True
        found = ((address, _worker(each)) for address, each in told.items() if address.startswith(TLS))
        return {address: worker for address, worker in found if worker is not None}

    def _identity(self) -> Any:
        if (scheduler := self._client.scheduler) is None:
            raise LostError(_LOST)
        return self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=_ANSWER)

    def submit(self, task: str, address: str) -> Future[str]:
        """Have the worker at an address carry out a task, and no other, once; raise LostError."""
        # What Dask repeats by itself could change a node twice.
        bounds = {"pure": False, "retries": 0, "workers": [address], "allow_other_workers": False}
        future = self._asked(lambda: self._client.submit(work.carry_out, task, **bounds))
        return asyncio.run_coroutine_threadsafe(self._answer(future), self._client.loop.asyncio_loop)

    async def _answer(self, future: Any) -> Any:
        # Each answer by a request of its own: Dask gathers several in one, which one worker could hold up or spoil.
        await future._state.wait()
        if future.status == "error":
            # Dask hands over the pickle of an exception that has a class: words between bytes.
            words = re.sub(r"\\x..|\\(?=')", " ", str(await future.exception())).split()
            raise RuntimeError(" ".join(words)[:_WORDS])
        if future.status != "finished":
            raise asyncio.CancelledError
        told = await self._client.scheduler.gather(keys=[future.key])
        return (told.get("data") or {}).get(future.key)

    def end(self, names: list[str]) -> None:
        """Have the workers end what is at work of these tasks; do not wait longer for a worker that does not answer."""

        def ask() -> None:
            with suppress(TimeoutError):
                self._client.run(work.end, names, on_error="ignore", callback_timeout=_ANSWER)

        self._asked(ask)

    def _asked(self, ask: Any) -> Any:
        # A line that broke is put up anew by the client itself, within as long as it was given to reach the scheduler.
        end = time.monotonic() + 2 * _REACH
        while self._client.status == "connecting" and time.monotonic() < end:
            time.sleep(_MOMENT)
        # After a message that it could not read, Dask's client listens to no other.
        if self._client.status != "running" or self._client._handle_report_task.done():
            raise LostError(_LOST)
        try:
            return ask()
        except (OSError, CommClosedError, TimeoutError) as error:
            raise LostError(f"{_LOST}: {error}") from None


_LOST = "the scheduler was lost"


def _worker(told: Mapping[str, Any]) -> Worker | None:
    """Return what a worker says of itself; None where that makes no sense."""
    folder, resources, slots = (told.get(key) for key in ("local_directory", "resources", "nthreads"))
    if not (isinstance(folder, str) and isinstance(resources, dict) and isinstance(slots, int)):
        return None
    sites = [name.removeprefix(SITE) for name in map(str, resources) if name.startswith(SITE)]
    return Worker(folder, sites[0] if sites else None, slots)


def connected(scheduler: str) -> Client:
    """Return a client of the scheduler at HOST:PORT; raise EngineError without one, and without certificates."""
    security, why = Security(), ""
    try:
        encrypted = security.get_connection_args("client")["ssl_context"]
    except OSError as error:
        encrypted, why = None, f" that can be read ({error})"
    if encrypted is None:
        raise EngineError(f"Dask's client has no TLS certificates{why}, also needed on 127.0.0.1: {_CERTIFICATES}")
    try:
        return Client(f"{TLS}{scheduler}", security=security, timeout=_REACH, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {DASK}{scheduler} by TLS: {str(error).splitlines()[0]}; start one as "
            "docs/scale.md says, or leave out --engine"
        ) from None


def tasks_of(request: Mapping[str, Any], workers: Mapping[str, Worker]) -> list[tuple[Part, Task]]:
    """Return each part, and the command for it."""
    members = [Member(**each) for each in request["members"]]
    counts: dict[str | None, int] = dict(Counter(worker.site for worker in workers.values()))
    found = []
    for part in cut(members, counts):
        # The cluster's hosts are read by all processors that the worker has.
        processes = None if part.in_cluster else 1
        desired = Expected(request["gpunode"], part.fingerprint, processes, None if part.is_by_others else part.names)
        limits = [word for member in part.members for word in ("--limit", member.pattern)]
        words = (*request["words"], *limits, request["inventory"])
        environment = {**request["environment"], **desired.environment()}
        longest = len(part.members) * CHANGE if request["changes"] else READING + len(part.members)
        found.append((part, Task(uuid.uuid4().hex, words, environment, part.site, part.alone, longest)))
    return found


def confine(hosts: int) -> TextIO:
    """Have no peer run code here, print lines, or take all memory; return where this process prints its own.

    Dask unpickles whatever comes over its connections, whichever deserializers it is given.
    """
    sys.addaudithook(_refuse_objects)
    # Messages name modules to import, for members of enumerations.
    dask.config.set({"distributed.scheduler.allowed-imports": []})
    memory = _MEMORY + hosts * _OF_HOST
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # A worker has Dask's client print what it likes.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_STDERR, _STDERR))
    return lines


def _refuse_objects(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse each pickle that names a class or function, but for bytes: what else pickles hold is plain data."""
    if event == "pickle.find_class" and arguments != ("builtins", "bytes"):
        # What Dask expects of a traceback that it cannot read.
        raise TypeError("it answered with an object of Python's, not with text")


def _ended(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """Carry out a request; return 1 where the engine cannot be used, which is said in the one line."""
    # The controller reads only the lines of JSON.
    logging.disable(logging.CRITICAL)
    dask.config.set({"distributed.comm.timeouts.connect": f"{_REACH:g}s"})
    signal.signal(signal.SIGTERM, _ended)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.loads(sys.stdin.readline())
    lines = confine(len(request["members"]))

    def say(**told: Any) -> None:
        print(json.dumps(told), file=lines, flush=True)

    try:
        client = connected(request["scheduler"])
    except EngineError as error:
        say(refused=str(error))
        return 1
    crew = DaskCrew(client)
    names: list[str] = []
    whole = False
    try:
        parts = tasks_of(request, crew.workers())
        names = [task.name for _, task in parts]
        for number, outcome in outcomes(crew, [task for _, task in parts], request["changes"]):
            say(names=parts[number][0].names, **outcome)
        whole = True
    except (EngineError, LostError) as error:
        say(refused=str(error))
        return 1
    finally:
        if names and not whole:
            with suppress(LostError, EngineError):
                crew.end(names)
        with suppress(Exception):
            client.close(timeout=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
