"""What a driver has lost whose packages the package manager holds for installed: no run brings that back."""

from __future__ import annotations

from dataclasses import replace

from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject
from gpunode.components.driver.sides import Actual, Desired
from gpunode.packages.driver_packages import belongs, leftovers
from gpunode.packages.families.wording import wording
from gpunode.packages.installed_packages import satisfies

_LOST = {
    Subject.LIBRARY: "the library (libnvidia-ml, libcuda)",
    Subject.GPUS: "nvidia-smi",
}


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
    return bool(asked) and there and together and not leftovers(source, desired.packages, found, desired.rule)


def told_lost(item: Finding, desired: Desired, actual: Actual) -> Finding:
    """Return a difference that only the package manager mends, with what is lost and how it comes back."""
    if item.finding_class is FindingClass.OK:
        return item
    names = ", ".join(name for name in desired.packages if belongs(name))
    again = wording(actual.system).again
    return replace(
        item,
        cause=f"{_LOST[Subject(item.what)]} is lost, or of another version, while {names} is installed as asked",
        # Of a package that lacks beside another, apt takes neither alone.
        remedy=f"install at once what is lost, at the driver's version: `{again} PACKAGE …` on the node",
        by_person=True,
    )
