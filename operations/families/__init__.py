"""How each family's package manager changes a node; `family.Family` says what one must be able to do."""

from __future__ import annotations

from gpunode.base.tables.sources import Distribution
from gpunode.operations.families.apt import APT
from gpunode.operations.families.dnf import DNF
from gpunode.operations.families.dnf5 import DNF5
from gpunode.operations.families.family import DriverChange, Family
from gpunode.operations.families.pacman import PACMAN
from gpunode.operations.families.zypper import ZYPPER

FAMILIES: dict[str, Family] = {family.name: family for family in (APT, DNF, DNF5, PACMAN, ZYPPER)}


def tools(distribution: Distribution, holds: bool) -> tuple[str, ...]:
    """Return the packages that gpunode needs on a node of a distribution; `holds`: to keep others still, too."""
    family = FAMILIES[distribution.family]
    names = (*family.tools, *(family.holding_tools if holds else ()))
    return tuple(name for name in names if name not in distribution.there)


__all__ = ["APT", "DNF", "DNF5", "FAMILIES", "PACMAN", "ZYPPER", "DriverChange", "Family", "tools"]
