"""Where packages come from (distributions.yaml, driver_packages.yaml, repositories.yaml), and container runtimes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from gpunode.base.tables.reading import Row, Table

Family = Literal["apt", "dnf", "dnf5", "zypper", "pacman"]


@dataclass(frozen=True)
class OpenBehind(Row):
    """Hold the version of an archive's open `module`, and of the `rest` of its driver, which updates have moved on."""

    module: str
    rest: str


@dataclass(frozen=True)
class Distribution(Row):
    """Hold a supported distribution; `architectures` maps `uname -m` to the folder in NVIDIA's repository.

    `repository` is None where NVIDIA has none for it: all comes from its own. `family` is that of its package manager,
    `docker` the folder in Docker's repository, None where it is the id, empty where that has nothing for it;
    `containerd` says whether it has that package. `unverified_key` is the address of the key of NVIDIA's repository
    where that is one whose fingerprint the settings must name, since nobody has verified it.

    `driver_branch` and `cuda` (major.minor) are for settings that name none, None where the settings' own default
    holds; `driver_branches` those of NVIDIA's repository, oldest first, empty where nobody has told which it lacks;
    `oldest_cuda` likewise. `own_branch` is the branch of the distribution's own driver. `refused_keys` are names of
    signing keys that its package manager does not take. `there` are packages of gpunode's tools that every node of it
    has under another name, which excludes that one; `epel` says whether dkms is in EPEL, where the package manager is
    dnf, and not in its own archive. `codename` is the release in Docker's repository for apt. `newer` is the version of
    a node's system that is newer than every row of its id, and that this row, the newest one, is taken for.
    """

    id: str
    version: str
    name: str
    architectures: Table[str, str]
    repository: str | None = None
    family: Family = "apt"
    docker: str | None = None
    containerd: bool = True
    unverified_key: str | None = None
    own_branch: str | None = None
    driver_branch: str | None = None
    driver_branches: tuple[str, ...] = ()
    cuda: str | None = None
    oldest_cuda: str | None = None
    refused_keys: tuple[str, ...] = ()
    open_behind: OpenBehind | None = None
    there: tuple[str, ...] = ()
    epel: bool = True
    codename: str | None = None
    newer: str | None = None


@dataclass(frozen=True)
class Refused(Row):
    """Hold why a distribution that is known is not supported, in one version or in all."""

    id: str
    reason: str
    version: str | None = None


@dataclass(frozen=True)
class ArchiveComponents(Row):
    """Hold components of the archive with an Origin that packages of a branch `below` this one depend on."""

    origin: str
    components: tuple[str, ...]
    below: str


@dataclass(frozen=True)
class DriverSource(Row):
    """Hold where a driver's packages come from on some systems, and their names.

    It is a row of driver_packages.yaml, which says at its head what each field means.
    """

    source: str
    systems: tuple[str, ...]
    name: str
    module: Literal["dkms", "signed"]
    modules: Table[str, str]
    packages: Table[str, Table[str, Literal["driver", "any"]]]
    leaves: tuple[str, ...]
    marks: tuple[str, ...]
    verified: bool = True
    origin: str | None = None
    components: tuple[str, ...] = ()
    family: Family = "apt"
    headers: str = "linux-headers-<kernel>"
    installs_headers: bool = True
    headers_of_image: bool = False
    fabric_manager: Literal["deb", "rpm"] = "deb"
    stream: Table[str, str] = field(default_factory=dict)
    leaves_with_source: tuple[str, ...] = ()
    kernels: Table[str, Table[str, str]] = field(default_factory=dict)
    moves_together: bool = False
    also_from_archive: Table[str, ArchiveComponents] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    since: Table[str, str] = field(default_factory=dict)
    flavour_since: Table[str, str] = field(default_factory=dict)
    kernel_modules: tuple[str, ...] = ()
    metapackages: Table[str, tuple[str, ...]] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    def for_kernels(self, bases: tuple[str, ...]) -> DriverSource:
        """Return the row with the packages for the distribution's kernels, by their names (linux, linux-lts).

        Each kernel has a package of its own; for one that has none DKMS builds the module. The first of `bases`, the
        kernel that boots next, decides which it is, for the packages of both ways exclude each other. Those of further
        kernels (`beside`) come along with a driver, and are no reason to change one. Without any it is linux.
        """
        if not self.kernels:
            return self
        first, *others = bases or ("linux",)
        built = all(first not in names for names in self.kernels.values())
        further = {
            group: [] if built else [names[base] for base in others if base in names]
            for group, names in self.kernels.items()
        }
        modules = {group: [names.get(first, names["other"]), *further[group]] for group, names in self.kernels.items()}
        filled = {
            group: {
                each: bound
                for name, bound in names.items()
                for each in (modules[group] if name == "<module>" else [name])
            }
            for group, names in self.packages.items()
        }
        return replace(
            self,
            packages=MappingProxyType(filled),
            module="dkms" if built else "signed",
            headers=f"{bases[0]}-headers" if bases else self.headers,
            beside=tuple(sorted({name for names in further.values() for name in names})),
        )

    @property
    def built_on_node(self) -> bool:
        """Say whether DKMS builds the kernel module on the node."""
        return self.module == "dkms"


@dataclass(frozen=True)
class PublicRepository(Row):
    """Hold a public package repository: URLs with placeholders, and the pinned fingerprint of its key.

    `packages_signed`: the key signs each package, too, not only the list of them with their digests.
    """

    url: str
    key_url: str
    key_fingerprint: str
    packages_signed: bool = True


@dataclass(frozen=True)
class Repositories(Row):
    """Hold repositories.yaml: name -> what all have, what a family's or a distribution's own has otherwise."""

    repositories: Table[str, Table[str, Any]]
    own: Table[str, Table[str, Table[str, Any]]]
    families: Table[str, Table[str, Table[str, Any]]]


@dataclass(frozen=True)
class ContainerdSchema(Row):
    """Hold how containerd reads files from a version on: version of a file -> its sections that count."""

    default_version: int
    sections: Table[int, tuple[str, ...]]


@dataclass(frozen=True)
class Containerd:
    """Hold containerd.yaml: schemas, and versions of containerd.

    Before `one_schema_before` all files together have one schema version. From `drop_ins_merge_since` on it merges a
    drop-in with the root file key by key. Before `default_table_before` it reads the table `default_runtime`; before
    `byte_order_mark_before` it takes a file that begins with such a mark. Since `cdi_always_since` it has no option
    that turns CDI off.
    """

    schemas: Table[str, ContainerdSchema]
    one_schema_before: str
    drop_ins_merge_since: str
    default_table_before: str
    byte_order_mark_before: str
    cdi_always_since: str


@dataclass(frozen=True)
class DockerClient(Row):
    """Hold from which release on a distribution has docker's client as a package of its own, and its name."""

    id: str
    since: str
    package: str


@dataclass(frozen=True)
class Toolkit(Row):
    """Hold toolkit.yaml: the first versions of the container toolkit that have something.

    `modes` of its runtime; `hooks` that a CDI specification may name; `cdi_versions`, and the programs that read them;
    `refresh_since`: nvidia-cdi-refresh;
    `mounts_in_mode_cdi`: its mode `cdi` takes mounts of a plain name; `ldconfig_of_node`: a path needs an @.
    Of its config.toml: `keys` -> what they are, `files`: key -> modes that need its file, `runtimes` where it has none.
    """

    modes: Table[str, str]
    hooks: Table[str, str]
    cdi_versions: tuple[str, ...]
    cdi_readers: Table[str, Table[str, str]]
    refresh_since: str
    mounts_in_mode_cdi: str
    keys: Table[str, str]
    files: Table[str, tuple[str, ...]]
    ldconfig_of_node: str
    runtimes: tuple[str, ...]
