"""The words of refusals and cautions: preflight.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpunode.base.codes import preflight
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


def _said(row: str, said: Mapping[str, Any]) -> dict[str, str]:
    return {name: text.format(**said) for name, text in asdict(words()[row]).items()}


def refusal(row: str, /, **said: Any) -> Refusal:
    """Return the refusal of a row of the table; raise KeyError where there is none, or where something is not said."""
    return Refusal(**_said(row, said), code=preflight(row))


def caution(row: str, /, **said: Any) -> Caution:
    """Return the caution of a row of the table; raise KeyError as `refusal` does."""
    return Caution(**_said(row, said), code=preflight(row))
