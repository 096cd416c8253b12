"""What a driver is told of its GPUs whenever it is loaded: rules by kind, for one product or for every GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpunode.settings.power import PowerSettings

LIMIT, APPLICATION, GRAPHICS, MEMORY = "limit", "application", "graphics", "memory"
KINDS = (LIMIT, APPLICATION, GRAPHICS, MEMORY)
EVERY = "*"
_LINE = re.compile(r"(limit|application|graphics|memory) (\d{1,6}(?:,\d{1,6})?) (\*|[A-Za-z0-9][^'\\]{0,79})", re.ASCII)


@dataclass(frozen=True)
class Rule:
    """Hold one rule: watts of a limit, `memory,graphics` or `lowest,highest` in MHz of clocks; product: * is every."""

    kind: str
    value: str
    product: str = EVERY

    @property
    def line(self) -> str:
        """Return the rule as it stands in gpunode's script."""
        return f"{self.kind} {self.value} {self.product}"


def rules(settings: PowerSettings) -> tuple[Rule, ...]:
    """Return the rules of the settings; the first that fits a GPU counts. ECC is none: the GPU itself keeps it."""
    return tuple(_rules(settings))


def _rules(settings: PowerSettings) -> Iterator[Rule]:
    for product, watts in sorted(settings.limits.items()):
        yield Rule(LIMIT, str(watts), product)
    values = (
        (LIMIT, settings.limit),
        (APPLICATION, settings.application_clocks),
        (GRAPHICS, settings.locked_graphics_clocks),
        (MEMORY, settings.locked_memory_clocks),
    )
    for kind, value in values:
        if value is not None:
            yield Rule(kind, str(value))


def parsed(lines: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules in lines of gpunode's script; a line that is none, for somebody edited it, is left out."""
    return tuple(Rule(*match.groups()) for line in lines if (match := _LINE.fullmatch(line)))


def rule_for(every: Iterable[Rule], kind: str, product: str) -> Rule | None:
    """Return the rule of a kind for a GPU of that name; None where there is none."""
    return next((rule for rule in every if rule.kind == kind and rule.product in (EVERY, product)), None)
