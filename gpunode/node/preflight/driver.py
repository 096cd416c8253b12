"""Is the driver that the settings ask for one that this node can have, from where they say, an archive among them?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from gpunode.base import tables, versions
from gpunode.base.tables.driver_versions import Branch
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.driver.flavour import WantedDriver
from gpunode.components.driver.state import DriverState
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages.names import driver_branch
from gpunode.packages.driver_packages.sources import driver_source
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

# What NVIDIA calls its packages that carry a branch in their name.
_NAMED_BY_BRANCH = ("nvidia-open", "cuda-drivers")
_PRESENT = "/sys/module/nvidia and modinfo nvidia"
_NO_PACKAGES = (
    "NVIDIA provides no packages with the proprietary kernel module from branch {first} on: {desired} has none"
)
_PROPRIETARY = "R615 release notes (gpunode/data/drivers.yaml, proprietary_packages)"

ROOT_MISSING = RefusalMessage(
    "driver-root-not-there",
    "The folder that driver.root names is not on the node.",
    reason="driver.root is {root!r}, and the node has no such folder",
    source="NVIDIA/gpu-operator, internal/driver/root.go: a driver container shows its files there while it runs",
    remedy="start the driver container (or what else provides that driver) and run again, or set driver.root to its "
    "folder; '/' for a driver of the node's own",
)
ROOT_WITHOUT_SMI = RefusalMessage(
    "driver-root-without-smi",
    "The folder that driver.root names has no nvidia-smi in it.",
    reason="driver.root is {root!r}, and neither it nor its usr/bin, usr/sbin, bin and sbin have nvidia-smi",
    source="NVIDIA/gpu-operator, internal/driver/root.go (where its validator looks)",
    remedy="wait until the driver container is ready, or set driver.root to the folder with usr/bin/nvidia-smi",
)
NOT_IN_IMAGE = RefusalMessage(
    "driver-not-in-image",
    "driver.source is 'present', and the image that is being made has no driver on its disk.",
    reason="driver.source is 'present', and this image (systemd does not run) has no driver on its disk",
    detail="A driver that the kernel has loaded does not count for an image.",
    source="/run/systemd/system and modinfo nvidia",
    remedy="run on the machine itself, once it has booted with systemd; or set driver.enabled = False for the image",
)
ROOT_NOT_LOADED = RefusalMessage(
    "driver-root-not-loaded",
    "The kernel module of the driver in driver.root is not loaded.",
    reason="driver.root is {root!r}, and its kernel module is not loaded",
    source="/sys/module/nvidia",
    remedy="load it by what provides that driver (a driver container, say), which gpunode does not do, and run again",
)
ABSENT = RefusalMessage(
    "driver-not-there",
    reason="the node has no NVIDIA driver, and driver.source is 'present'",
    source=_PRESENT,
    remedy="install it by other means, or set driver.source = 'cuda-repository'",
)
ANOTHER = RefusalMessage(
    "driver-another-there",
    "The driver that is present is not the desired one.",
    reason="driver.source is 'present', and the node has {version}, not {desired}",
    source=_PRESENT,
    remedy="set driver.version or driver.branch to the one that is present, or driver.source = 'cuda-repository'",
)


def present_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse `source: present` where there is no driver, or one that is not the desired one."""
    desired, driver = settings.driver, machine.driver
    if not desired.enabled or desired.source != "present":
        return
    version = driver.loaded_version or driver.module_version
    if desired.is_elsewhere and not driver.root_folder:
        yield ROOT_MISSING(root=desired.root)
    elif desired.is_elsewhere and driver.root_smi is None:
        yield ROOT_WITHOUT_SMI(root=desired.root)
    elif machine.is_image and version is None:
        yield NOT_IN_IMAGE()
    elif desired.is_elsewhere and version is None:
        yield ROOT_NOT_LOADED(root=desired.root)
    elif version is None:
        yield ABSENT()
    elif (desired.version and not versions.same(version, desired.version)) or (
        desired.branch and not versions.in_branch(version, desired.branch)
    ):
        yield ANOTHER(version=version, desired=desired.version or "branch " + str(desired.branch))


BRANCH_NOT_OFFERED = RefusalMessage(
    "driver-branch-not-offered",
    "NVIDIA's repository for this distribution does not have the desired driver branch.",
    reason="NVIDIA's repository for {name} has no driver branch {branch}, only {actual}",
    source="gpunode/data/distributions.yaml (driver_branches)",
    remedy="set driver.branch to one of these{own}, or driver.source = 'runfile' for that branch",
)


def offered_branch_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a branch that NVIDIA's repository for the distribution is known not to have."""
    desired, found = settings.driver, tables.distribution(system.id, system.version_id)
    if not desired.enabled or desired.source != "cuda-repository" or desired.branch is None or found is None:
        return
    actual = found.driver_branches
    # A branch that is newer than the table may be in the repository.
    if actual and desired.branch not in actual and versions.parsed(desired.branch) < versions.parsed(actual[-1]):
        own = f", or driver.source = 'distribution' (branch {found.own_branch})" if found.own_branch else ""
        yield BRANCH_NOT_OFFERED(name=found.name, branch=desired.branch, actual=", ".join(actual), own=own)


BRANCH_CHANGE = RefusalMessage(
    "driver-branch-change",
    "The run would change the driver's branch, which the settings do not allow.",
    reason="the node has driver {actual}, which is not of branch {desired}",
    source=_PRESENT,
    remedy="set driver.allow_branch_change = True for this change, or driver.branch = '{branch}'",
)


def branch_change_refusals(settings: Settings, driver: DriverState) -> Iterator[Refusal]:
    """Refuse to move a node to another branch where the settings do not allow it explicitly."""
    desired = settings.driver
    actual = driver.module_version or driver.loaded_version
    if not settings.driver.installs or desired.branch is None or actual is None or desired.allow_branch_change:
        return
    if not versions.in_branch(actual, desired.branch):
        yield BRANCH_CHANGE(actual=actual, desired=desired.branch, branch=versions.branch_of(actual))


TRANSITIONAL_PACKAGE = RefusalMessage(
    "driver-transitional-package",
    "The driver's package comes at a version of another branch: it is a transitional package.",
    reason="package {name} has version {version}, not of branch {desired}: it is transitional, or the branch is gone",
    source="{offered} {name} on the node",
    remedy="set driver.branch = '{branch}' (see driver.allow_branch_change), or use a repository with the branch",
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
            values = {"name": name, "version": version, "branch": versions.branch_of(version)}
            yield TRANSITIONAL_PACKAGE(**values, desired=desired.branch, offered=wording(system).offered)


BELOW_MINIMUM = RefusalMessage(
    "driver-below-minimum",
    "The driver is older than another component needs.",
    reason="driver {desired} is older than {row.minimum}, which {row.needed_by} needs",
    source="{row.source} (gpunode/data/minimums.yaml)",
    remedy="set driver.branch to '{branch}' or newer",
)


def minimum_refusals(desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a driver below a stated minimum; `~= 384.81`, as it is written there, means that or newer."""
    if not desired.is_known:
        return
    for row in tables.minimums():
        if row.component == "driver" and row.minimum and row.kind == "minimum" and not desired.at_least(row.minimum):
            yield BELOW_MINIMUM(desired=desired, row=row, branch=versions.branch_of(row.minimum))


END_OF_LIFE = CautionMessage(
    "driver-end-of-life",
    "The driver branch gets no more fixes, or its end of life is not known.",
    source="NVIDIA driver life-cycle page (gpunode/data/drivers.yaml, branches)",
    remedy="consider a branch that is maintained: {maintained}",
)


def end_of_life(settings: Settings, desired: WantedDriver, today: date) -> Iterator[Caution]:
    """Warn of a branch that gets no more fixes, with the date, or that no table knows, but for a newer one."""
    if not settings.driver.enabled or settings.driver.removes or desired.branch is None:
        return
    if tables.releases()["driver"].is_newer(desired.branch):
        return
    known = tables.drivers().branches.get(desired.branch)
    if known is not None and _is_maintained(known, today):
        return
    when = "" if known is None or known.end_of_life == "past" else f" ({known.end_of_life})"
    state = "is in no table" if known is None else f"has reached its end of life{when}"
    reason = f"driver branch {desired.branch} {state}"
    if known is not None and known.end_of_life == "unknown":
        reason = f"NVIDIA's page does not state how long driver branch {desired.branch} is maintained"
    yield END_OF_LIFE(reason=reason, maintained=", ".join(_maintained(today)) or "see the page")


NO_PROPRIETARY = RefusalMessage(
    "driver-no-proprietary",
    "NVIDIA provides no packages with the proprietary kernel module for this driver branch.",
    reason=_NO_PACKAGES,
    source=_PROPRIETARY,
    remedy="set driver.flavour = 'open'{older}",
    detail="driver.flavour is 'proprietary', and the node does not have these packages yet.",
)


def proprietary_refusals(
    settings: Settings, desired: WantedDriver, driver: DriverState, today: date
) -> Iterator[Refusal]:
    """Refuse packages with the proprietary module of a branch for which NVIDIA states that it provides none.

    A node that has them already is judged by `proprietary_cautions`.
    """
    lacking = _without_proprietary(settings, desired, today)
    if lacking is not None and not _has_proprietary(driver, desired):
        yield NO_PROPRIETARY(**lacking)


NO_PROPRIETARY_AGAIN = CautionMessage(
    "driver-no-proprietary-again",
    "The node has a proprietary kernel module of which NVIDIA no longer provides packages.",
    reason=_NO_PACKAGES,
    source=_PROPRIETARY,
    remedy="set driver.flavour = 'open'{older}",
    detail="The packages may not be available when the node is installed again.",
)


def proprietary_cautions(
    settings: Settings, desired: WantedDriver, driver: DriverState, today: date
) -> Iterator[Caution]:
    """Warn of such a branch where the node has its packages already: they may not be available again."""
    lacking = _without_proprietary(settings, desired, today)
    if lacking is not None and _has_proprietary(driver, desired):
        yield NO_PROPRIETARY_AGAIN(**lacking)


def _has_proprietary(driver: DriverState, desired: WantedDriver) -> bool:
    named = (version for name, version in driver.packages if name == "cuda-drivers")
    return any(driver_branch(version) == desired.branch for version in named)


def _without_proprietary(settings: Settings, desired: WantedDriver, today: date) -> dict[str, object] | None:
    """Return the values of both messages where the branch is beyond the last one with proprietary packages."""
    last, chosen = tables.drivers().last_proprietary, settings.driver
    if not chosen.enabled or chosen.source != "cuda-repository" or desired.flavour != "proprietary":
        return None
    if desired.branch is None or versions.parsed(desired.branch) <= versions.parsed(last):
        return None
    first = min((name for name in tables.drivers().branches if name > last), default=desired.branch)
    actual = " or ".join(f"'{name}'" for name in _maintained(today) if versions.parsed(name) <= versions.parsed(last))
    older = f", or driver.branch = {actual}, which NVIDIA maintains" if actual else ""
    return {"first": first, "desired": desired, "older": older}


FLAVOUR_NOT_PACKAGED = RefusalMessage(
    "driver-flavour-not-packaged",
    "The driver branch has no packages with the desired flavour of the kernel module.",
    reason="{source} has the {flavour} module from branch {first} on, and the desired driver is {desired}",
    source="gpunode/data/driver_packages.yaml (flavour_since)",
    remedy="set {way}driver.branch to {first} or newer",
)


def flavour_branch_refusals(settings: Settings, desired: WantedDriver, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a flavour that is set, or that a GPU needs, where the source lacks its packages for the branch."""
    source = driver_source(settings, system)
    first = source.flavour_since.get(desired.flavour or "") if source is not None else None
    if source is not None and first and desired.branch and versions.parsed(desired.branch) < versions.parsed(first):
        other = "proprietary" if desired.flavour == "open" else "open"
        # With 'auto' a GPU needs the flavour.
        chosen = settings.driver.flavour != "auto"
        way = f"driver.flavour = '{other}' where the GPUs take it, or " if chosen else ""
        yield FLAVOUR_NOT_PACKAGED(source=source.name, flavour=desired.flavour, first=first, desired=desired, way=way)


def _is_maintained(branch: Branch, today: date) -> bool:
    return branch.end_of_life not in ("past", "unknown") and branch.end_of_life >= f"{today:%Y-%m}"


def _maintained(today: date) -> Sequence[str]:
    branches = tables.drivers().branches.items()
    return [name for name, branch in branches if branch.kind != "new-feature" and _is_maintained(branch, today)]
