"""What is asked again and what is not: parts given to SIMULATED workers, which end, die and come back as told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.engine.dispatch import ATTEMPTS, LostError, Task, Worker, outcomes

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

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


@given(st.integers(0, 20), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_every_part_has_one_outcome_and_is_given_once(number: int, workers: int, slots: int, changes: bool) -> None:
    crew = Crew({f"w{each}": None for each in range(workers)}, slots=slots)
    assert run(crew, tasks(number), changes) == dict.fromkeys(range(number), GOOD)
    assert sorted(name for name, _ in crew.given) == sorted(f"t{each}" for each in range(number))


@pytest.mark.parametrize("end", [ends_with(BROKEN), dies])
def test_what_reads_and_did_not_come_back_whole_is_asked_again_of_another_worker_and_no_more_than_so_often(
    end: Act,
) -> None:
    crew = Crew({"a": None, "b": None}, end)
    assert run(crew, tasks(3), changes=False) == dict.fromkeys(range(3), GOOD)
    assert [address for name, address in crew.given if name == "t0"] == ["a", "b"]
    crew = Crew({"a": None, "b": None, "c": None}, *[ends_with(BROKEN)] * 5)
    assert run(crew, tasks(1), changes=False) == {0: BROKEN}
    assert len(crew.given) == ATTEMPTS


@pytest.mark.parametrize("changes", [False, True])
def test_what_a_broken_line_made_the_client_forget_is_ended_before_anything_takes_its_place(changes: bool) -> None:
    crew = Crew({"a": None, "b": None}, is_forgotten)
    found = run(crew, tasks(2), changes)
    assert crew.ended == ["t0"] and found[1] == GOOD
    assert found[0] == GOOD if not changes else list(found[0]) == ["lost"]


def test_where_the_scheduler_went_with_the_line_each_part_says_so() -> None:
    def is_forgotten_as_all_is_lost(crew: Crew, *given: Any) -> None:
        is_forgotten(crew, *given)
        crew.lost = True

    for _ in range(10):
        # What has ended at the same look is told as it ended, in whatever order.
        crew = Crew({"a": None}, ends_at_once, is_forgotten_as_all_is_lost, slots=2)
        found = run(crew, tasks(2), changes=True)
        assert found[0] == GOOD and list(found[1]) == ["lost"] and len(found) == 2
    found = run(Crew({"a": None}, is_forgotten_as_all_is_lost), tasks(2), changes=True)
    assert [list(found[number]) for number in (0, 1)] == [["lost"], ["waiting"]] and "scheduler" in found[0]["lost"]


@pytest.mark.parametrize("end", [dies, is_replaced, is_replaced_and_says_nothing, ends_with(BROKEN)])
def test_what_changes_nodes_is_begun_once_whatever_becomes_of_its_worker(end: Act) -> None:
    crew = Crew({"a": None, "b": None}, end)
    found = run(crew, tasks(3), changes=True)
    assert sorted(name for name, _ in crew.given) == ["t0", "t1", "t2"]
    assert {**found, 0: GOOD} == dict.fromkeys(range(3), GOOD)
    assert "lost" in found[0] or found[0] == BROKEN


def test_a_process_that_takes_the_place_of_another_is_given_new_parts() -> None:
    crew = Crew({"a": None}, is_replaced)
    found = run(crew, tasks(2), changes=True)
    assert "lost" in found[0] and found[1] == GOOD


def test_a_site_s_workers_take_that_site_s_hosts_and_no_others() -> None:
    crew = Crew({"a": "berlin", "b": "oslo", "c": None})
    todo = [Task("x", (), {}, "oslo"), Task("y", (), {}, None), Task("z", (), {}, "berlin")]
    assert run(crew, todo, changes=False) == dict.fromkeys(range(3), GOOD)
    assert dict(crew.given) == {"x": "b", "y": "c", "z": "a"}


@pytest.mark.parametrize("site", ["paris", None])
def test_hosts_that_no_worker_takes_are_told_and_hold_nobody_up(site: str | None) -> None:
    found = run(Crew({"a": "berlin"}), [Task("x", (), {}, site), Task("y", (), {}, "berlin")], changes=True)
    assert list(found[0]) == ["waiting"] and (site or "no site") in found[0]["waiting"] and found[1] == GOOD


def test_where_the_last_worker_of_a_site_dies_what_was_not_begun_says_so() -> None:
    found = run(Crew({"a": None}, dies), tasks(2), changes=True)
    assert [list(found[number]) for number in (0, 1)] == [["lost"], ["waiting"]] and "no site" in found[1]["waiting"]


@pytest.mark.parametrize("changes", [False, True])
def test_the_last_worker_of_a_site_may_come_back_as_dask_s_nanny_starts_one_anew(changes: bool) -> None:
    def dies_and_comes_back(crew: Crew, address: str, told: dict[str, Any], future: Future[str]) -> None:
        dies(crew, address, told, future)

        def come() -> None:
            if crew.looks < 20:
                crew.comes.append(come)
            else:
                crew.there["a, started anew"] = Worker("another process", None, 1)

        crew.comes.append(come)

    crew = Crew({"a": None}, dies_and_comes_back)
    found = run(crew, tasks(2), changes, patience=60)
    # What reads is asked again; what changes nodes is told, and what was not begun is.
    assert found[1] == GOOD and (found[0] == GOOD or (changes and "lost" in found[0]))
    assert crew.given[-1][1] == "a, started anew"


def test_where_the_scheduler_is_lost_what_was_begun_is_told_apart_from_what_was_not() -> None:
    found = run(Crew({"a": None, "b": None}, takes_the_scheduler_along), tasks(3), changes=True)
    assert set(found) == {0, 1, 2}
    assert (list(found[0]), list(found[2])) == (["lost"], ["waiting"]) and "scheduler" in found[2]["waiting"]


def test_of_parts_whose_nodes_are_disturbed_one_is_at_work_at_a_time() -> None:
    crew = Crew({"a": None, "b": None, "c": None})
    assert run(crew, tasks(5, alone=True), changes=True) == dict.fromkeys(range(5), GOOD)
    assert crew.most == 1
    crew = Crew({"a": None, "b": None, "c": None})
    run(crew, [*tasks(3, alone=True), Task("quiet", (), {})], changes=True)
    assert crew.most == 2
