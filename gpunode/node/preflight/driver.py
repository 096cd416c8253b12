"""Is the driver that the settings ask for one that this node can have, from where they say, an archive among them?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from gpunode.base import tables, versions
from gpunode.base.codes import preflight
from gpunode.base.tables.driver_versions import Branch
from gpunode.base.tables.sources import DriverSource
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver import DriverState
from gpunode.components.driver.flavour import WantedDriver, chosen_flavour, installed_by_gpunode, needs_open
from gpunode.node.machine import Machine
from gpunode.node.preflight.words import caution, refusal
from gpunode.packages.driver_packages import ModuleBehind, driver_branch, driver_source, module_behind, package_set
from gpunode.packages.families.wording import wording
from gpunode.packages.installed_packages import satisfies
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

# What NVIDIA calls its packages that carry a branch in their name.
_NAMED_BY_BRANCH = ("nvidia-open", "cuda-drivers")


def present_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse `source: present` where there is no driver, or another one than asked."""
    desired, driver = settings.driver, machine.driver
    if not desired.enabled or desired.source != "present":
        return
    version = driver.loaded_version or driver.module_version
    if desired.is_elsewhere and not driver.root_folder:
        yield refusal("driver-root-not-there", root=desired.root)
    elif desired.is_elsewhere and driver.root_smi is None:
        yield refusal("driver-root-without-smi", root=desired.root)
    elif machine.is_image and version is None:
        yield refusal("driver-not-in-image")
    elif desired.is_elsewhere and version is None:
        yield refusal("driver-root-not-loaded", root=desired.root)
    elif version is None:
        yield refusal("driver-not-there")
    elif (desired.version and not versions.same(version, desired.version)) or (
        desired.branch and not versions.in_branch(version, desired.branch)
    ):
        yield refusal("driver-another-there", version=version, asked=desired.version or "branch " + str(desired.branch))


def offered_branch_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a branch that NVIDIA's repository for the distribution is known not to have."""
    desired, found = settings.driver, tables.distribution(system.id, system.version_id)
    if not desired.enabled or desired.source != "cuda-repository" or desired.branch is None or found is None:
        return
    actual = found.driver_branches
    # What came after the table was written is the repository's to say.
    if actual and desired.branch not in actual and versions.parsed(desired.branch) < versions.parsed(actual[-1]):
        own = f", or driver.source = 'distribution' (branch {found.own_branch})" if found.own_branch else ""
        yield refusal("driver-branch-not-offered", found=found, desired=desired, actual=", ".join(actual), own=own)


def branch_change_refusals(settings: Settings, driver: DriverState) -> Iterator[Refusal]:
    """Refuse to move a node to another branch where the settings do not allow it in so many words."""
    desired = settings.driver
    actual = driver.module_version or driver.loaded_version
    if not installed_by_gpunode(settings) or desired.branch is None or actual is None or desired.allow_branch_change:
        return
    if not versions.in_branch(actual, desired.branch):
        yield refusal("driver-branch-change", actual=actual, desired=desired, branch=versions.branch_of(actual))


def candidate_refusals(settings: Settings, system: OperatingSystem, candidates: Mapping[str, str]) -> Iterator[Refusal]:
    """Refuse a package that bears the branch's name and would bring another one: empty, it only pulls the next."""
    desired = settings.driver
    if not desired.enabled or desired.source != "cuda-repository" or desired.branch is None:
        return
    named = re.compile(rf"({'|'.join(_NAMED_BY_BRANCH)})-{re.escape(desired.branch)}(-[a-z]+)*")
    for name, version in sorted((name, version) for name, version in candidates.items() if named.fullmatch(name)):
        try:
            moved = not versions.in_branch(version, desired.branch)
        except versions.VersionError:
            continue
        if moved:
            yield refusal(
                "driver-transitional-package",
                name=name,
                version=version,
                desired=desired,
                offered=wording(system).offered,
                branch=versions.branch_of(version),
            )


def minimum_refusals(desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a driver below a stated minimum; `~= 384.81`, as it is written there, means that or newer."""
    if not desired.is_known:
        return
    for row in tables.minimums():
        if row.component == "driver" and row.minimum and row.kind == "minimum" and not desired.at_least(row.minimum):
            yield refusal("driver-below-minimum", desired=desired, row=row, branch=versions.branch_of(row.minimum))


def end_of_life(settings: Settings, desired: WantedDriver, today: date) -> Iterator[Caution]:
    """Tell of a branch that gets no more fixes, with the date, or that no table knows."""
    if not settings.driver.enabled or settings.driver.removes or desired.branch is None:
        return
    known = tables.drivers().branches.get(desired.branch)
    if known is not None and _is_maintained(known, today):
        return
    when = "" if known is None or known.end_of_life == "past" else f" ({known.end_of_life})"
    state = "is in no table" if known is None else f"has reached its end of life{when}"
    told = f"driver branch {desired.branch} {state}"
    if known is not None and known.end_of_life == "unknown":
        told = f"NVIDIA's page does not say how long driver branch {desired.branch} is maintained"
    yield caution("driver-end-of-life", told=told, maintained=", ".join(_maintained(today)) or "see the page")


def proprietary_refusals(
    settings: Settings, desired: WantedDriver, driver: DriverState, today: date
) -> Iterator[Refusal]:
    """Refuse packages with the proprietary module of a branch for which NVIDIA says that it provides none.

    Where they are there all the same, the node is judged by `proprietary_cautions`.
    """
    told = _without_proprietary(settings, desired, today)
    if told is not None and not _has_proprietary(driver, desired):
        yield Refusal("driver", *told, preflight("driver-no-proprietary"))


def proprietary_cautions(
    settings: Settings, desired: WantedDriver, driver: DriverState, today: date
) -> Iterator[Caution]:
    """Tell of such a branch where the node has its packages already: it was to be had, and need not be again."""
    told = _without_proprietary(settings, desired, today)
    if told is not None and _has_proprietary(driver, desired):
        yield Caution("driver", *told, preflight("driver-no-proprietary-again"))


def _has_proprietary(driver: DriverState, desired: WantedDriver) -> bool:
    named = (version for name, version in driver.packages if name == "cuda-drivers")
    return any(driver_branch(version) == desired.branch for version in named)


def _without_proprietary(settings: Settings, desired: WantedDriver, today: date) -> tuple[str, str, str] | None:
    """Return reason, source and remedy where the branch is beyond the last one with proprietary packages."""
    last, chosen = tables.drivers().last_proprietary, settings.driver
    if not chosen.enabled or chosen.source != "cuda-repository" or desired.flavour != "proprietary":
        return None
    if desired.branch is None or versions.parsed(desired.branch) <= versions.parsed(last):
        return None
    first = min((name for name in tables.drivers().branches if name > last), default=desired.branch)
    actual = " or ".join(f"'{name}'" for name in _maintained(today) if versions.parsed(name) <= versions.parsed(last))
    older = f", or driver.branch = {actual}, which NVIDIA maintains" if actual else ""
    return (
        f"NVIDIA provides no packages with the proprietary kernel module from driver branch {first} on, and "
        f"{desired} is asked for",
        "R615 release notes (gpunode/data/drivers.yaml, proprietary_packages)",
        f"set driver.flavour = 'open'{older}",
    )


def flavour_branch_refusals(settings: Settings, desired: WantedDriver, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a flavour that is asked for, or that a GPU needs, of a branch whose packages with it the source lacks."""
    source = driver_source(settings, system)
    first = source.flavour_since.get(desired.flavour or "") if source is not None else None
    if source is not None and first and desired.branch and versions.parsed(desired.branch) < versions.parsed(first):
        other = "proprietary" if desired.flavour == "open" else "open"
        # Where nobody asked for it, a GPU needs it.
        chosen = settings.driver.flavour != "auto"
        way = f"driver.flavour = '{other}' where the GPUs take it, or " if chosen else ""
        yield refusal("driver-flavour-not-packaged", source=source, desired=desired, first=first, way=way)


def _is_maintained(branch: Branch, today: date) -> bool:
    return branch.end_of_life not in ("past", "unknown") and branch.end_of_life >= f"{today:%Y-%m}"


def _maintained(today: date) -> Sequence[str]:
    branches = tables.drivers().branches.items()
    return [name for name, branch in branches if branch.kind != "new-feature" and _is_maintained(branch, today)]


_REPOSITORY = "set driver.source = 'cuda-repository'"


def archive_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse what the archive is known not to have; what its lists do not tell yet is judged after their refresh.

    The settings are those of `resolve_for_os`.
    """
    desired, system = settings.driver, machine.operating_system
    if not desired.enabled or desired.source != "distribution":
        return
    source = driver_source(settings, system, machine.boot)
    if source is None:
        yield refusal("archive-unknown", system=system)
        return
    elsewhere = _REPOSITORY
    if tables.driver_source("cuda-repository", system.id) is None:
        elsewhere = (
            "take another distribution for such a node, or set driver.source = 'present' and install both yourself"
        )
    origins = machine.apt_sources.origins
    if origins and source.origin not in origins:
        yield refusal("archive-not-read", source=source, origins=", ".join(origins))
    lacks = [group for group in machine.pci.fabric if group not in source.packages]
    if lacks:
        what = "fabric manager" if "nvswitch" in lacks else "NVLink subnet manager (nvlsm)"
        yield refusal("archive-without-fabric", source=source, what=what, elsewhere=elsewhere)
    yield from _not_offered(settings, machine)
    behind = module_behind(source, _wanted(settings, source, machine), machine.offers)
    if behind is not None and behind.package not in dict(machine.driver.packages):
        yield refusal("archive-module-behind", reason=behind.reason(source), behind=behind, ways=_ways(behind, machine))


def archive_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell of an open module that is known to be behind, where the node's lists do not say how it stands there.

    The settings are those of `resolve_for_os`.
    """
    asked, system = settings.driver, machine.operating_system
    actual = tables.distribution(system.id, system.version_id)
    source = driver_source(settings, system, machine.boot) if asked.source == "distribution" else None
    if source is None or actual is None or actual.open_behind is None or asked.version is not None:
        return
    module, rest = actual.open_behind.module, actual.open_behind.rest
    desired = _wanted(settings, source, machine)
    names = [name for name in source.packages["open"] if name in desired and name.endswith("-dkms")]
    told = {name for name, _ in machine.offers} | {name for name, _ in machine.driver.packages}
    if names and versions.in_branch(module, asked.branch or "") and names[0] not in told:
        behind = ModuleBehind(names[0], module, rest)
        yield caution("archive-may-be-behind", reason=behind.reason(source), ways=_ways(behind, machine))


def _ways(behind: ModuleBehind, machine: Machine) -> str:
    return behind.remedy(any(needs_open(gpu.generation) for gpu in machine.pci.gpus))


def _wanted(settings: Settings, source: DriverSource, machine: Machine) -> dict[str, str | None]:
    flavour = chosen_flavour(settings, machine.pci.gpus, machine.operating_system)
    return package_set(settings.driver, source, flavour, machine.pci.fabric, machine.boot)


def _not_offered(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a package of which the lists know versions, and none that is asked for."""
    desired, source = settings.driver, driver_source(settings, machine.operating_system, machine.boot)
    if source is None:
        return
    for name, rule in _wanted(settings, source, machine).items():
        offered = [version for offer, version in machine.offers if offer == name]
        if rule and offered and not any(satisfies(version, rule) for version in offered):
            yield refusal(
                "archive-not-offered",
                source=source,
                name=name,
                offered=", ".join(offered),
                asked=desired.version or f"branch {rule}",
            )
            return
