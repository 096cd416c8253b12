"""What a node answered: the base class of every fact's result."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any


def _plain(value: Any) -> Any:
    if isinstance(value, Reading):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True)
class Reading:
    """Hold one typed fact; subclasses are frozen dataclasses.

    `pyinfra ... fact ... --json` prints what `to_json` returns.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Unknown(Reading):
    """Say that a node gave no answer; an operation that is given this fails and changes nothing."""

    reason: str = "the node gave no answer"

    def to_json(self) -> dict[str, Any]:
        """Return the reason under the key `unknown`."""
        return {"unknown": self.reason}


class ParseError(ValueError):
    """Say what in a probe's output could not be understood; facts turn it into FactProcessError."""
