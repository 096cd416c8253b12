"""Which programs are newer than gpunode knows, by the settings and on the node: each is taken for the newest known."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage
from gpunode.node import Node
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

# Packages of runtimes, whose version is read also where the runtime itself is not.
_PACKAGES = {"containerd": ("containerd", "containerd.io"), "docker": ("docker.io", "docker-ce")}

NEWER = CautionMessage(
    "newer-than-known",
    "A program or a distribution is newer than gpunode knows.",
    component="{component}",
    reason="{name} {version} is newer than {newest}, the newest that gpunode knows: it is taken for {newest}",
    source="gpunode/data/{table}",
    remedy="look at the release notes of {name} {version}, try it on one node first, or use a newer gpunode",
    detail="What changed in between is not known. A run proves each change or puts back what was there.",
)


def newer_cautions(settings: Settings, machine: Machine | None = None) -> Iterator[Caution]:
    """Warn of each program that is newer than all known releases; without a machine by the settings alone."""
    desired, actual = dict(_desired(settings)), dict(_actual(settings, machine) if machine else ())
    for program, releases in tables.releases().items():
        version = next((each for each in (desired.get(program), actual.get(program)) if releases.is_newer(each)), None)
        if version is not None:
            values = {"name": releases.name, "version": versions.upstream(version), "newest": releases.newest}
            yield NEWER(component=releases.settings[0].partition(".")[0], **values, table="releases.yaml")
    if machine is not None:
        yield from system_cautions(machine.operating_system)


def system_cautions(system: OperatingSystem) -> Iterator[Caution]:
    """Warn of a distribution that is newer than all known releases of it."""
    row = tables.distribution(system.id, system.version_id)
    if row is not None and row.newer is not None:
        values = {"name": row.name.rpartition(" ")[0], "version": row.newer, "newest": row.version}
        yield NEWER(component="operating system", **values, table="distributions.yaml")


def _desired(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Yield (program, version) of each setting of an enabled component; where there are several, a newer one last."""
    for program, releases in tables.releases().items():
        found = [version for setting in releases.settings if (version := _version(settings, setting)) is not None]
        yield program, max(found, key=releases.is_newer, default=None)


def _version(settings: Settings, setting: str) -> str | None:
    component, _, _ = setting.rpartition(".")
    if not getattr(attrgetter(component)(settings), "enabled", True):
        return None
    version: str | None = attrgetter(setting)(settings)
    return version


def _actual(settings: Settings, machine: Machine) -> Iterator[tuple[str, str | None]]:
    """Yield (program, version) on the node of what gpunode configures."""
    installed = dict(machine.runtime_packages.installed)
    for program, names in _PACKAGES.items():
        if getattr(settings, program).enabled:
            own = getattr(machine, program).version if isinstance(machine, Node) else None
            yield program, own or next((installed[name] for name in names if name in installed), None)
    for component in ("toolkit", "podman", "crio", "dcgm"):
        if getattr(settings, component).enabled:
            yield component, getattr(machine, component).version
    if settings.driver.enabled and not settings.driver.removes:
        yield "driver", machine.driver.loaded_version or machine.driver.module_version
    if settings.kubernetes.enabled:
        yield "kubernetes", machine.kubelet.version
