"""Whether the GPUs themselves are well: uncorrected memory errors, rows to be remapped, Xids of the kernel log."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpunode import tables
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.probe_output import repeated, values
from gpunode.reading import ParseError, Reading

if TYPE_CHECKING:
    from gpunode.node import Node

ECC_QUERY = ("pci.bus_id", "ecc.errors.uncorrected.volatile.total", "ecc.errors.uncorrected.aggregate.total")
ROWS_QUERY = ("gpu_bus_id", "remapped_rows.pending", "remapped_rows.failure")

# NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus. Older drivers leave PCI: out.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([^)]{1,40})\): (\d{1,4})(?:, ?(.*))?$")
_FLAGS = {"1": True, "yes": True, "0": False, "no": False}
_REMEDIES = {
    "reset": "drain the node and reset the GPU (`nvidia-smi --gpu-reset -i {address}`) or reboot; "
    "where it comes back, have the GPU replaced",
    "reboot": "drain and reboot the node; where it comes back, have the GPU replaced",
}


@dataclass(frozen=True)
class GpuHealth(Reading):
    """Hold what one GPU says of its memory; None where it does not tell (no ECC, no row remapper, MIG instances).

    `uncorrected_errors` counts since the driver was loaded, `uncorrected_errors_ever` over the GPU's life.
    """

    pci_address: str
    uncorrected_errors: int | None = None
    uncorrected_errors_ever: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    requires_reset: bool = False


@dataclass(frozen=True)
class Xid(Reading):
    """Hold one kind of Xid that a GPU reported since the boot, with the words of one such line."""

    pci_address: str
    code: int
    message: str


@dataclass(frozen=True)
class Health(Reading):
    """Hold what nvidia-smi and the kernel log say of the GPUs' health.

    `exit_code` is that of nvidia-smi's memory query, None where there is no nvidia-smi. `log_read` says whether the
    kernel log could be read: where not, that there is no Xid means nothing.
    """

    exit_code: int | None = None
    gpus: tuple[GpuHealth, ...] = ()
    xids: tuple[Xid, ...] = ()
    log_read: bool = False


def _address(text: str) -> str:
    """Return a PCI address as everywhere else: 00000000:1A:00.0 is 0000:1a:00.0."""
    lowered = text.strip().lower()
    return lowered.removeprefix("0000") if len(lowered.split(":")[0]) == 8 else lowered


def _rows(lines: list[str], query: tuple[str, ...]) -> Iterator[list[str]]:
    for line in lines:
        if not line.strip() or line.startswith("No devices were found"):
            continue
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if len(cells) != len(query):
            raise ParseError(f"nvidia-smi printed {len(cells)} of {len(query)} columns: {line[:120]!r}")
        yield cells


def _number(cell: str) -> int | None:
    return int(cell) if cell.isascii() and cell.isdigit() else None


def _xid(line: str) -> Xid | None:
    match = _XID.search(line)
    return Xid(_address(match[1]), int(match[2]), (match[3] or "").strip()) if match else None


def parse_health(lines: list[str]) -> Health:
    """Parse the health probe's lines (facts/health.py).

    What follows a failed query is an error's words and no rows. A line of the log that is no Xid is left out: anything
    may stand in a kernel log.
    """
    found = values(lines)
    code = found.get("ecc.rc", "")
    if code and not code.isdigit():
        raise ParseError(f"not an exit code of nvidia-smi: {code[:40]!r}")
    gpus: dict[str, GpuHealth] = {}
    for address, recent, ever in _rows(repeated(lines, "ecc"), ECC_QUERY) if code == "0" else ():
        requires_reset = any("requires reset" in cell.lower() for cell in (recent, ever))
        gpus[_address(address)] = GpuHealth(
            _address(address), _number(recent), _number(ever), requires_reset=requires_reset
        )
    # A driver or a GPU without the row remapper refuses this query or answers [N/A]: then nothing is known of it.
    for address, pending, failed in _rows(repeated(lines, "rows"), ROWS_QUERY) if found.get("rows.rc") == "0" else ():
        gpu = gpus.get(_address(address), GpuHealth(_address(address)))
        gpus[gpu.pci_address] = replace(
            gpu, remap_pending=_FLAGS.get(pending.lower()), remap_failed=_FLAGS.get(failed.lower())
        )
    xids = (_xid(line) for line in repeated(lines, "xid"))
    return Health(
        exit_code=int(code) if code else None,
        gpus=tuple(gpus.values()),
        xids=tuple(dict.fromkeys(xid for xid in xids if xid is not None)),
        log_read=found.get("log") == "read",
    )


def health(node: Node) -> Iterator[Finding]:
    """Judge whether the GPUs are well; what does not answer at all is told by nvidia-smi's own finding."""
    found = node.health
    if node.gpus.status == "ok" and found.exit_code not in (None, 0):
        yield _sick("memory errors by nvidia-smi", f"exit code {found.exit_code}", "an answer", None, None)
    for gpu in found.gpus:
        yield from _memory(gpu)
    critical = tables.critical_xids()
    # A container sees the log of its host, and so the Xids of GPUs that are not its own.
    ours = [xid for xid in found.xids if any(gpu.address.startswith(xid.pci_address) for gpu in node.pci.gpus)]
    for xid in ours:
        if row := critical.get(xid.code):
            yield replace(
                _sick(f"Xid {xid.code}", xid.message or row.name, "none since the boot", row.remedy, xid.pci_address),
                cause=f"{row.name}; it stays in the kernel log until the node boots",
                source=row.source if row.verified else f"{row.source} (not looked up there)",
            )
    if found.log_read and not any(xid.code in critical for xid in ours):
        yield Finding("health", FindingClass.OK, "Xids", "none that is critical", "none that is critical")


def _memory(gpu: GpuHealth) -> Iterator[Finding]:
    address, errors = gpu.pci_address, gpu.uncorrected_errors
    bad = []
    if gpu.requires_reset:
        bad.append(_sick("state", "GPU requires reset", "usable", "reset", address))
    if errors:
        item = _sick("uncorrected ECC errors", str(errors), "0", "reset", address)
        bad.append(replace(item, cause="its memory lost data since the driver was loaded"))
    if gpu.remap_failed:
        item = _sick("row remapping", "failed", "none failed", None, address)
        bad.append(replace(item, cause="it has no spare row left", remedy="drain the node and have the GPU replaced"))
    elif gpu.remap_pending:
        item = _sick("row remapping", "pending", "none pending", "reset", address)
        bad.append(replace(item, cause="bad rows of its memory are replaced at the next reset"))
    yield from bad
    if not bad and errors is not None:
        yield Finding("health", FindingClass.OK, f"memory of {address}", "no uncorrected error", "no uncorrected error")


def _sick(what: str, found: str, wanted: str, remedy: str | None, address: str | None) -> Finding:
    return Finding(
        component="health",
        finding_class=FindingClass.ERROR,
        what=f"{what} of {address}" if address else what,
        found=found,
        wanted=wanted,
        remedy=_REMEDIES[remedy].format(address=address) if remedy else "run nvidia-smi on the node",
        disturbs=Disturbance[remedy] if remedy else None,
    )
