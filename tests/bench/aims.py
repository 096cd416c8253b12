"""What the benchmarks aim at, as data: how many times as long as another one a way may take, or has to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Aim:
    """Aim at `way` taking at most (or at least) `limit` times as long as `of`, at a number of nodes."""

    way: str
    of: str
    at_nodes: int
    limit: float
    at_least: bool = False

    @property
    def name(self) -> str:
        """Say it in a line."""
        return f"{self.way} {'≥' if self.at_least else '≤'} {self.limit:g} × {self.of}"

    def measured(self, medians: Mapping[int, Mapping[str, float]]) -> float | None:
        """Return how many times as long it took, by nodes -> way -> median; None where one of the two is missing."""
        found = medians.get(self.at_nodes, {})
        return found[self.way] / found[self.of] if self.way in found and self.of in found else None

    def met(self, medians: Mapping[int, Mapping[str, float]]) -> bool | None:
        """Say whether it is met, before anything is rounded; None where it was not measured."""
        measured = self.measured(medians)
        if measured is None:
            return None
        return measured >= self.limit if self.at_least else measured <= self.limit


# Fixed work and `ssh true` hold nothing of gpunode's: what makes gpunode slower makes neither of them slower.
AIMS = (
    Aim("drift", "fixed work", 20, 1.3),
    Aim("drift", "ssh true", 20, 4),
    Aim("drift", "fixed work", 100, 1.3),
    *(Aim("no-change run", "drift", nodes, 2) for nodes in (20, 100)),
    *(Aim("stock dry run", "drift", nodes, 5, at_least=True) for nodes in (20, 100)),
    # Beyond 20 nodes ansible is not measured.
    Aim("ansible check", "drift", 20, 20, at_least=True),
)


def as_json(aims: Sequence[Aim], medians: Mapping[int, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return every aim with what was measured, as plain JSON types; measured and met are null where it was not."""
    told = []
    for aim in aims:
        measured = aim.measured(medians)
        told.append(
            {
                "name": aim.name,
                "ways": [aim.way, aim.of],
                "at_nodes": aim.at_nodes,
                "bound": "at least" if aim.at_least else "at most",
                "limit": aim.limit,
                "measured": None if measured is None else round(measured, 3),
                "met": aim.met(medians),
            }
        )
    return told


def as_markdown(aims: Sequence[Aim], medians: Mapping[int, Mapping[str, float]]) -> list[str]:
    """Return a table of the aims, as lines."""
    lines = ["| aim | nodes | measured | met |", "|---|---:|---:|---|"]
    words = {True: "yes", False: "**no**", None: "not measured"}
    for aim in aims:
        measured = aim.measured(medians)
        figure = "–" if measured is None else f"{measured:.2f}"
        lines.append(f"| {aim.name} | {aim.at_nodes} | {figure} | {words[aim.met(medians)]} |")
    return lines
