"""What is known of GPUs: pci_ids.json, mig.yaml and health.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpunode.base.tables.reading import Row, Table


@dataclass(frozen=True)
class CriticalXid(Row):
    """Hold an Xid that says that a GPU is sick; `verified` as in the table."""

    name: str
    remedy: Literal["reset", "reboot"]
    verified: bool = True


@dataclass(frozen=True)
class RecoveryXid(Row):
    """Hold the Xid that says what the driver wants done; `actions`: number in it -> what it asks for."""

    code: int
    name: str
    actions: Table[str, Literal["none", "reset", "reboot", "named"]]


@dataclass(frozen=True)
class Health:
    """Hold health.yaml, with critical Xids by their number."""

    source: str
    critical_xids: Table[int, CriticalXid]
    recovery_xid: RecoveryXid


@dataclass(frozen=True)
class PciDevice:
    """Hold what is known of one GPU by its PCI device id (upper-case hex)."""

    device_id: str
    name: str
    chip: str
    generation: str


@dataclass(frozen=True)
class MigShape(Row):
    """Hold where one kind of GPU instance may stand: legal starts and size on the memory axis, and compute slices."""

    shape: str
    profile_id: int
    compute: int
    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class MigProduct(Row):
    """Hold a product with MIG: device ids (upper-case hex), geometry, and profile -> how many of it fit at most."""

    device_ids: tuple[str, ...]
    geometry: str
    profiles: Table[str, int]


@dataclass(frozen=True)
class Mig:
    """Hold mig.yaml.

    `geometries` lack the name of a geometry that nobody verified. `instances_with` is attribute -> how many instances
    with it a GPU holds at most; `compute_starts` is slices of a GPU instance -> size of a compute instance in it ->
    where one may start.
    `without_profiles` is device id -> name of GPUs with MIG of which no table of profiles was found, `chips_without`
    what the codes of chips without MIG begin with.
    """

    products: Table[str, MigProduct]
    geometries: Table[str, tuple[MigShape, ...]]
    instances_with: Table[str, int]
    compute_starts: Table[int, Table[int, tuple[int, ...]]]
    without_profiles: Table[str, str]
    chips_without: tuple[str, ...]
