"""Rows of nvidia-smi as a reading asks for them; what a test does not say is an H100's."""

from __future__ import annotations

from gpunode.system.smi import QUERY

_H100 = {
    "index": "0", "uuid": "GPU-01000100-0000", "name": "NVIDIA H100 80GB HBM3", "pci.bus_id": "00000000:1A:00.0",
    "driver_version": "580.95.05", "memory.total": "81559", "mig.mode.current": "Disabled",
    "mig.mode.pending": "Disabled", "compute_mode": "Default", "persistence_mode": "Disabled",
    "pci.device_id": "0x233010DE", "ecc.errors.uncorrected.volatile.total": "0",
    "ecc.errors.uncorrected.aggregate.total": "0", "ecc.mode.current": "Enabled", "ecc.mode.pending": "Enabled",
    "power.limit": "700.00", "power.default_limit": "700.00", "power.min_limit": "200.00", "power.max_limit": "700.00",
    "clocks.applications.memory": "2619", "clocks.applications.graphics": "1980",
    "clocks.default_applications.memory": "2619", "clocks.default_applications.graphics": "1980",
    "clocks.max.memory": "2619", "clocks.max.graphics": "1980", "clocks.mem": "2619", "clocks.gr": "345",
}  # fmt: skip


def cells(**told: str) -> str:
    """Return a row; a dot of a field's name is two underscores here."""
    row = _H100 | {name.replace("__", "."): text for name, text in told.items()}
    return ", ".join(row[name] for name in QUERY)


def row(**told: str) -> str:
    """Return a row as the probe hands it on."""
    return f"gpu={cells(**told)}"


def memory(address: str, recent: str, ever: str) -> str:
    """Return the row of a GPU whose memory has these counts of errors."""
    told = {"ecc__errors__uncorrected__volatile__total": recent, "ecc__errors__uncorrected__aggregate__total": ever}
    return row(pci__bus_id=address, **told)
