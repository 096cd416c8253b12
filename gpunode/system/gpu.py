"""GPUs as nvidia-smi shows them: the proof that driver, library and hardware work together."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpunode.base.reading import Reading
from gpunode.system.gpu_settings import Clocks, Ecc, PowerLimit, clocks_of, ecc_of, power_of
from gpunode.system.smi import address, parse_answer


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
        power=power_of(row),
        clocks=clocks_of(row),
        ecc=ecc_of(row),
    )


def parse_gpus(lines: list[str]) -> Gpus:
    """Return the GPUs of nvidia-smi's answer (gpunode.system.smi.parse_answer)."""
    answer = parse_answer(lines)
    return Gpus(answer.status, answer.exit_code, answer.message, tuple(_gpu(row) for row in answer.rows))
