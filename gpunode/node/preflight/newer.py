"""Which programs are newer than gpunode knows, by the settings and on the node: each is taken for the newest known."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage
from gpunode.node.machine import Machine
from gpunode.settings import Settings

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
    found: dict[str, Caution] = {}
    for component, program, version in (*_desired(settings), *(_actual(settings, machine) if machine else ())):
        if program not in found and (caution := newer_caution(program, version, component)) is not None:
            found[program] = caution
    yield from found.values()
    system = machine and machine.operating_system
    row = tables.distribution(system.id, system.version_id) if system else None
    if row is not None and row.newer is not None:
        values = {"name": row.name.rpartition(" ")[0], "version": row.newer, "newest": row.version}
        yield NEWER(component="operating system", **values, table="distributions.yaml")


def newer_caution(program: str, version: str | None, component: str) -> Caution | None:
    """Return the caution about one program (of releases.yaml); None where its version is known, or there is none."""
    releases = tables.releases()[program]
    if version is None or not releases.is_newer(version):
        return None
    values = {"name": releases.name, "version": versions.upstream(version), "newest": releases.newest}
    return NEWER(component=component, **values, table="releases.yaml")


def _desired(settings: Settings) -> Iterator[tuple[str, str, str | None]]:
    """Yield (component, program, version) of each setting of an enabled component."""
    for program, releases in tables.releases().items():
        for setting in releases.settings:
            if getattr(attrgetter(setting.rpartition(".")[0])(settings), "enabled", True):
                yield setting.partition(".")[0], program, attrgetter(setting)(settings)


def _actual(settings: Settings, machine: Machine) -> Iterator[tuple[str, str, str | None]]:
    """Yield (component, program, version) on the node of what gpunode configures."""
    for component in ("containerd", "docker", "toolkit", "podman", "crio", "dcgm"):
        if getattr(settings, component).enabled:
            yield component, component, getattr(machine, component).version
    if settings.driver.enabled and not settings.driver.removes:
        yield "driver", "driver", machine.driver.loaded_version or machine.driver.module_version
    if settings.kubernetes.enabled:
        yield "kubernetes", "kubernetes", machine.kubelet.version
