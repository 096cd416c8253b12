"""The steps that bring a driver: its packages or runfile, headers, holds, and modules of the kernel that boots next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpunode.base import tables
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.subject import Subject
from gpunode.components.driver.sides import Actual, Desired
from gpunode.packages.families.wording import headers_package
from gpunode.settings.driver import DriverSettings


def bring(
    desired: Desired,
    actual: Actual,
    coming: tuple[Finding, ...],
    serving: tuple[Finding, ...],
    after: tuple[Finding, ...],
) -> Iterator[Step[Any]]:
    """Yield what brings another driver, and the headers of the kernel that boots next.

    serving: what the services lack; after: what is said of the driver that goes, and is no step beside the new one's
    """
    settings, driver = desired.settings, actual.driver
    by_runfile = settings.source == "runfile"
    needed = ("gcc", "make", "dkms") if settings.dkms else ("gcc", "make")
    tools = ", ".join(tool for tool in needed if tool not in actual.boot.build_tools)
    if by_runfile and coming and tools and settings.kernel_headers == "install":
        yield Step(f"install {tools}", (), Disruption.nothing, desired="what builds the module")
    other_way = tuple(item for item in coming if item.what == Subject.INSTALLED_BY)
    if other_way and (driver.packages if by_runfile else driver.runfile):
        what = "packages" if by_runfile else "runfile"
        yield Step(f"remove the driver of the {what}, kept for the way back", other_way, Disruption.nothing)
    if coming:
        version = settings.version or f"{settings.branch} (its newest version)"
        action = "install driver" if driver.module_version is None else "change to driver"
        how = f" by its runfile, {desired.flavour}" if by_runfile else f", {desired.flavour}"
        managers = (
            item for item in serving if item.what in (Subject.FABRIC_MANAGER, Subject.SUBNET_MANAGER, Subject.IMEX)
        )
        names = desired.packages.items()
        yield Step(
            f"{action} {version}{how} kernel module",
            tuple(dict.fromkeys((*coming, *managers, *after))),
            Disruption.nothing,
            packages=tuple(sorted(name if rule is None else f"{name} {rule}" for name, rule in names)),
        )
    if headers := _headers(desired, actual):
        what = "headers of the kernel that boots next"
        yield Step(f"install {headers}", (), Disruption.nothing, actual="none", desired=what)


def _headers(desired: Desired, actual: Actual) -> str | None:
    """Return the package of headers that a run installs for the kernel that boots next; None where it installs none."""
    kernel, source, system = actual.boot.next_kernel, desired.source, actual.system
    if kernel is None or kernel.headers or desired.settings.kernel_headers != "install":
        return None
    if source is None:
        by_us = tables.installs_headers(system.id) or tables.headers_of_image(system.id)
        return headers_package(system, kernel) if by_us else None
    by_us = source.built_on_node and (source.installs_headers or source.headers_of_image)
    return source.headers.replace("<kernel>", kernel.release) if by_us else None


def hold(desired: DriverSettings, held: tuple[Finding, ...], comes: bool) -> Iterator[Step[Any]]:
    """Yield what holds the driver's packages; comes: whether others come before."""
    action = "hold the driver's packages"
    if loose := bad(*held):
        yield Step(action, loose, Disruption.nothing)
    elif held and comes and desired.source != "runfile":
        yield Step(action, (), Disruption.nothing, desired="all held")


def brings_modules(desired: Desired) -> bool:
    """Say whether a run brings the module of each kernel that boots next: built ones, or by the runfile."""
    return desired.settings.installs and (desired.source is None or not desired.source.built_on_node)


def bring_modules(desired: Desired, actual: Actual, lacking: tuple[Finding, ...]) -> Iterator[Step[Any]]:
    """Yield what brings the module of the kernel that boots next, where no DKMS of the packages does."""
    kernel, source = actual.boot.next_kernel, desired.source
    if kernel is None or not lacking or not brings_modules(desired):
        return
    packages = tuple(sorted(name for name in desired.packages if kernel.release in name))
    action = f"install the modules of kernel {kernel.release}" if source else f"build the module of {kernel.release}"
    yield Step(action, lacking, Disruption.nothing, packages=packages)
