"""A client of Dask's, as a process of its own: `python -m gpunode.fleet.engine.dask_client`, asked on standard input.

Commands import pyinfra, which patches their sockets, and in such a process a Dask client never gets a result. This one
imports neither, cuts the hosts into parts by the workers that there are, and prints what became of each as a line of
JSON: see gpunode.fleet.engine.readings, which starts it.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import dask.config
from distributed import Client, Security
from distributed.comm.core import CommClosedError

from gpunode.fleet.engine import work
from gpunode.fleet.engine.dispatch import LostError, Task, Worker, outcomes
from gpunode.fleet.engine.parts import EngineError, Expected, Member, Part, Scheduler, cut, engine_of, is_guarded

# Seconds to reach the scheduler, at first and after it was lost.
_REACH = 10.0
# Seconds between two looks at whether a line is up again.
_MOMENT = 0.1
# How a worker says of which site it is: `dask worker --resources site-berlin=1`.
SITE = "site-"
_GUARD = (
    "give Dask certificates by its own configuration (distributed.comm.tls: ca-file, client.cert, client.key, and the "
    "same for scheduler and workers), or let all of them listen on 127.0.0.1"
)


class DaskCrew:
    """Be the workers of a Dask cluster, each with an executor of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._executors: dict[str, Any] = {}
        # (address, folder) -> the process: a worker that begins anew at the same address has another folder.
        self._processes: dict[tuple[str, str], str] = {}

    def workers(self) -> Mapping[str, Worker]:
        """Return address -> worker; raise LostError without a scheduler, EngineError where one is unguarded at once."""
        # Not scheduler_info(): it hands out what the client keeps, and a clock of the client's own takes all workers
        # out of that every two seconds, so that a whole cluster can seem to have none.
        told = self._asked(self._identity)["workers"]
        # One that joins while others are at work gets nothing, and ends nothing.
        if not self._processes and (bare := [address for address in told if not is_guarded(address)]):
            raise EngineError(f"nothing guards what is said to the worker at {bare[0]}: {_GUARD}")
        told = {address: each for address, each in told.items() if is_guarded(address)}
        keys = {address: (address, str(each.get("local_directory"))) for address, each in told.items()}
        if fresh := [address for address, key in keys.items() if key not in self._processes]:
            found = self._asked(lambda: self._client.run(work.here, workers=fresh, on_error="ignore"))
            self._processes |= {keys[address]: str(process) for address, process in found.items()}
        return {
            address: Worker(self._processes[keys[address]], _site(each.get("resources", {})), int(each["nthreads"]))
            for address, each in told.items()
            if keys[address] in self._processes
        }

    def _identity(self) -> Any:
        if (scheduler := self._client.scheduler) is None:
            raise LostError(_LOST)
        return self._client.sync(scheduler.identity, n_workers=-1)

    def submit(self, task: str, address: str) -> Future[str]:
        """Have the worker at an address carry out a task, and no other, once; raise LostError."""
        if address not in self._executors:
            # What Dask repeats by itself could change a node twice.
            self._executors[address] = self._client.get_executor(
                pure=False, retries=0, workers=[address], allow_other_workers=False
            )
        future: Future[str] = self._asked(lambda: self._executors[address].submit(work.carry_out, task))
        return future

    def end(self, names: list[str]) -> None:
        """Have the workers end what is at work of these tasks."""
        self._asked(lambda: self._client.run(work.end, names, on_error="ignore"))

    def _asked(self, ask: Any) -> Any:
        # A line that broke is put up anew by the client itself, within as long as it was given to reach the scheduler.
        end = time.monotonic() + 2 * _REACH
        while self._client.status == "connecting" and time.monotonic() < end:
            time.sleep(_MOMENT)
        if self._client.status != "running":
            raise LostError(_LOST)
        try:
            return ask()
        except (OSError, CommClosedError, TimeoutError) as error:
            raise LostError(f"{_LOST}: {error}") from None


_LOST = "the scheduler was lost"


def _site(resources: Mapping[str, Any]) -> str | None:
    return next((name.removeprefix(SITE) for name in resources if name.startswith(SITE)), None)


def connected(scheduler: Scheduler) -> Client:
    """Return a client of the scheduler; raise EngineError where it cannot be had, or where others could listen."""
    security = Security()
    encrypted = security.get_connection_args("client").get("ssl_context") is not None
    if not is_guarded(address := scheduler.for_dask(encrypted)):
        raise EngineError(f"{scheduler} is another machine, and nothing guards what is said to it: {_GUARD}")
    try:
        return Client(address, security=security, timeout=_REACH, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {scheduler}: {str(error).splitlines()[0]}; start one by `dask scheduler`, "
            "or leave out --engine"
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
        found.append((part, Task(uuid.uuid4().hex, words, environment, part.site, part.alone)))
    return found


def _say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def _ended(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """Carry out a request; return 1 where the engine cannot be used, which is said in the one line."""
    # Of what it says itself nothing is for whoever asks.
    logging.disable(logging.CRITICAL)
    dask.config.set({"distributed.comm.timeouts.connect": f"{_REACH:g}s"})
    signal.signal(signal.SIGTERM, _ended)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.loads(sys.stdin.readline())
    try:
        scheduler = engine_of(request["scheduler"])
        assert scheduler is not None
        client = connected(scheduler)
    except EngineError as error:
        _say(refused=str(error))
        return 1
    crew = DaskCrew(client)
    names: list[str] = []
    whole = False
    try:
        parts = tasks_of(request, crew.workers())
        names = [task.name for _, task in parts]
        _say(parts=len(parts))
        for number, outcome in outcomes(crew, [task for _, task in parts], request["changes"]):
            _say(names=parts[number][0].names, **outcome)
        whole = True
    except (EngineError, LostError) as error:
        _say(refused=str(error))
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
