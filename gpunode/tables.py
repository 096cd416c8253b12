"""Read the tables of gpunode/data once, into typed frozen objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from types import MappingProxyType
from typing import Any

import yaml

from gpunode import versions


@dataclass(frozen=True)
class Branch:
    """Hold a driver branch: kind (production, long-term-support, new-feature) and end of life (YYYY-MM, or `past`).

    Both may be `unknown`.
    """

    kind: str
    end_of_life: str


@dataclass(frozen=True)
class SigningKey:
    """Hold the pinned fingerprint (40 hex digits, upper case) of a repository's key; `verified` by us or only read."""

    fingerprint: str
    verified: bool


@dataclass(frozen=True)
class Drivers:
    """Hold drivers.yaml: branches, which flavour each GPU generation takes, its last branch, and signing keys.

    `retired_key_ids` are long key ids (16 hex digits) of keys that a node must no longer trust. `fabric_manager` has
    the names of its package, deb and rpm, before and from branch 580. `last_proprietary` is the last branch of which
    NVIDIA's repositories have the proprietary module. Before `branch_in_name` (a branch) packages that go with a fabric
    bear theirs in their names; `suse_names` are (first branch, generation, what stands behind the kernel module's
    package), newest first, `suse_kernel_flavours` those of the kernels that modules come built for.
    """

    branches: Mapping[str, Branch]
    open_only: frozenset[str]
    either: frozenset[str]
    proprietary_only: frozenset[str]
    last_branch: Mapping[str, str]
    mixed_generations: str
    signing_keys: Mapping[str, SigningKey]
    retired_key_ids: tuple[str, ...]
    fabric_manager: Mapping[str, Mapping[str, str]]
    last_proprietary: str
    branch_in_name: str
    suse_names: tuple[tuple[str, str, str], ...]
    suse_kernel_flavours: tuple[str, ...]

    def fabric_manager_package(self, version: str, packaging: str = "deb") -> str:
        """Return the name of fabric manager's package (deb or rpm) for a driver's version or branch.

        Raise VersionError.
        """
        branch = versions.branch_of(version)
        name = self.fabric_manager[packaging]["from_580" if int(branch) >= 580 else "before_580"]
        return name.replace("<branch>", branch)

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
        branch = int(versions.branch_of(version))
        generation, module = next(names for first, *names in self.suse_names if branch >= int(first))
        flavour = (kernel or "").rpartition("-")[2]
        known = flavour if flavour in self.suse_kernel_flavours else "default"
        return generation, module.replace("<kernel flavour>", known)


@dataclass(frozen=True)
class Cuda:
    """Hold cuda.yaml: the driver each toolkit needs, and the GPU generations that a toolkit dropped."""

    minor_version_compatibility: Mapping[str, str]
    toolkit_driver: Mapping[str, str]
    dropped: Mapping[str, frozenset[str]]

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Return every major.minor that the table knows, newest first."""
        known = {versions.major_minor(release) for release in self.toolkit_driver}
        return tuple(sorted(known, key=versions.parsed, reverse=True))

    def is_newer(self, version: str) -> bool:
        """Say whether a major.minor came after all that the table knows."""
        return versions.parsed(version) > versions.parsed(self.versions[0])

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
class Minimum:
    """Hold one stated minimum: exactly one of `minimum` (a version) and `equals` (a value) is set."""

    component: str
    source: str
    minimum: str | None = None
    equals: str | None = None
    needed_by: str | None = None
    when: str | None = None
    alternative_to: str | None = None
    kind: str = "minimum"


@dataclass(frozen=True)
class CriticalXid:
    """Hold an Xid that says that a GPU is sick; `remedy` is reset or reboot, `verified` as in the table."""

    code: int
    name: str
    remedy: str
    source: str
    verified: bool


@dataclass(frozen=True)
class RecoveryXid:
    """Hold the Xid that says what the driver wants done; `actions`: number in it -> none, reset, reboot or named."""

    code: int
    name: str
    source: str
    actions: Mapping[str, str]


@dataclass(frozen=True)
class PciExample:
    """Hold PCI device ids (upper-case hex) that are known to be of one generation."""

    ids: tuple[str, ...]
    generation: str


@dataclass(frozen=True)
class PciRule:
    """Hold pci.yaml: NVIDIA's vendor id, chip prefix -> generation, and checked examples by product.

    `multi_node_nvlink` are words in the names of GPUs whose NVLink reaches other machines.
    """

    vendor: str
    chip_prefix: Mapping[str, str]
    examples: Mapping[str, PciExample]
    multi_node_nvlink: tuple[str, ...] = ()


@dataclass(frozen=True)
class PciDevice:
    """Hold what is known of one GPU by its PCI device id (upper-case hex)."""

    device_id: str
    name: str
    chip: str
    generation: str


@dataclass(frozen=True)
class MigShape:
    """Hold where one kind of GPU instance may stand: legal starts and size on the memory axis, and compute slices."""

    shape: str
    profile_id: int
    compute: int
    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class MigProduct:
    """Hold a product with MIG: device ids (upper-case hex), geometry, and profile -> how many of it fit at most."""

    name: str
    device_ids: tuple[str, ...]
    geometry: str
    profiles: Mapping[str, int]


@dataclass(frozen=True)
class Mig:
    """Hold mig.yaml.

    `geometries` lack the name of a geometry that nobody verified. `instances_with` is attribute -> how many instances
    with it a GPU holds at most; `compute_starts` is slices of a GPU instance -> size of a compute instance in it ->
    where one may start.
    `without_profiles` is device id -> name of GPUs with MIG of which no table of profiles was found.
    """

    products: Mapping[str, MigProduct]
    geometries: Mapping[str, tuple[MigShape, ...]]
    instances_with: Mapping[str, int]
    compute_starts: Mapping[int, Mapping[int, tuple[int, ...]]]
    without_profiles: Mapping[str, str]


@dataclass(frozen=True)
class Distribution:
    """Hold a supported distribution; `architectures` maps `uname -m` to the folder in NVIDIA's repository.

    `repository` is None where NVIDIA has none for it: all comes from its own. `family` is that of its package manager,
    `docker` the folder in Docker's repository, None where it is the id, empty where that has nothing for it;
    `containerd` says whether it has that package. `unverified_key` is the address of the key of NVIDIA's repository
    where that is one whose fingerprint the settings must name, since nobody has verified it.

    `driver_branch` and `cuda` (major.minor) are for settings that name none, None where the settings' own default
    holds; `driver_branches` those of NVIDIA's repository, oldest first, empty where nobody has told which it lacks;
    `oldest_cuda` likewise. `own_branch` is the branch of the distribution's own driver, and `open_behind` the version
    of its open `module` and of the `rest` of that driver, where security updates have left the module behind.
    `refused_keys` are names of signing keys that its package manager does not take. `there` are packages of gpunode's
    tools that every node of it has under another name, which excludes that one; `epel` says whether dkms is in EPEL,
    where the package manager is dnf, and not in its own archive.
    """

    id: str
    version: str
    name: str
    architectures: Mapping[str, str]
    repository: str | None = None
    family: str = "apt"
    docker: str | None = None
    containerd: bool = True
    unverified_key: str | None = None
    own_branch: str | None = None
    driver_branch: str | None = None
    driver_branches: tuple[str, ...] = ()
    cuda: str | None = None
    oldest_cuda: str | None = None
    refused_keys: tuple[str, ...] = ()
    open_behind: Mapping[str, str] | None = None
    there: tuple[str, ...] = ()
    epel: bool = True


@dataclass(frozen=True)
class ArchiveComponents:
    """Hold components of the archive with an Origin that packages of a branch `below` this one depend on."""

    origin: str
    components: tuple[str, ...]
    below: str


@dataclass(frozen=True)
class DriverSource:
    """Hold where a driver's packages come from on some systems, and their names: a row of driver_packages.yaml.

    `module` is dkms or signed, `modules` maps a flavour to the kernel module's name, `packages` a group to name ->
    `driver` or `any`; `origin` is None where no distribution's archive is meant. `stream` maps a flavour to the module
    stream that holds it, where a repository has such; `fabric_manager` says whose names of it, deb or rpm. `headers`
    is the package of a kernel's headers, `installs_headers` whether gpunode installs it with the driver, and
    `headers_of_image` whether before it, by the version of the kernel's own package. `kernels` maps a flavour to the
    name of its package for each of the distribution's kernels (`other`: for the rest, by DKMS), which <module> stands
    for; `moves_together`: all packages of the driver are of one version, and what else there is of it has to be told to
    come along to a new one. `also_from_archive` maps a system to what packages of older branches need of its own
    archive; `apart` are packages of the driver that are numbered otherwise than it; `since` maps a package to the first
    branch that has it, where not all have, `flavour_since` a flavour; `leaves_with_source` is as `leaves`, but only
    where the driver comes from another source from now on; `kernel_modules` are names of packages with the module that
    others bring; `metapackages` maps a flavour to those that
    are not asked for, and stay where they are of the wanted version.
    """

    source: str
    systems: tuple[str, ...]
    name: str
    module: str
    modules: Mapping[str, str]
    packages: Mapping[str, Mapping[str, str]]
    origin: str | None = None
    components: tuple[str, ...] = ()
    family: str = "apt"
    headers: str = "linux-headers-<kernel>"
    installs_headers: bool = True
    headers_of_image: bool = False
    fabric_manager: str = "deb"
    stream: Mapping[str, str] = field(default_factory=dict)
    leaves: tuple[str, ...] = ()
    leaves_with_source: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    kernels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    moves_together: bool = False
    also_from_archive: Mapping[str, ArchiveComponents] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    since: Mapping[str, str] = field(default_factory=dict)
    flavour_since: Mapping[str, str] = field(default_factory=dict)
    kernel_modules: tuple[str, ...] = ()
    metapackages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def for_kernel(self, base: str | None) -> DriverSource:
        """Return the row with the packages for one of the distribution's kernels, by its name (linux, linux-lts)."""
        if not self.kernels:
            return self
        known = base or "linux"
        modules = {group: names.get(known, names["other"]) for group, names in self.kernels.items()}
        filled = {
            group: {modules[group] if name == "<module>" else name: bound for name, bound in names.items()}
            for group, names in self.packages.items()
        }
        built = all(known not in names for names in self.kernels.values())
        return replace(
            self,
            packages=MappingProxyType(filled),
            module="dkms" if built else "signed",
            headers=f"{base}-headers" if base else self.headers,
        )

    @property
    def built_on_node(self) -> bool:
        """Say whether DKMS builds the kernel module on the node."""
        return self.module == "dkms"


@dataclass(frozen=True)
class PublicRepository:
    """Hold a public package repository: URLs with placeholders, and the pinned fingerprint of its key.

    `packages_signed`: the key signs each package, too, not only the list of them with their digests.
    """

    url: str
    key_url: str
    key_fingerprint: str
    packages_signed: bool = True


@dataclass(frozen=True)
class Runfiles:
    """Hold runfile.yaml: addresses with placeholders, how architectures are named there, and installers' options.

    `first_version` maps an ability of the driver's installer to the first version (or branch) that has it. From
    `cuda_without_driver` (a release) on CUDA's installer brings no driver, and names none.
    """

    driver_url: str
    driver_architectures: Mapping[str, str]
    first_version: Mapping[str, str]
    cuda_url: str
    cuda_without_driver: str
    cuda_platforms: Mapping[str, str]


@dataclass(frozen=True)
class DockerClient:
    """Hold from which release on a distribution has docker's client as a package of its own, and its name."""

    id: str
    since: str
    package: str


@dataclass(frozen=True)
class ContainerdSchema:
    """Hold which configuration schemas a range of containerd versions accepts, and the id of its CRI plugin."""

    containerd: str
    default_version: int
    accepts: tuple[int, ...]
    cri_plugin: str
    verified: bool
    version_1_plugins: bool = False


def _text(name: str) -> str:
    return resources.files("gpunode.data").joinpath(name).read_text(encoding="utf-8")


def content(name: str) -> dict[str, Any]:
    """Return a table of gpunode/data as it stands there."""
    # libyaml's, where PyYAML has it: Python's own takes 0.08 s for these tables, in every command and run.
    found: dict[str, Any] = yaml.load(_text(name), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


@cache
def drivers() -> Drivers:
    """Return drivers.yaml."""
    table = content("drivers.yaml")
    flavours = table["flavours"]
    keys = {
        name: SigningKey(key["fingerprint"], key.get("verified", True))
        for name, key in table["signing_keys"].items()
        if "fingerprint" in key
    }
    return Drivers(
        branches=MappingProxyType({name: Branch(**branch) for name, branch in table["branches"].items()}),
        open_only=frozenset(flavours["open_only"]),
        either=frozenset(flavours["either"]),
        proprietary_only=frozenset(flavours["proprietary_only"]),
        last_branch=MappingProxyType(table["last_branch"]),
        mixed_generations=table["mixed_generations"],
        signing_keys=MappingProxyType(keys),
        retired_key_ids=tuple(key["key_id"] for key in table["signing_keys"].values() if "key_id" in key),
        fabric_manager=MappingProxyType(
            {packaging: table["fabric_manager"][packaging] for packaging in ("deb", "rpm")}
        ),
        last_proprietary=table["proprietary_packages"]["last_branch"],
        branch_in_name=table["branch_in_name"]["before"],
        suse_kernel_flavours=tuple(table["suse_kernel_flavours"]),
        suse_names=tuple((row["first"], row["generation"], row["module"]) for row in table["suse_names"]),
    )


@cache
def cuda() -> Cuda:
    """Return cuda.yaml."""
    table = content("cuda.yaml")
    return Cuda(
        minor_version_compatibility=MappingProxyType(table["minor_version_compatibility"]),
        toolkit_driver=MappingProxyType(table["toolkit_driver"]),
        dropped=MappingProxyType({first: frozenset(names) for first, names in table["dropped"].items()}),
    )


@cache
def minimums() -> tuple[Minimum, ...]:
    """Return every stated minimum of minimums.yaml, in the file's order."""
    return tuple(Minimum(**row) for row in content("minimums.yaml")["minimums"])


@cache
def mig_minimum_driver() -> Mapping[str, str]:
    """Return product (`H100`, `RTX PRO 6000`) -> oldest driver with MIG on it."""
    return MappingProxyType(content("minimums.yaml")["mig_minimum_driver"])


@cache
def mig() -> Mig:
    """Return mig.yaml."""
    table = content("mig.yaml")
    products = {
        name: MigProduct(name, tuple(row["device_ids"]), row["geometry"], MappingProxyType(row["profiles"]))
        for name, row in table["products"].items()
    }
    geometries = {
        name: tuple(MigShape(**{**row, "starts": tuple(row["starts"])}) for row in rows)
        for name, rows in table["geometries"].items()
    }
    return Mig(
        products=MappingProxyType(products),
        geometries=MappingProxyType(geometries),
        instances_with=MappingProxyType(table["instances_with"]),
        compute_starts=MappingProxyType(
            {
                slices: MappingProxyType({size: tuple(starts) for size, starts in row.items()})
                for slices, row in table["compute_starts"].items()
            }
        ),
        without_profiles=MappingProxyType(table["without_profiles"]),
    )


@cache
def critical_xids() -> Mapping[int, CriticalXid]:
    """Return the Xids of health.yaml by their number."""
    table = content("health.yaml")
    return MappingProxyType(
        {
            int(code): CriticalXid(int(code), row["name"], row["remedy"], table["source"], row.get("verified", True))
            for code, row in table["critical_xids"].items()
        }
    )


@cache
def recovery_xid() -> RecoveryXid:
    """Return the Xid of health.yaml that tells the recovery action."""
    table = content("health.yaml")
    row = table["recovery_xid"]
    return RecoveryXid(int(row["code"]), row["name"], table["source"], MappingProxyType(row["actions"]))


@cache
def pci_rule() -> PciRule:
    """Return pci.yaml."""
    table = content("pci.yaml")
    examples = {
        product: PciExample(tuple(example["ids"]), example["generation"])
        for product, example in table["examples"].items()
    }
    return PciRule(
        table["vendor"], MappingProxyType(table["chip_prefix"]), MappingProxyType(examples),
        tuple(table["multi_node_nvlink"]),
    )  # fmt: skip


@cache
def _pci_devices() -> Mapping[str, PciDevice]:
    table = json.loads(_text("pci_ids.json"))["devices"]
    return MappingProxyType({device_id: PciDevice(device_id, **row) for device_id, row in table.items()})


def pci_device(device_id: str) -> PciDevice | None:
    """Return the GPU with a PCI device id (four hex digits, any case, `0x` allowed); None if it is not in the table."""
    return _pci_devices().get(device_id.lower().removeprefix("0x").upper())


@cache
def disk_space(component: str) -> Mapping[str, int]:
    """Return folder -> bytes that a row of disk.yaml (driver, cuda, each with _runfile) needs free beforehand."""
    needs = content("disk.yaml")["needs_mib"][component]
    return MappingProxyType({folder: size * 1024**2 for folder, size in needs.items()})


def _frozen(value: Any) -> Any:
    """Return a row's value as a frozen object holds it."""
    if isinstance(value, dict):
        return MappingProxyType(value)
    return tuple(value) if isinstance(value, list) else value


@cache
def distributions() -> tuple[Distribution, ...]:
    """Return the supported distributions of distributions.yaml."""
    return tuple(
        Distribution(**{name: _frozen(value) for name, value in row.items()})
        for row in content("distributions.yaml")["distributions"]
    )


def reason_to_refuse(os_id: str, version_id: str) -> str | None:
    """Return why a distribution that is known is not supported; None where nothing is known of it."""
    rows = content("distributions.yaml")["refused"]
    return next(
        (row["reason"] for row in rows if row["id"] == os_id and version_id == row.get("version", version_id)), None
    )


def distribution(os_id: str, version_id: str) -> Distribution | None:
    """Return the supported distribution with that /etc/os-release ID and VERSION_ID; None if there is none.

    A row whose version is a major number alone is for all its minor releases.
    """
    fitting = (version_id, version_id.partition(".")[0])
    return next((row for row in distributions() if row.id == os_id and row.version in fitting), None)


@cache
def driver_sources() -> tuple[DriverSource, ...]:
    """Return the sources of driver packages, of driver_packages.yaml."""
    return tuple(
        DriverSource(
            source=row["source"],
            systems=tuple(row["systems"]),
            name=row["name"],
            module=row["module"],
            modules=MappingProxyType(row["modules"]),
            packages=MappingProxyType(row["packages"]),
            origin=row.get("origin"),
            components=tuple(row.get("components", ())),
            family=row.get("family", "apt"),
            headers=row.get("headers", "linux-headers-<kernel>"),
            installs_headers=row.get("installs_headers", True),
            headers_of_image=row.get("headers_of_image", False),
            fabric_manager=row.get("fabric_manager", "deb"),
            stream=MappingProxyType(row.get("stream", {})),
            leaves=tuple(row["leaves"]),
            leaves_with_source=tuple(row.get("leaves_with_source", ())),
            marks=tuple(row["marks"]),
            kernels=MappingProxyType(row.get("kernels", {})),
            metapackages=MappingProxyType({name: tuple(all_) for name, all_ in row.get("metapackages", {}).items()}),
            moves_together=row.get("moves_together", False),
            apart=tuple(row.get("apart", ())),
            also_from_archive=MappingProxyType(
                {
                    system: ArchiveComponents(needs["origin"], tuple(needs["components"]), needs["below"])
                    for system, needs in row.get("also_from_archive", {}).items()
                }
            ),
            since=MappingProxyType(row.get("since", {})),
            flavour_since=MappingProxyType(row.get("flavour_since", {})),
            kernel_modules=tuple(row.get("kernel_modules", ())),
        )
        for row in content("driver_packages.yaml")["sources"]
    )


def installs_headers(os_id: str) -> bool:
    """Say whether gpunode installs kernels' headers on a system by its /etc/os-release ID."""
    return any(row.installs_headers for row in driver_sources() if os_id in row.systems)


def headers_of_image(os_id: str) -> bool:
    """Say whether gpunode installs headers by the version of the kernel's own package on a system."""
    return any(row.headers_of_image for row in driver_sources() if os_id in row.systems)


def driver_source(source: str, os_id: str) -> DriverSource | None:
    """Return the row for a setting of driver.source on a system by its /etc/os-release ID; None if there is none."""
    return next((row for row in driver_sources() if row.source == source and os_id in row.systems), None)


@cache
def repositories(family: str = "apt", folder: str | None = None) -> Mapping[str, PublicRepository]:
    """Return the public repositories (cuda, toolkit, docker) of a family of distributions, with their pinned keys.

    + folder: the name of a distribution's own in NVIDIA's repository (`debian13`), which may have another key
    """
    table = content("repositories.yaml")
    found = {}
    for name, common in table["repositories"].items():
        own = table.get(family, {}).get(name, {}) if family != "apt" else {}
        own = {**own, **table["own"].get(folder, {}).get(name, {})}
        row = {**common, **own}
        # A key that the family names counts before a fingerprint that all have.
        pinned = "key_fingerprint" in (own if "key" in own or "key_fingerprint" in own else row)
        fingerprint = row["key_fingerprint"] if pinned else drivers().signing_keys[row["key"]].fingerprint
        found[name] = PublicRepository(row["url"], row["key_url"], fingerprint, row.get("packages_signed", True))
    return MappingProxyType(found)


@cache
def runfiles() -> Runfiles:
    """Return runfile.yaml."""
    table = content("runfile.yaml")
    driver, toolkit = table["driver"], table["cuda"]
    return Runfiles(
        driver_url=driver["url"],
        driver_architectures=MappingProxyType(driver["architectures"]),
        first_version=MappingProxyType(driver["first_version"]),
        cuda_url=toolkit["url"],
        cuda_without_driver=toolkit["without_driver"],
        cuda_platforms=MappingProxyType(toolkit["platforms"]),
    )


@cache
def toolkit_refresh_since() -> str:
    """Return the first version of the container toolkit that has nvidia-cdi-refresh (toolkit.yaml)."""
    return str(content("toolkit.yaml")["refresh_since"])


@cache
def toolkit_mounts_in_mode_cdi() -> str:
    """Return the first version of the container toolkit whose mode `cdi` takes mounts of a plain name."""
    return str(content("toolkit.yaml")["mounts_in_mode_cdi"])


def toolkit_modes() -> Mapping[str, str]:
    """Return mode of the container toolkit's runtime -> its first version that knows it (toolkit.yaml)."""
    return MappingProxyType(content("toolkit.yaml")["modes"])


@cache
def toolkit_hooks() -> Mapping[str, str]:
    """Return hook that a CDI specification may name -> the toolkit's first version that has it (toolkit.yaml)."""
    return MappingProxyType(content("toolkit.yaml")["hooks"])


@cache
def removals_of_runtimes() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return family -> package of a container runtime -> the packages that its manager would remove for it."""
    return MappingProxyType(
        {
            family: MappingProxyType({name: tuple(gone) for name, gone in rows.items()})
            for family, rows in content("runtimes.yaml")["removes"].items()
        }
    )


def removed_for_runtimes(family: str = "apt") -> Mapping[str, tuple[str, ...]]:
    """Return package of a container runtime -> the packages that a family's manager would remove for it.

    By runtimes.yaml; empty for a family of which no such relations are known.
    """
    return removals_of_runtimes().get(family, {})


@cache
def docker_clients() -> tuple[DockerClient, ...]:
    """Return where docker's client is a package of its own (runtimes.yaml)."""
    return tuple(DockerClient(**row) for row in content("runtimes.yaml")["clients"])


@cache
def containerd_schemas() -> tuple[ContainerdSchema, ...]:
    """Return the configuration schemas of containerd.yaml."""
    return tuple(
        ContainerdSchema(
            containerd=row["containerd"],
            default_version=row["default_version"],
            accepts=tuple(row["accepts"]),
            cri_plugin=row["cri_plugin"],
            verified=row.get("verified", True),
            version_1_plugins=row.get("version_1_plugins", False),
        )
        for row in content("containerd.yaml")["schemas"]
    )


def containerd_merges_drop_ins_since() -> str:
    """Return the first containerd version that merges a drop-in with the root file key by key."""
    return str(content("containerd.yaml")["drop_ins_merge_since"])


def containerd_byte_order_mark_before() -> str:
    """Return the first containerd version that cannot read a file which begins with a byte order mark."""
    return str(content("containerd.yaml")["byte_order_mark_before"])


def containerd_default_table_before() -> str:
    """Return the first containerd version that does not read the table `default_runtime` any more."""
    return str(content("containerd.yaml")["default_table_before"])
