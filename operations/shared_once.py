"""What a run does, or asks, once for all of its hosts: by the first host that comes to it.

pyinfra's own `_run_once` is silently skipped where the one host that it chose has failed before (pyinfra 3.10). Here
every host of the run has the operation, whichever comes first does the work, and the others wait for what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from gevent.event import Event  # type: ignore[import-untyped]
from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State
from pyinfra.context import ctx_host

from gpunode.base.probe import Announced
from gpunode.base.run_context import Slot
from gpunode.operations.failure import OperationRefused
from gpunode.operations.phase import is_announcing, is_executing

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Task:
    """Hold what one host does, or asks, for all; `by` is that host."""

    by: str
    done: Event = field(default_factory=Event)
    well: bool = False
    answer: Any = None

    def end(self, well: bool, answer: Any = None) -> None:
        """Tell all who wait what became of it."""
        self.well, self.answer = well, answer
        self.done.set()


_tasks: Slot[dict[tuple[bool, str], Task]] = Slot(dict)


def _task(name: str, again: bool = True) -> tuple[Task, bool]:
    """Return the task of this phase of the run, and whether this host is the one to do it."""
    tasks = _tasks.of(host.state)
    key = (again and is_executing(), name)
    mine = key not in tasks
    return tasks.setdefault(key, Task(host.name)), mine


def asked_once(name: str, ask: Callable[[], T], again: bool = True) -> T:
    """Return what `ask` gives, which is called by the first host of a phase alone; it raises what it raises for all.

    + name: of the question; a phase asks it once
    + again: whether it is asked again when the run is carried out
    """
    answer = _tasks.of(host.state).get((again and is_executing(), name))
    if is_announcing(ctx_host.get()) and (answer is None or not answer.done.is_set()):
        # No node is asked, so that nothing is announced.
        raise Announced
    task, mine = _task(name, again)
    if mine:
        try:
            task.end(True, ask())
        except BaseException as error:
            task.end(False, error)
            raise
    task.done.wait()
    if task.well:
        found: T = task.answer
        return found
    raise OperationRefused(f"{name}: see what {task.by} is told")


def once_per_run(what: str) -> Callable[[Callable[P, Iterator[Any]]], Callable[P, Iterator[Any]]]:
    """Have the body of an operation run for the first host that comes to it, and the others wait for its end.

    Where it fails it fails for all of them: what they have to do next builds upon it. The body yields FunctionCommands.

    + what: is brought about, for people
    """

    def decorate(function: Callable[P, Iterator[Any]]) -> Callable[P, Iterator[Any]]:
        @wraps(function)
        def once(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
            if is_announcing(ctx_host.get()):
                raise Announced
            task, mine = _task(f"{function.__module__}.{function.__name__}")
            if mine:
                yield from _carried_out(task, function(*args, **kwargs))
                return
            task.done.wait()
            if not task.well:
                raise OperationRefused(f"{what}: not done, see what {task.by} is told")
            host.noop(f"{what}: {task.by} sees to it, for all nodes")

        return once

    return decorate


def _carried_out(task: Task, commands: Iterator[Any]) -> Iterator[Any]:
    executing = is_executing()
    while True:
        try:
            command = next(commands, None)
        except BaseException:
            task.end(False)
            raise
        if command is None or not executing:
            # What is prepared ends with its first command: nobody carries it out.
            task.end(True)
        if command is None:
            return
        # A command that fails is the last that pyinfra asks for.
        yield FunctionCommand(watched, [command, partial(task.end, False)], {}) if executing else command


def watched(state: State, host: Host, command: FunctionCommand, on_failure: Callable[[], None]) -> bool:
    """Execute a command and return whether it succeeded; call `on_failure` where it did not, or raised an error."""
    well = False
    try:
        well = command.execute(state, host, {}) is not False
    finally:
        if not well:
            on_failure()
    return well
