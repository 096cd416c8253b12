"""The package repositories that the settings take anything from, and apt's proxy.

dnf and zypper have the proxy in each repository's file, so that the system's own repositories stay unchanged.
"""

from __future__ import annotations

from gpunode.base import tables
from gpunode.base.template import rendered
from gpunode.node.machine import Machine
from gpunode.node.own_files.driver import changes_source
from gpunode.packages.repositories import NAMES, SOURCES, package_repository, source_path
from gpunode.packages.trust import uses_repository
from gpunode.settings import Settings

PROXY = "/etc/apt/apt.conf.d/80gpunode-proxy"
REPOSITORIES = tuple(source_path(family, name) for family in SOURCES for name in NAMES)
PATHS = (PROXY, *REPOSITORIES)


def forgets_cuda(settings: Settings, machine: Machine) -> bool:
    """Say whether the repository `cuda` goes: with a driver that comes from elsewhere now, where nothing else needs it.

    One decision for the run and for drift: else the driver would take away each time what DCGM brings back behind it.
    The settings are those of `resolve_for_os`.
    """
    return changes_source(settings, machine) and not uses_repository(settings, "cuda")


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return apt's proxy, and the files of the repositories; those of other repositories of ours stay unchanged."""
    system, proxy = machine.operating_system, settings.proxy
    distribution = tables.distribution(system.id, system.version_id)
    found: dict[str, str | None] = {}
    if distribution is not None and distribution.family == "apt":
        # apt would take the proxy for http for https, too.
        proxies = {"http": proxy.http or "DIRECT", "https": proxy.https or "DIRECT"}
        text = rendered("apt-proxy.conf", proxies=proxies, direct=proxy.direct_hosts)
        found[PROXY] = text if proxy.environment else None
    for name in NAMES:
        desired = package_repository(settings, system, name)
        if desired is not None and uses_repository(settings, name):
            found[desired.path] = desired.text
        elif desired is not None and name == "cuda" and forgets_cuda(settings, machine):
            found[desired.path] = None
    return found
