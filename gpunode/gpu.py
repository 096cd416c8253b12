"""GPUs as nvidia-smi shows them: the proof that driver, library and hardware work together."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from gpunode.probe_output import repeated, values
from gpunode.reading import ParseError, Reading

QUERY = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "memory.total",
    "mig.mode.current",
    "mig.mode.pending",
    "compute_mode",
    "persistence_mode",
)

# nvidia-smi exits with NVML's codes (golden/README.md); 124 and 137 are timeout's own.
STATUS = {0: "ok", 9: "no driver", 12: "no library", 15: "lost", 18: "mismatch", 124: "hangs", 137: "hangs"}


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


@dataclass(frozen=True)
class Gpus(Reading):
    """Hold what nvidia-smi said.

    `status` is ok, absent (no nvidia-smi), no driver, no library, lost, mismatch (driver and library), hangs or error;
    `message` is the program's own first line where it is not ok.
    """

    status: str
    exit_code: int | None
    message: str | None
    gpus: tuple[Gpu, ...]


def _row(line: str) -> Gpu:
    cells = [cell.strip() for cell in next(csv.reader([line]))]
    if len(cells) != len(QUERY):
        raise ParseError(f"nvidia-smi printed {len(cells)} of {len(QUERY)} columns: {line[:120]!r}")
    row = dict(zip(QUERY, cells, strict=True))
    if not row["index"].isdigit():
        raise ParseError(f"nvidia-smi printed no GPU index: {line[:120]!r}")
    return Gpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        name=row["name"],
        pci_address=row["pci.bus_id"].lower().removeprefix("0000"),
        driver_version=row["driver_version"],
        memory_mib=int(row["memory.total"]) if row["memory.total"].isdigit() else None,
        mig_mode=MigMode(row["mig.mode.current"], row["mig.mode.pending"]),
        compute_mode=row["compute_mode"],
        persistence_mode=row["persistence_mode"],
    )


def parse_gpus(lines: list[str]) -> Gpus:
    """Parse `absent=yes`, or `rc=N` with one `smi=` line per line that nvidia-smi printed."""
    found = values(lines)
    if found.get("absent") == "yes":
        return Gpus("absent", None, "nvidia-smi is not installed", ())
    if not found.get("rc", "").isdigit():
        raise ParseError("the probe did not say nvidia-smi's exit code")
    exit_code = int(found["rc"])
    printed = [line for line in repeated(lines, "smi") if line.strip()]
    status = STATUS.get(exit_code, "error")
    if status != "ok":
        return Gpus(status, exit_code, printed[0] if printed else None, ())
    if len(printed) == 1 and printed[0].startswith("No devices were found"):
        return Gpus("ok", exit_code, printed[0], ())
    return Gpus(status, exit_code, None, tuple(_row(line) for line in printed))
