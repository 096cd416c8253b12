"""Give parts to workers, and say what became of each: the one place that decides what is asked again.

What only reads and did not come back whole is asked once more, of another worker where there is one. What changes nodes
is begun once: a worker that is lost in the middle of it is told, and nobody takes its place. Pure: over an interface
that Dask's client has, and that a pool of threads has in tests.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpunode.base.structured_text import load_json

# How often a part that only reads is asked.
ATTEMPTS = 2
# Seconds between two looks at who is still there.
LOOK = 0.5
# Seconds in which a site's last worker, once it is gone, may come back: Dask's nanny starts one anew.
PATIENCE = 15.0
# Seconds that a part may take which only reads, with one more for each host; and each host of a part that is changed.
READING, CHANGE = 3600.0, 7200.0
# Seconds until a wait for a worker is reported first; each further report comes after twice the time.
REPORT = 60.0
# Characters of an answer: for the part, and for each word of its command, of which each host has two.
_ANSWER, _OF_WORD = 16 << 20, 32 << 10
# What `gpunode.fleet.engine.work.done` returns.
_FIELDS = {"worker": str, "replaced": bool, "broken": str, "status": int, "document": dict}


class LostError(Exception):
    """Say that nothing can be had of the engine any more."""


@dataclass(frozen=True)
class Worker:
    """Hold what is known of a worker: the process that it is, its site, and how many tasks it takes at once."""

    process: str
    site: str | None
    slots: int


class Crew(Protocol):
    """Take tasks, each as a future of its own."""

    def workers(self) -> Mapping[str, Worker]:
        """Return address -> worker, of those that are there now; raise LostError."""

    def submit(self, task: str, address: str) -> Future[str]:
        """Have one worker carry out a task (gpunode.fleet.engine.work.carry_out); raise LostError."""

    def end(self, names: list[str]) -> None:
        """End what is at work of these tasks; raise LostError."""


@dataclass(frozen=True)
class Task:
    """Hold a whole command on a part: gpunode's words, its environment, and the site whose workers reach the hosts.

    name: no other task of any controller has it; alone: no other such task is at work meanwhile; longest: seconds after
    which its worker is given up
    """

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    site: str | None = None
    alone: bool = False
    longest: float = READING


@dataclass
class _Asked:
    number: int
    task: Task
    attempts: int = 0
    avoided: set[str] = field(default_factory=set)
    address: str = ""
    process: str = ""
    since: float = 0.0
    report_after: float = REPORT

    @property
    def where(self) -> str:
        """Return when it was given to which worker."""
        return f"{time.strftime('%H:%M:%S', time.localtime(time.time() - self.waited))}, at the worker {self.address}"

    @property
    def waited(self) -> float:
        """Return for how many seconds a worker has had it."""
        return time.monotonic() - self.since

    def text(self, changes: bool) -> str:
        told = {"name": self.task.name, "words": self.task.words, "environment": dict(self.task.environment)}
        return json.dumps({**told, "only_by": self.process if changes else None})


def outcomes(
    crew: Crew, tasks: Iterable[Task], changes: bool, look: float = LOOK, patience: float = PATIENCE
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (the task's number, its outcome) as they come: see gpunode.fleet.engine.work.done.

    An outcome is also `lost`: why a part that had been begun did not come back, or `waiting`: why it was not begun.
    `waits` is no outcome: since when a part is at work, and where. changes: the commands change nodes
    """
    left = deque(_Asked(number, task) for number, task in enumerate(tasks))
    at_work: dict[Future[str], _Asked] = {}
    # Site -> when it had a worker last.
    seen: dict[str | None, float] = {}
    # Processes that did not answer in time: they get no other part.
    given_up: set[str] = set()
    try:
        while left or at_work:
            workers = {at: worker for at, worker in crew.workers().items() if worker.process not in given_up}
            for future, asked in list(at_work.items()):
                worker = workers.get(asked.address)
                if future.done():
                    continue
                if worker is None or worker.process != asked.process:
                    del at_work[future]
                    future.cancel()
                    yield from _after_loss(asked, left, changes)
                elif asked.waited > asked.task.longest:
                    del at_work[future]
                    future.cancel()
                    given_up.add(workers.pop(asked.address).process)
                    crew.end([asked.task.name])
                    yield asked.number, {"lost": f"its worker was given up: no answer since {asked.where}"}
                elif asked.waited > asked.report_after:
                    asked.report_after = 2 * asked.waited
                    yield asked.number, {"waits": asked.where}
            seen |= dict.fromkeys((worker.site for worker in workers.values()), time.monotonic())
            may_come = {site for site, at in seen.items() if time.monotonic() < at + patience}
            yield from _given(crew, workers, left, at_work, changes, may_come)
            if left and not at_work:
                time.sleep(look)
            done, _ = wait(at_work, look, FIRST_COMPLETED)
            for future in done:
                if future.cancelled():
                    # A line that broke and is up again: the client forgot what its workers are still at.
                    crew.end([at_work[future].task.name])
                yield from _ended(future, at_work.pop(future), left, changes)
    except LostError as error:
        # Whoever is at work has lost its scheduler, too, and ends.
        for future, asked in at_work.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                yield from _ended(future, asked, deque(), changes=True)
            else:
                yield asked.number, {"lost": str(error)}
        for asked in left:
            yield asked.number, {"waiting": str(error)}


def _given(
    crew: Crew,
    workers: Mapping[str, Worker],
    left: deque[_Asked],
    at_work: dict[Future[str], _Asked],
    changes: bool,
    may_come: Collection[str | None],
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give each worker as much as it takes at once; say of what nobody takes that it is not begun.

    may_come: sites of which a worker was there lately, and may be again
    """
    busy = [asked.address for asked in at_work.values()]
    free = {address: worker.slots - busy.count(address) for address, worker in workers.items()}
    for _ in range(len(left)):
        asked = left.popleft()
        of_site = [address for address, worker in workers.items() if worker.site == asked.task.site]
        if not of_site and asked.task.site in may_come:
            left.append(asked)
            continue
        if not of_site:
            site = f"of site {asked.task.site}" if asked.task.site else "that takes hosts of no site"
            yield asked.number, {"waiting": f"there is no worker {site}"}
            continue
        # Another one, where there is another one.
        others = [address for address in of_site if address not in asked.avoided] or of_site
        address = max(others, key=lambda each: free[each])
        if free[address] < 1 or (asked.task.alone and any(each.task.alone for each in at_work.values())):
            left.append(asked)
            continue
        free[address] -= 1
        asked.address, asked.process, asked.attempts = address, workers[address].process, asked.attempts + 1
        asked.since, asked.report_after = time.monotonic(), REPORT
        at_work[crew.submit(asked.text(changes), address)] = asked


def _ended(
    future: Future[str], asked: _Asked, left: deque[_Asked], changes: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    error = None if future.cancelled() else future.exception()
    if future.cancelled() or error is not None:
        yield from _after_loss(asked, left, changes, f": {str(error) or type(error).__name__}" if error else "")
        return
    found = _read(future.result(), asked.task)
    if found.get("replaced"):
        yield from _after_loss(asked, left, changes)
    elif "broken" in found and not changes and asked.attempts < ATTEMPTS:
        _again(asked, left)
    else:
        yield asked.number, found


def _read(answer: object, task: Task) -> dict[str, Any]:
    """Return the outcome that a worker's answer is, which is data: only text within limits, of the shape of `done`."""
    try:
        if not isinstance(answer, str):
            raise ValueError("no text")
        found = load_json(answer, _ANSWER + _OF_WORD * len(task.words))
        told = {name: found[name] for name, kind in _FIELDS.items() if type(found.get(name)) is kind}
        if not told.keys() & {"document", "broken", "replaced"}:
            raise ValueError("it has no document")
    except (ValueError, AttributeError) as error:
        return {"broken": f"the worker's answer is not an outcome of gpunode's: {error}"}
    return told


def _after_loss(
    asked: _Asked, left: deque[_Asked], changes: bool, why: str = ""
) -> Iterator[tuple[int, dict[str, Any]]]:
    if not changes and asked.attempts < ATTEMPTS:
        _again(asked, left)
        return
    yield asked.number, {"lost": f"the worker at {asked.address} was lost in the middle of it{why}"}


def _again(asked: _Asked, left: deque[_Asked]) -> None:
    asked.avoided.add(asked.address)
    left.append(asked)
