"""What is known of GPUs (pci_ids.json, mig.yaml, health.yaml) and of releases of the driver and CUDA.

Those are in drivers.yaml, cuda.yaml, minimums.yaml and runfile.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AliasPath, Field

from gpunode.base import versions
from gpunode.base.tables.reading import Row, Table


@dataclass(frozen=True)
class Branch(Row):
    """Hold a driver branch: its kind, and the end of its life (YYYY-MM, `past` or `unknown`)."""

    kind: Literal["production", "long-term-support", "new-feature", "unknown"]
    end_of_life: str


@dataclass(frozen=True)
class SigningKey(Row):
    """Hold the pinned fingerprint (40 hex digits, upper case) of a repository's key; `verified` by us or only read."""

    fingerprint: str
    verified: bool = True


@dataclass(frozen=True)
class Drivers:
    """Hold drivers.yaml: branches, which flavour each GPU generation takes, its last branch, and signing keys.

    `retired_key_ids` are long key ids (16 hex digits) of keys that a node must no longer trust. `fabric_manager` is by
    packaging, deb and rpm. `last_proprietary` is the last branch of which NVIDIA's repositories have the proprietary
    module. Before `branch_in_name` (a branch) packages that go with a fabric bear theirs in their names; `suse_names`
    is first branch -> (generation, what ends the name of the kernel module's package), `suse_kernel_flavours`
    those of the kernels that modules come built for.
    """

    branches: Table[str, Branch]
    open_only: Annotated[frozenset[str], Field(validation_alias=AliasPath("flavours", "open_only"))]
    either: Annotated[frozenset[str], Field(validation_alias=AliasPath("flavours", "either"))]
    proprietary_only: Annotated[frozenset[str], Field(validation_alias=AliasPath("flavours", "proprietary_only"))]
    last_branch: Table[str, str]
    signing_keys: Table[str, SigningKey]
    retired_key_ids: tuple[str, ...]
    fabric_manager: Table[str, Table[str, str]]
    last_proprietary: Annotated[str, Field(validation_alias=AliasPath("proprietary_packages", "last_branch"))]
    branch_in_name: Annotated[str, Field(validation_alias=AliasPath("branch_in_name", "before"))]
    suse_names: Table[str, tuple[str, str]]
    suse_kernel_flavours: tuple[str, ...]

    def fabric_manager_package(self, version: str, packaging: str = "deb") -> str:
        """Return the name of fabric manager's package (deb or rpm) for a driver's version or branch.

        Raise VersionError.
        """
        name = versions.row_of(version, self.fabric_manager[packaging])
        return (name or "").replace("<branch>", versions.branch_of(version))

    def branch_suffix(self, version: str) -> str:
        """Return what nvidia-imex, libnvidia-nscq and libnvsdm bear behind their names, empty for nothing (`-570`).

        Raise VersionError.
        """
        branch = versions.branch_of(version)
        return f"-{branch}" if int(branch) < int(self.branch_in_name) else ""

    def suse_name(self, version: str, kernel: str | None) -> tuple[str, str]:
        """Return the generation in the names of NVIDIA's packages for SUSE, and what ends the kernel module's.

        + kernel: the release of the kernel for which a module comes built, by whose flavour it is named

        Raise VersionError.
        """
        generation, module = versions.row_of(version, self.suse_names) or ("", "")
        flavour = (kernel or "").rpartition("-")[2]
        known = flavour if flavour in self.suse_kernel_flavours else "default"
        return generation, module.replace("<kernel flavour>", known)


@dataclass(frozen=True)
class Cuda:
    """Hold cuda.yaml: the driver each toolkit needs, and the GPU generations that a toolkit dropped."""

    minor_version_compatibility: Table[str, str]
    toolkit_driver: Table[str, str]
    dropped: Table[str, frozenset[str]]

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Return every major.minor that the table knows, newest first."""
        known = {versions.major_minor(release) for release in self.toolkit_driver}
        return tuple(sorted(known, key=versions.parsed, reverse=True))

    def minor_driver(self, version: str) -> str | None:
        """Return the oldest driver that minor-version compatibility promises for a toolkit; None without a promise."""
        return self.minor_version_compatibility.get(versions.branch_of(version))

    def full_driver(self, version: str) -> str | None:
        """Return the driver shipped with a toolkit, for major.minor with its newest patch release; None if unknown."""
        fitting = [release for release in self.toolkit_driver if versions.in_branch(release, version)]
        return self.toolkit_driver[max(fitting, key=versions.parsed)] if fitting else None

    def dropped_generations(self, version: str) -> frozenset[str]:
        """Return the generations that the toolkit `version` no longer supports."""
        gone = (generations for first, generations in self.dropped.items() if versions.at_least(version, first))
        return frozenset().union(*gone)


@dataclass(frozen=True)
class Minimum(Row):
    """Hold one stated minimum: exactly one of `minimum` (a version) and `equals` (a value) is set."""

    component: str
    source: str
    minimum: str | None = None
    equals: str | None = None
    needed_by: str | None = None
    when: str | None = None
    alternative_to: str | None = None
    kind: Literal["minimum", "security"] = "minimum"


@dataclass(frozen=True)
class DriverRunfile(Row):
    """Hold the address of the driver's installer, and ability of it -> first version (or branch) that has it."""

    url: str
    architectures: Table[str, str]
    first_version: Table[str, str]


@dataclass(frozen=True)
class CudaRunfile(Row):
    """Hold where CUDA's installer is; from `without_driver` (a release) on it has no driver, and names none."""

    url: str
    without_driver: str
    platforms: Table[str, str]


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
