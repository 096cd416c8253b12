"""What settings ask that can be had on no node, whichever it is: decided without one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from gpunode.base import tables
from gpunode.base.tables.sources import Distribution
from gpunode.base.verdicts import Caution, CautionMessage, Refusal
from gpunode.components.driver.flavour import WantedDriver, chosen_flavour
from gpunode.node.preflight import cuda, driver, mps, platform, runtimes
from gpunode.node.preflight.newer import newer_cautions
from gpunode.packages.driver_packages.sources import resolve_for_os
from gpunode.settings import Settings, component_models
from gpunode.system.operating_system import OperatingSystem

FORMER_NAME = CautionMessage(
    "former-name",
    "A setting is given by its former name.",
    component="{component}",
    reason="{component}.{former} is now called {component}.{now}, and the next release does not know the old name",
    source="CHANGELOG.md",
    remedy="write {component}.{now} in the host's data",
    detail="The old name still counts in this release.",
)


def former_names(settings: Settings) -> Iterator[Caution]:
    """Warn of each setting that host data gives by a name that goes with the next release."""
    for name in component_models():
        for former, now in getattr(settings, name).by_former_name:
            yield FORMER_NAME(component=name, former=former, now=now)


def refused_anywhere(settings: Settings) -> tuple[Refusal, ...]:
    """Return why no node of any supported distribution can become what settings ask; empty where one may.

    What is wrong with the settings themselves is the same everywhere; where only the distributions' repositories
    differ, one of them is named for all.
    """
    by_system = [list(_refusals(settings, row, system)) for row, system in _systems()]
    if not all(by_system):
        return ()
    everywhere = [item for item in by_system[0] if all(item in found for found in by_system)]
    if everywhere:
        return tuple(everywhere)
    fewest = min(by_system, key=len)
    count = len(by_system)
    return tuple(
        replace(item, reason=f"{item.reason}; none of the {count} supported systems has it") for item in fewest
    )


def cautions_anywhere(settings: Settings, today: date) -> tuple[Caution, ...]:
    """Return what a person should know of the settings on every supported distribution."""
    by_system = [list(_cautions(settings, system, today)) for _, system in _systems()]
    everywhere = (item for item in by_system[0] if all(item in found for found in by_system))
    return (*former_names(settings), *newer_cautions(settings), *runtimes.containerd_cautions(settings), *everywhere)


def _refusals(settings: Settings, row: Distribution, system: OperatingSystem) -> Iterator[Refusal]:
    resolved = resolve_for_os(settings, system)
    yield from platform.source_refusals(resolved, row)
    yield from mps.refused_anywhere(resolved)
    yield from cuda.offered_refusals(resolved, system)
    # A driver that gpunode does not install is the node's.
    if resolved.driver.installs:
        desired = _wanted(resolved, system)
        yield from driver.offered_branch_refusals(resolved, system)
        yield from driver.minimum_refusals(desired)
        yield from cuda.cuda_refusals(resolved, (), desired)


def _cautions(settings: Settings, system: OperatingSystem, today: date) -> Iterator[Caution]:
    resolved = resolve_for_os(settings, system)
    if resolved.driver.installs:
        desired = _wanted(resolved, system)
        yield from driver.end_of_life(resolved, desired, today)
        yield from cuda.cuda_cautions(resolved, desired)


def _wanted(settings: Settings, system: OperatingSystem) -> WantedDriver:
    return WantedDriver(settings.driver.version, settings.driver.branch, chosen_flavour(settings, (), system))


def _systems() -> Iterator[tuple[Distribution, OperatingSystem]]:
    """Yield each supported distribution on each of its architectures."""
    for row in tables.distributions():
        for architecture in row.architectures:
            yield row, OperatingSystem(row.id, row.version, None, (), row.name, architecture, kernel="", tegra=False)
