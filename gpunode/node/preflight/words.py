"""The words of refusals and cautions: preflight.yaml."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from gpunode.base.tables.reading import Row, Table, table
from gpunode.base.verdicts import Caution, Refusal


@dataclass(frozen=True)
class Words(Row):
    """Hold what is said of one thing, with {name} for what is told only where it is said."""

    component: str
    reason: str
    source: str
    remedy: str


words = table(Table[str, Words], "preflight.yaml")  # type: ignore[type-abstract]


def refusal(row: str, /, **said: Any) -> Refusal:
    """Return the refusal of a row of the table; raise KeyError where there is none, or where something is not said."""
    return Refusal(*(text.format(**said) for text in astuple(words()[row])))


def caution(row: str, /, **said: Any) -> Caution:
    """Return the caution of a row of the table; raise KeyError as `refusal` does."""
    return Caution(*(text.format(**said) for text in astuple(words()[row])))
