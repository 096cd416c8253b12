"""What a mutant is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

_AROUND, _LONGEST = 20, 100


@dataclass(frozen=True)
class Mutant:
    """Hold one change of a file.

    path: of the file, below the checkout
    line: where the change begins, from 1
    operator: how it was made
    before, after: what the change replaces, and by what
    texts: (before, after) of the text that scripts have of it, where it is one of a script
    make: returns the whole file with it, or None where that would be no file of its language
    nth: how many mutants of the same file are like this one in all that is above but the line
    """

    path: str
    line: int
    operator: str
    before: str
    after: str
    make: Callable[[], str | None]
    texts: tuple[str, str] | None = None
    nth: int = 0

    @property
    def order(self) -> str:
        """Return by what samples are taken: as if by chance, and the same while the change stays the same."""
        key = "\0".join((self.path, self.operator, self.before, self.after, str(self.nth)))
        return hashlib.sha256(key.encode()).hexdigest()

    def __str__(self) -> str:
        """Return `PATH:LINE: OPERATOR: BEFORE -> AFTER` in one line, of both what differs with a little around it."""
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        begin = max(_alike(before, after) - _AROUND, 0)
        end = max(_alike(before[:begin:-1], after[:begin:-1]) - _AROUND, 0)
        before, after = (text[begin : len(text) - end][:_LONGEST] for text in (before, after))
        return f"{self.path}:{self.line}: {self.operator}: {before} -> {after}"


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (left, right) in pairs if left != right), min(len(one), len(other)))


def counted(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """Yield mutants, those that are alike told apart by `nth`."""
    seen: dict[tuple[str, ...], int] = {}
    for mutant in mutants:
        key = (mutant.path, mutant.operator, mutant.before, mutant.after)
        seen[key] = seen.get(key, -1) + 1
        yield replace(mutant, nth=seen[key])
