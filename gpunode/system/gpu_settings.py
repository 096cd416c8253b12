"""What a GPU tells of its power limit, its clocks and ECC, out of a row of nvidia-smi's.

A GPU that lacks something says so in brackets: [N/A], [Not Supported], or that it has been deprecated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpunode.base.reading import Reading
from gpunode.system.smi import NOT_TOLD

_WATTS = re.compile(r"\d{1,6}(\.\d{1,4})?", re.ASCII)
_MHZ = re.compile(r"\d{1,6}", re.ASCII)


@dataclass(frozen=True)
class PowerLimit(Reading):
    """Hold the power limit in watts, the GPU's default, and the least and the most that it takes; None: not told."""

    limit: float | None = None
    default: float | None = None
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Clocks(Reading):
    """Hold clocks in MHz: pairs are (memory, graphics); None: not told.

    `application_said` is what the GPU says of application clocks where it tells none. `memory` and `graphics` are those
    of the moment, the most those that it never goes beyond.
    """

    application: tuple[int, int] | None = None
    default_application: tuple[int, int] | None = None
    application_said: str = NOT_TOLD
    most_memory: int | None = None
    most_graphics: int | None = None
    memory: int | None = None
    graphics: int | None = None


@dataclass(frozen=True)
class Ecc(Reading):
    """Hold the mode of ECC, now and after the next boot: Enabled, Disabled or what the GPU says instead."""

    current: str = NOT_TOLD
    pending: str = NOT_TOLD


def power_of(row: Mapping[str, str]) -> PowerLimit:
    """Return the power limit of a row."""
    return PowerLimit(*(_watts(row[f"power.{name}"]) for name in ("limit", "default_limit", "min_limit", "max_limit")))


def clocks_of(row: Mapping[str, str]) -> Clocks:
    """Return the clocks of a row."""
    said = row["clocks.applications.graphics"]
    application = _pair(row, "clocks.applications")
    return Clocks(
        application=application,
        default_application=_pair(row, "clocks.default_applications"),
        application_said="" if application else said,
        most_memory=_mhz(row["clocks.max.memory"]),
        most_graphics=_mhz(row["clocks.max.graphics"]),
        memory=_mhz(row["clocks.mem"]),
        graphics=_mhz(row["clocks.gr"]),
    )


def ecc_of(row: Mapping[str, str]) -> Ecc:
    """Return the modes of ECC of a row."""
    return Ecc(row["ecc.mode.current"], row["ecc.mode.pending"])


def _pair(row: Mapping[str, str], prefix: str) -> tuple[int, int] | None:
    memory, graphics = _mhz(row[f"{prefix}.memory"]), _mhz(row[f"{prefix}.graphics"])
    return None if memory is None or graphics is None else (memory, graphics)


def _watts(cell: str) -> float | None:
    return float(cell) if _WATTS.fullmatch(cell) else None


def _mhz(cell: str) -> int | None:
    return int(cell) if _MHZ.fullmatch(cell) else None
