"""How each family's package manager changes a node; `family.Family` says what one must be able to do."""

from __future__ import annotations

from operations.families.apt import APT
from operations.families.dnf import DNF
from operations.families.family import DriverChange, Family
from operations.families.pacman import PACMAN
from operations.families.zypper import ZYPPER

FAMILIES: dict[str, Family] = {family.name: family for family in (APT, DNF, PACMAN, ZYPPER)}

__all__ = ["APT", "DNF", "FAMILIES", "PACMAN", "ZYPPER", "DriverChange", "Family"]
