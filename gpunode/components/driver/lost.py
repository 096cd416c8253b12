"""What a driver has lost: packages, which a run brings back, or what the package manager holds for installed.

Of the latter no run brings anything back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode.base.comparison import RUN
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.sides import Actual, Desired
from gpunode.components.driver.state import driver_finding
from gpunode.packages.driver_packages.installed import taken_away
from gpunode.packages.driver_packages.names import belongs, is_fabric_manager, is_imex
from gpunode.packages.driver_packages.sources import leftovers
from gpunode.packages.families.wording import wording
from gpunode.packages.installed_packages import satisfies

MOVED = "an upgrade moved one package and not the other"
_IS_LOST = "{lost} is lost, or of another version, while {names} is installed as desired"
# Of a package that is missing with another, apt takes neither alone.
_BRING_BACK = "install at once what is lost, at the driver's version: `{again} PACKAGE …` on the node"
_REMOVED, _MISSING = "{names} was removed, which gpunode holds", "no run has installed them yet, or they were removed"

LIBRARY = driver_finding(
    "library",
    "The driver's libraries are not of the version of its module.",
    "nvidia-smi and CUDA then fail with `Driver/library version mismatch`.",
    causes=(MOVED, _IS_LOST),
    remedies=(RUN, _BRING_BACK),
)
PACKAGES = driver_finding(
    "packages",
    "Packages of the driver are missing on the node.",
    "The settings ask for them, or they came with the desired ones and gpunode holds them. They were removed, by "
    "force where other packages need them. Without nvidia-persistenced the GPUs lose their settings when their "
    "last program ends; without a library programs do not start.",
    causes=(_REMOVED, _MISSING),
)


def missing_packages(desired: Desired, actual: Actual) -> tuple[str, ...]:
    """Return the packages that are missing of a driver that came by packages, by their names; a run brings them back.

    They are asked for, or came with those that are, and somebody took them away by force.
    """
    return (*_asked_for(desired, actual), *_taken_away(desired, actual))


def _by_packages(desired: Desired, actual: Actual) -> bool:
    """Say whether the driver that is there came by packages, and a run sees to them."""
    return desired.settings.installs and bool(actual.driver.packages) and not actual.driver.runfile


def _asked_for(desired: Desired, actual: Actual) -> list[str]:
    source, there = desired.source, dict(actual.driver.packages)
    if source is None or not _by_packages(desired, actual):
        return []
    missing = [name for name in desired.packages if name not in there and name not in source.beside]
    return [name for name in missing if belongs(name) and not _is_told_apart(name)]


def _taken_away(desired: Desired, actual: Actual) -> list[str]:
    source, driver = desired.source, actual.driver
    if source is None or not _by_packages(desired, actual):
        return []
    found = taken_away(source, desired.packages, dict(driver.packages), dict(driver.pinned))
    return [name for name in found if not _is_told_apart(name)]


def _is_told_apart(name: str) -> bool:
    """Say whether a package has a finding of its own (services.py)."""
    return is_fabric_manager(name) or is_imex(name) or name == "nvlsm"


def packages(desired: Desired, actual: Actual) -> Iterator[Finding]:
    """Judge whether the driver has all of its packages, where it came by packages."""
    if desired.source is None or not _by_packages(desired, actual):
        return
    missing, taken = missing_packages(desired, actual), _taken_away(desired, actual)
    yield PACKAGES.compared(
        f"not {', '.join(missing)}" if missing else "all",
        "all",
        not missing,
        cause=_REMOVED.format(names=", ".join(taken)) if taken else _MISSING,
    )


def bring_back(desired: Desired, actual: Actual, lacking: tuple[Finding, ...]) -> Iterator[Step[None]]:
    """Yield what brings missing packages back to a driver that stays as it is."""
    if bad(*lacking):
        names = missing_packages(desired, actual)
        action = f"install again what the driver lacks: {', '.join(names)}"
        yield Step(action, bad(*lacking), Disruption.nothing, packages=names)


def installs_nothing(desired: Desired, actual: Actual) -> bool:
    """Say whether a run leaves the driver's packages as they are: each one asked for is there, and none is to go.

    What these depend on the run does not look at; the package manager keeps that right, unless somebody forces it.
    """
    source, driver = desired.source, actual.driver
    if source is None or not desired.settings.installs or driver.runfile or driver.unproven:
        return False
    asked = {name: rule for name, rule in desired.packages.items() if belongs(name) and name not in source.beside}
    found = dict(driver.packages)
    there = all(name in found and satisfies(found[name], rule) for name, rule in asked.items())
    # Those that have a rule share one version: the newest of a branch may be there in parts.
    together = len({found.get(name) for name, rule in asked.items() if rule}) <= 1
    lacks = bool(missing_packages(desired, actual) or leftovers(source, desired.packages, found, desired.rule))
    return bool(asked) and there and together and not lacks


def told_lost(item: Finding, desired: Desired, actual: Actual) -> Finding:
    """Return a difference that only the package manager mends, with what is lost and how it comes back."""
    if item.finding_class is FindingClass.OK:
        return item
    names = ", ".join(name for name in desired.packages if belongs(name))
    again = wording(actual.system).again
    lost = "the library (libnvidia-ml, libcuda)" if item.code == LIBRARY.code else "nvidia-smi"
    cause, remedy = _IS_LOST.format(lost=lost, names=names), _BRING_BACK.format(again=again)
    return replace(item, cause=cause, remedy=remedy, by_person=True)
