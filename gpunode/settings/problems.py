"""What is wrong with settings, as data and as one message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST_VALUE = 120


@dataclass(frozen=True)
class Problem:
    """Hold one mistake: dotted key, the value as written, what is wrong, what is allowed, and the host if known."""

    key: str
    value: str
    message: str
    allowed: tuple[str, ...] = ()
    host: str | None = None

    def __str__(self) -> str:
        """Return `HOST: KEY = VALUE: MESSAGE; allowed: A, B`."""
        where = f"{self.host}: " if self.host else ""
        allowed = f"; allowed: {', '.join(self.allowed)}" if self.allowed else ""
        return f"{where}{self.key} = {self.value}: {self.message}{allowed}"

    def to_json(self) -> dict[str, object]:
        """Return the fields as plain JSON types."""
        return {
            "host": self.host,
            "key": self.key,
            "value": self.value,
            "message": self.message,
            "allowed": list(self.allowed),
        }


class SettingsError(ValueError):
    """Hold every problem of one host's, or of all hosts', settings; its text is the one message that lists them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Take the problems in the order in which they are listed."""
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{count} mistake{'' if count == 1 else 's'} in the settings; nothing was done:"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


def written(value: object) -> str:
    """Return a value as a person wrote it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name that `name` most likely meant; None if none is near."""
    found = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.6)
    return found[0] if found else None
