"""Is the driver that the settings ask for one that this node can have, from where they say?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from gpunode.base import tables, versions
from gpunode.base.tables.driver_versions import Branch
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver import DriverState
from gpunode.components.driver.flavour import WantedDriver, installed_by_gpunode
from gpunode.packages.driver_packages import driver_branch, driver_source
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

_READ_BACK = "/sys/module/nvidia and modinfo nvidia"
# What NVIDIA calls its packages that carry a branch in their name.
_NAMED_BY_BRANCH = ("nvidia-open", "cuda-drivers")
_LIFE_CYCLE = "NVIDIA driver life-cycle page (gpunode/data/drivers.yaml, branches)"


def present_refusals(settings: Settings, driver: DriverState) -> Iterator[Refusal]:
    """Refuse `source: present` where there is no driver, or another one than asked."""
    desired = settings.driver
    if not desired.enabled or desired.source != "present":
        return
    version = driver.loaded_version or driver.module_version
    if version is None:
        yield Refusal(
            "driver",
            "driver.source is 'present', but the node has no NVIDIA driver",
            _READ_BACK,
            "install it by its own way, or set driver.source = 'cuda-repository'",
        )
    elif (desired.version and not versions.same(version, desired.version)) or (
        desired.branch and not versions.in_branch(version, desired.branch)
    ):
        yield Refusal(
            "driver",
            f"driver.source is 'present', and {version} is there, not "
            f"{desired.version or 'branch ' + str(desired.branch)}",
            _READ_BACK,
            "ask for the one that is there, or set driver.source = 'cuda-repository'",
        )


def offered_branch_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a branch that NVIDIA's repository for the distribution is known not to have."""
    desired, found = settings.driver, tables.distribution(system.id, system.version_id)
    if not desired.enabled or desired.source != "cuda-repository" or desired.branch is None or found is None:
        return
    actual = found.driver_branches
    # What came after the table was written is the repository's to say.
    if actual and desired.branch not in actual and versions.parsed(desired.branch) < versions.parsed(actual[-1]):
        own = f", or driver.source = 'distribution' (branch {found.own_branch})" if found.own_branch else ""
        yield Refusal(
            "driver",
            f"NVIDIA's repository for {found.name} has no driver branch {desired.branch}, only {', '.join(actual)}",
            "gpunode/data/distributions.yaml (driver_branches)",
            f"set driver.branch to one of these{own}, or take that branch by driver.source = 'runfile'",
        )


def branch_change_refusals(settings: Settings, driver: DriverState) -> Iterator[Refusal]:
    """Refuse to move a node to another branch where the settings do not allow it in so many words."""
    desired = settings.driver
    actual = driver.module_version or driver.loaded_version
    if not installed_by_gpunode(settings) or desired.branch is None or actual is None or desired.allow_branch_change:
        return
    if not versions.in_branch(actual, desired.branch):
        yield Refusal(
            "driver",
            f"the node has driver {actual}, and branch {desired.branch} is another one",
            _READ_BACK,
            f"set driver.allow_branch_change = True for this change, or driver.branch = '{versions.branch_of(actual)}'",
        )


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
            yield Refusal(
                "driver",
                f"package {name} comes at {version}, which is not of branch {desired.branch}: it is a transitional "
                "package, or the repository no longer has that branch",
                f"{wording(system).offered} {name} on the node",
                f"set driver.branch = '{versions.branch_of(version)}' (see driver.allow_branch_change), or use a "
                "repository that still has the branch",
            )


def minimum_refusals(desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a driver below a stated minimum; `~= 384.81`, as it is written there, means that or newer."""
    if not desired.is_known:
        return
    for row in tables.minimums():
        if row.component == "driver" and row.minimum and row.kind == "minimum" and not desired.at_least(row.minimum):
            yield Refusal(
                "driver",
                f"driver {desired} is older than {row.minimum}, which {row.needed_by} needs",
                f"{row.source} (gpunode/data/minimums.yaml)",
                f"set driver.branch to '{versions.branch_of(row.minimum)}' or newer",
            )


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
    yield Caution(
        "driver",
        told,
        _LIFE_CYCLE,
        f"consider a branch that is maintained: {', '.join(_maintained(today)) or 'see the page'}",
    )


def proprietary_refusals(
    settings: Settings, desired: WantedDriver, driver: DriverState, today: date
) -> Iterator[Refusal]:
    """Refuse packages with the proprietary module of a branch for which NVIDIA says that it provides none.

    Where they are there all the same, the node is judged by `proprietary_cautions`.
    """
    told = _without_proprietary(settings, desired, today)
    if told is not None and not _has_proprietary(driver, desired):
        yield Refusal("driver", *told)


def proprietary_cautions(
    settings: Settings, desired: WantedDriver, driver: DriverState, today: date
) -> Iterator[Caution]:
    """Tell of such a branch where the node has its packages already: it was to be had, and need not be again."""
    told = _without_proprietary(settings, desired, today)
    if told is not None and _has_proprietary(driver, desired):
        yield Caution("driver", *told)


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
        yield Refusal(
            "driver",
            f"{source.name} has packages with the {desired.flavour} kernel module from branch {first} on, and "
            f"{desired} is asked for",
            "gpunode/data/driver_packages.yaml (flavour_since)",
            f"set {way}driver.branch to {first} or newer",
        )


def _is_maintained(branch: Branch, today: date) -> bool:
    return branch.end_of_life not in ("past", "unknown") and branch.end_of_life >= f"{today:%Y-%m}"


def _maintained(today: date) -> Sequence[str]:
    branches = tables.drivers().branches.items()
    return [name for name, branch in branches if branch.kind != "new-feature" and _is_maintained(branch, today)]
