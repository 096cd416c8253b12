"""What goes round a change that restarts a node's container runtime: a drain, where one is entered here.

Nothing is, so far: Kubernetes will enter the first. design.md: a node that failed stays cordoned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Drain:
    """Hold how a node is emptied before its runtime is restarted, and taken back after that.

    + before: given the reason, yield what empties the node; nothing where the node belongs to no cluster
    + after: yield what takes it back, where it was this run that emptied it

    Both run within the operation that restarts the runtime, and may read facts. pyinfra gives a generator no second
    word after a command that failed: then `after` is not asked, and the node stays empty until somebody has looked.
    """

    before: Callable[[str], Iterator[Any]]
    after: Callable[[], Iterator[Any]]


_entered: list[Drain] = []


def enter(drain: Drain) -> None:
    """Have a drain go round every restart of a container runtime; the one that is entered last is the innermost."""
    _entered.append(drain)


def around(reason: str, commands: Iterable[Any]) -> Iterator[Any]:
    """Yield the commands that restart a runtime, between what empties the node and what takes it back."""
    for drain in _entered:
        yield from drain.before(reason)
    yield from commands
    for drain in reversed(_entered):
        yield from drain.after()


__all__ = ["Drain", "around", "enter"]
