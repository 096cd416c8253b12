"""The package repositories that the settings take anything from."""

from __future__ import annotations

from gpunode.node.machine import Machine
from gpunode.node.own_files.driver import changes_source
from gpunode.packages.repositories import NAMES, SOURCES, package_repository, source_path
from gpunode.packages.trust import uses_repository
from gpunode.settings import Settings

PATHS = tuple(source_path(family, name) for family in SOURCES for name in NAMES)


def forgets_cuda(settings: Settings, machine: Machine) -> bool:
    """Say whether the repository `cuda` goes: with a driver that comes from elsewhere now, where nothing else needs it.

    One decision for the run and for drift: else the driver would take away each time what DCGM brings back behind it.
    The settings are those of `resolve_for_os`.
    """
    return changes_source(settings, machine) and not uses_repository(settings, "cuda")


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return the files that name them; those of other repositories of ours stay as they are."""
    found: dict[str, str | None] = {}
    for name in NAMES:
        desired = package_repository(settings, machine.operating_system, name)
        if desired is not None and uses_repository(settings, name):
            found[desired.path] = desired.text
        elif desired is not None and name == "cuda" and forgets_cuda(settings, machine):
            found[desired.path] = None
    return found
