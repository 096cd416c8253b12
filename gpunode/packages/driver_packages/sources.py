"""Which packages a node's driver is made of, by where they come from: driver_packages.yaml, filled in.

A package manager more is a row more there; what is here knows no distribution.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from gpunode.base import tables, versions
from gpunode.base.tables.sources import DriverSource
from gpunode.packages.driver_packages.names import is_fabric_manager
from gpunode.packages.installed_packages import satisfies
from gpunode.settings.driver import DEFAULT_BRANCH, DriverSettings
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem

if TYPE_CHECKING:
    from gpunode.settings import Settings

_PLACEHOLDERS = {
    "<branch>": r"(?P<branch>\d{3})",
    "<rule>": r"(?P<rule>\d{3}(\.\d+)*)",
    "<flavour>": "(?P<flavour>-open)?",
    "<kernel>": "(?P<kernel>[a-z0-9.+-]+)",
    "<fabric manager>": r"nvidia-fabric-?manager(-\d{3})?",
    "<suffix>": r"(-\d{3})?",
    "<generation>": r"(?P<generation>G\d{2})",
    "<kmp>": "(-kmp-[a-z0-9]+)?",
    "<prebuilt>": r"nvidia(?P<kernel>-lts)?(?P<flavour>-open)?",
    "<built>": r"nvidia(?P<flavour>-open)?-dkms",
}


def driver_source(settings: Settings, system: OperatingSystem, boot: Boot | None = None) -> DriverSource | None:
    """Return where the driver's packages come from; None where gpunode installs none, or knows none for the system.

    + boot: which kernels there are; a distribution may have packages of its own for each of them
    """
    row = tables.driver_source(settings.driver.source, system.id) if settings.driver.enabled else None
    return row.for_kernels(boot.bases) if row is not None and boot is not None else row


def resolve_for_os(settings: Settings, system: OperatingSystem) -> Settings:
    """Return the settings with what they leave to the distribution: driver branch, CUDA's version, and the sources."""
    found = tables.distribution(system.id, system.version_id)
    driver, cuda = settings.driver, settings.cuda
    if found is not None and found.repository is None:
        # NVIDIA has no repository for it: what is not set comes from the distribution's own.
        if "source" not in driver.model_fields_set:
            driver = driver.model_copy(update={"source": "distribution"})
        if "source" not in cuda.model_fields_set:
            cuda = cuda.model_copy(update={"source": "distribution"})
    if driver.branch is None and driver.installs:
        named = found and (found.own_branch if driver.source == "distribution" else found.driver_branch)
        if driver.source == "distribution":
            # A rolling release has one branch: the node says which.
            named = named or system.driver_branch
        driver = driver.model_copy(update={"branch": named or DEFAULT_BRANCH})
    if found and found.cuda and cuda.source == "cuda-repository" and "version" not in cuda.model_fields_set:
        cuda = cuda.model_copy(update={"version": found.cuda})
    if driver is settings.driver and cuda is settings.cuda:
        return settings
    return settings.model_copy(update={"driver": driver, "cuda": cuda})


def archive_components(settings: Settings, system: OperatingSystem) -> tuple[str, tuple[str, ...]] | None:
    """Return (origin, components) of the distribution's own archive that the driver needs; None where it needs none.

    The settings are those of `resolve_for_os`.
    """
    source = driver_source(settings, system)
    if source is None:
        return None
    if source.origin is not None:
        return source.origin, source.components
    needs = source.also_from_archive.get(system.id)
    branch = settings.driver.branch
    if needs is None or branch is None or versions.at_least(branch, needs.below):
        return None
    return needs.origin, needs.components


def holds_kernels(settings: Settings, system: OperatingSystem, boot: Boot | None = None) -> bool:
    """Say whether kernels are held with the driver: where modules come built per kernel, a new one would have none."""
    source = driver_source(settings, system, boot)
    return settings.driver.hold_kernel or (source is not None and not source.built_on_node)


def package_set(
    settings: DriverSettings, source: DriverSource, flavour: str, further: Collection[str], boot: Boot
) -> dict[str, str | None]:
    """Return package -> rule (branch or version; None: any) of the driver, as its source names the packages.

    + flavour: open or proprietary
    + further: groups of packages that this node needs beside, as `further_groups` tells them
    + boot: what boots next. Headers are asked for where the module is built on the node, the settings let gpunode
      install them and the next kernel has none; where modules come built, the next kernel's are. Those of kernels to
      come are not: their metapackage would bring the newest kernel's image, and nothing else of that kernel
    """
    rule = settings.version or settings.branch or ""
    values = _values(rule, source, flavour, boot)
    groups = ["always", flavour, *further]
    desired: dict[str, str | None] = {}
    for name, bound in ((name, bound) for group in groups for name, bound in source.packages.get(group, {}).items()):
        if name in source.since and int(values["<branch>"]) < int(source.since[name]):
            continue
        desired[_filled(name, values)] = rule if bound == "driver" else None
    for name in source.packages.get("kernel", {}):
        if boot.next_release:
            desired[_filled(name, {**values, "<kernel>": boot.next_release})] = None
    if source.built_on_node and source.installs_headers and settings.kernel_headers == "install":
        for kernel in boot.kernels:
            # Not those of the running kernel: archives drop the headers of older ones.
            if kernel.release == boot.next_release and not kernel.headers:
                desired[source.headers.replace("<kernel>", kernel.release)] = None
    return desired


def _values(rule: str, source: DriverSource, flavour: str, boot: Boot) -> dict[str, str]:
    """Return placeholder -> what stands for it, of those that the source's names have."""
    drivers = tables.drivers()
    generation, kmp = drivers.suse_name(rule, boot.next_release)
    return {
        "<rule>": rule,
        "<branch>": versions.branch_of(rule),
        "<flavour>": "-open" if flavour == "open" else "",
        "<fabric manager>": drivers.fabric_manager_package(rule, source.fabric_manager),
        "<suffix>": drivers.branch_suffix(rule),
        "<generation>": generation,
        "<kmp>": kmp,
    }


def further_groups(settings: Settings, machine: Iterable[str]) -> tuple[str, ...]:
    """Return the groups of packages that not every node needs.

    + machine: those of the node's NVSwitches and GPUs, as `groups` of PciGpus tells them
    """
    return (*machine, *(("mps",) if settings.mps.enabled else ()))


def unversioned_packages(source: DriverSource, desired: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted packages that are numbered otherwise and yet of one version of the driver: built modules."""
    patterns = [_pattern(name) for name in source.packages.get("kernel", {})]
    return tuple(name for name in desired if any(pattern.fullmatch(name) for pattern in patterns))


def module_stream(desired: DriverSettings, source: DriverSource, flavour: str) -> str:
    """Return the module stream (MODULE:STREAM) that holds the driver; empty where its source has none."""
    rule = desired.version or desired.branch or ""
    return source.stream.get(flavour, "").replace("<branch>", versions.branch_of(rule)) if rule else ""


def leftovers(
    source: DriverSource,
    desired: Collection[str],
    installed: Mapping[str, str] | Iterable[str],
    rule: str | None = None,
) -> tuple[str, ...]:
    """Return installed packages that must be told to go when the wanted ones come: what else goes, apt finds out.

    They are of another source, flavour or branch, or pin another version. Modules of the wanted driver for further
    kernels stay, and so does a pinning package that lets every version come that fits `rule`, a branch or a version;
    and a metapackage that nobody asks for, of the wanted flavour and at a version that fits `rule`.

    + installed: name -> version; of names alone no version fits
    """
    actual = list(installed)
    met = set(_metapackages_that_fit(source, desired, installed, rule)) if isinstance(installed, Mapping) else set()
    named = [name for row in _beside(source) for name in row.leaves]
    if not _of_this_source(source, actual):
        named += [name for row in _beside(source) for name in row.leaves_with_source]
    flavours = [name for group in ("open", "proprietary") for name in source.packages.get(group, {})]
    named += flavours
    # The same package under the name that it had in other branches; one that nobody asked for stays.
    suffixed = {name for names in source.packages.values() for name in names if "<suffix>" in name}
    named += [name for name in suffixed if any(_pattern(name).fullmatch(each) for each in desired)]
    generations = _generations(source, desired)
    if any(is_fabric_manager(name) for name in desired):
        # Two of them cannot be; one that nobody asked for stays.
        named.append("<fabric manager>")
    going = set()
    for written, pattern in ((name, _pattern(name)) for name in named):
        kept = {match.groupdict().get("branch"): match for name in desired if (match := pattern.fullmatch(name))}
        for name in actual:
            match = pattern.fullmatch(name)
            if match is None or name in desired or name in met:
                continue
            # What the wanted ones need bears their generation's name: their own repository sees to it.
            if match.groupdict().get("generation") in generations and written not in flavours:
                continue
            same = kept.get(match.groupdict().get("branch"))
            further = "kernel" in match.groupdict() and same is not None and same["flavour"] == match["flavour"]
            pinned = match.groupdict().get("rule")
            if not further and not (pinned and rule and versions.in_branch(rule, pinned)):
                going.add(name)
    return tuple(sorted(going))


def _metapackages_that_fit(
    source: DriverSource, desired: Collection[str], installed: Mapping[str, str], rule: str | None
) -> Iterator[str]:
    """Yield the installed metapackages of the wanted flavour at a version that fits the rule."""
    for flavour, names in source.metapackages.items():
        patterns = [_pattern(name) for name in source.packages.get(flavour, {})]
        if any(pattern.fullmatch(name) for name in desired for pattern in patterns):
            yield from (name for name in names if name in installed and satisfies(installed[name], rule))


def _generations(source: DriverSource, desired: Collection[str]) -> set[str]:
    """Return the generations (G06) in the names of wanted packages."""
    patterns = [_pattern(name) for names in source.packages.values() for name in names if "<generation>" in name]
    matches = [pattern.fullmatch(name) for name in desired for pattern in patterns]
    return {match["generation"] for match in matches if match is not None}


def of_another_source(source: DriverSource, installed: Iterable[str]) -> bool:
    """Say whether the installed driver came from another source than the one that is asked for.

    What another one left beside a driver of this source (modules of Ubuntu's for a kernel, say) does not make it such.
    """
    actual = list(installed)
    others = [_pattern(name) for row in _beside(source) if row != source for name in row.marks]
    return not _of_this_source(source, actual) and any(pattern.fullmatch(name) for name in actual for pattern in others)


def _of_this_source(source: DriverSource, installed: Collection[str]) -> bool:
    """Say whether a driver of this source is installed, of the packages that gpunode takes from it."""
    own = [_pattern(name) for name in source.marks if name not in source.leaves_with_source]
    return any(pattern.fullmatch(name) for name in installed for pattern in own)


def _beside(source: DriverSource) -> list[DriverSource]:
    """Return the sources that a node with this one may have: those of the same systems, itself included."""
    return [row for row in tables.driver_sources() if set(row.systems) & set(source.systems)]


def _filled(name: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        name = name.replace(placeholder, value)
    return name


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of the names that a name of the table stands for."""
    pattern = re.escape(name)
    for placeholder, value in _PLACEHOLDERS.items():
        pattern = pattern.replace(re.escape(placeholder), value)
    return re.compile(pattern)
