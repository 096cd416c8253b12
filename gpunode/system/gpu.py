"""GPUs as nvidia-smi shows them: the proof that driver, library and hardware work together.

A GPU that lacks something answers in brackets: [N/A], [Not Supported], or that it has been deprecated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpunode.base.reading import Reading
from gpunode.system.smi import NOT_TOLD, address, parse_answer

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


def _clocks(row: Mapping[str, str]) -> Clocks:
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


def _pair(row: Mapping[str, str], prefix: str) -> tuple[int, int] | None:
    memory, graphics = _mhz(row[f"{prefix}.memory"]), _mhz(row[f"{prefix}.graphics"])
    return None if memory is None or graphics is None else (memory, graphics)


def _mhz(cell: str) -> int | None:
    return int(cell) if _MHZ.fullmatch(cell) else None


@dataclass(frozen=True)
class MigMode(Reading):
    """Hold MIG mode, now and after the next reset: Enabled, Disabled or [N/A]."""

    current: str
    pending: str


@dataclass(frozen=True)
class Gpu(Reading):
    """Hold one row of `nvidia-smi --query-gpu`; memory in MiB."""

    index: int
    uuid: str
    name: str
    pci_address: str
    driver_version: str
    memory_mib: int | None
    mig_mode: MigMode
    compute_mode: str
    persistence_mode: str
    power: PowerLimit = field(default_factory=PowerLimit)
    clocks: Clocks = field(default_factory=Clocks)
    ecc: Ecc = field(default_factory=Ecc)


@dataclass(frozen=True)
class Gpus(Reading):
    """Hold what nvidia-smi said.

    `status` is ok, absent (no nvidia-smi), no driver, no library, lost, mismatch (driver and library), hangs or error;
    `message` is the program's own first line where it is not ok, or why it was not asked, and then there is no
    `exit_code`.
    """

    status: str
    exit_code: int | None
    message: str | None
    gpus: tuple[Gpu, ...]


def _gpu(row: dict[str, str]) -> Gpu:
    cells = (row[f"power.{name}"] for name in ("limit", "default_limit", "min_limit", "max_limit"))
    limits = (float(cell) if _WATTS.fullmatch(cell) else None for cell in cells)
    return Gpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        name=row["name"],
        pci_address=address(row["pci.bus_id"]),
        driver_version=row["driver_version"],
        memory_mib=int(row["memory.total"]) if row["memory.total"].isdecimal() else None,
        mig_mode=MigMode(row["mig.mode.current"], row["mig.mode.pending"]),
        compute_mode=row["compute_mode"],
        persistence_mode=row["persistence_mode"],
        power=PowerLimit(*limits),
        clocks=_clocks(row),
        ecc=Ecc(row["ecc.mode.current"], row["ecc.mode.pending"]),
    )


def parse_gpus(lines: list[str]) -> Gpus:
    """Return the GPUs of nvidia-smi's answer (gpunode.system.smi.parse_answer)."""
    answer = parse_answer(lines)
    return Gpus(answer.status, answer.exit_code, answer.message, tuple(_gpu(row) for row in answer.rows))
