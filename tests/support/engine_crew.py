"""Workers of an engine, SIMULATED in this process: which end, die and come back as they are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from gpunode.fleet.engine.dispatch import LostError, Task, Worker, outcomes

GOOD = {"worker": "w", "status": 0, "document": {"hosts": {}}}
BROKEN = {"worker": "w", "broken": "gpunode ended there (signal 9)"}
Act = Callable[["Crew", str, dict[str, Any], "Future[str]"], None]


class Crew:
    """Workers of this process: `acts` says what becomes of each task that is given, in turn; a good end if nothing."""

    def __init__(self, workers: Mapping[str, str | None], *acts: Act, slots: int = 1) -> None:
        self.there = {address: Worker(f"process of {address}", site, slots) for address, site in workers.items()}
        self.acts = list(acts)
        self.given: list[tuple[str, str]] = []
        self.at_once: dict[str, int] = {}
        self.pending: list[Callable[[], None]] = []
        # What happens at the next look but one.
        self.comes: list[Callable[[], None]] = []
        self.lost = False
        self.most = 0
        self.looks = 0
        self.ended: list[str] = []

    def workers(self) -> Mapping[str, Worker]:
        self.looks += 1
        assert self.looks < 1000, self.given
        # Whoever is asked goes on meanwhile.
        for end in self.pending:
            end()
        self.pending, self.comes = self.comes, []
        if self.lost:
            raise LostError("the scheduler was lost")
        return dict(self.there)

    def submit(self, task: str, address: str) -> Future[str]:
        told, future = json.loads(task), Future[str]()
        self.given.append((told["name"], address))
        self.at_once[address] = self.at_once.get(address, 0) + 1
        self.most = max(self.most, sum(self.at_once.values()))
        assert self.at_once[address] <= self.there[address].slots
        act = self.acts.pop(0) if self.acts else ends_with(GOOD)
        act(self, address, told, future)
        return future

    def end(self, names: list[str]) -> None:
        if self.lost:
            raise LostError("the scheduler was lost")
        self.ended += names


def ends_with(outcome: dict[str, Any], then: Callable[[Crew, str], None] = lambda crew, address: None) -> Act:
    """End at the next look, and do something more."""

    def act(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
        def end() -> None:
            crew.at_once[address] -= 1
            if outcome and not future.done():
                future.set_result(json.dumps(outcome))
            then(crew, address)

        crew.pending.append(end)

    return act


def replace(crew: Crew, address: str) -> None:
    crew.there[address] = Worker("another process", crew.there[address].site, 1)


def is_replaced(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
    """Die, and let another process take the address; Dask gives it the same task."""
    replace(crew, address)
    ends_with({"replaced": True, "broken": "replaced"} if told["only_by"] else GOOD)(crew, address, told, future)


dies = ends_with({}, lambda crew, address: crew.there.__delitem__(address))
# Another process takes the address, which knows nothing of the task.
is_replaced_and_says_nothing = ends_with({}, replace)


def ends_at_once(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
    crew.at_once[address] -= 1
    future.set_result(json.dumps(GOOD))


def is_forgotten(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
    """Be at work still, where a line that broke for a moment had the client cancel all that it waits for."""
    crew.at_once[address] -= 1
    future.cancel()
    future.set_running_or_notify_cancel()


def takes_the_scheduler_along(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
    crew.lost = True


def tasks(number: int, site: str | None = None, alone: bool = False) -> list[Task]:
    return [Task(f"t{each}", ("drift",), {}, site, alone) for each in range(number)]


def run(crew: Crew, todo: list[Task], changes: bool, patience: float = 0.01) -> dict[int, dict[str, Any]]:
    found = list(outcomes(crew, todo, changes, look=0.001, patience=patience))
    assert len({number for number, _ in found}) == len(found)
    return dict(found)


def is_forgotten_as_all_is_lost(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
    is_forgotten(crew, address, told, future)
    crew.lost = True


def dies_and_comes_back(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
    dies(crew, address, told, future)

    def come() -> None:
        if crew.looks < 20:
            crew.comes.append(come)
        else:
            crew.there["b"] = Worker("another process", None, 1)

    crew.comes.append(come)


ACTS: dict[str, Act] = {
    "breaks": ends_with(BROKEN), "dies": dies, "is replaced": is_replaced, "ends at once": ends_at_once,
    "is replaced and says nothing": is_replaced_and_says_nothing, "is forgotten": is_forgotten,
    "is forgotten as all is lost": is_forgotten_as_all_is_lost, "takes the scheduler along": takes_the_scheduler_along,
    "dies and comes back": dies_and_comes_back,
}  # fmt: skip


@dataclass(frozen=True)
class Dispatched:
    """Hold what came of each task, and how often any was given.

    first: the workers that the first task was given to; given: task -> worker; most: tasks at once; ended: by name
    """

    outcomes: list[str]
    times: int
    first: list[str]
    given: dict[str, str]
    most: int
    ended: list[str]


def dispatched(
    workers: dict[str, str | None], tasks: list[str], changes: bool, acts: tuple[str, ...] = (), patience: float = 0.01
) -> Dispatched:
    """Return what becomes of tasks.

    workers: name -> site; tasks: `NAME@SITE`, with a ! behind it where it is to be at work alone
    """
    crew = Crew(workers, *(ACTS[each] for each in acts))
    parts = [each.strip("!").partition("@") for each in tasks]
    todo = [Task(name, (), {}, site or None, "!" in each) for each, (name, _, site) in zip(tasks, parts, strict=True)]
    found = run(crew, todo, changes, patience)
    names = {json.dumps(GOOD): "good", json.dumps(BROKEN): "broken"}
    kinds = [json.dumps(found[number]) for number in range(len(todo))]
    first = [worker for task, worker in crew.given if task == todo[0].name]
    told = [names.get(each, each) for each in kinds]
    return Dispatched(told, len(crew.given), first, dict(crew.given), crew.most, crew.ended)
