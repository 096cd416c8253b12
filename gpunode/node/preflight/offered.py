"""Do the node's package lists have the versions that the settings ask for? Only a plan reads the lists."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.containerd.decide import desired_of as containerd_of
from gpunode.components.driver.flavour import chosen_flavour
from gpunode.components.runtime_packages import docker_packages
from gpunode.components.toolkit.state import PACKAGES
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages.sources import driver_source, module_stream, package_set
from gpunode.packages.families.wording import wording
from gpunode.packages.installed_packages import satisfies
from gpunode.packages.repositories import package_repository
from gpunode.settings import Settings
from gpunode.settings.dcgm import known

# A run reads the lists again before it installs: of older lists it is not known what they have then.
_FRESH = 24 * 60 * 60
_MOST = 12

NOT_OFFERED = RefusalMessage(
    "version-not-offered",
    "The node's package lists do not have the desired version of a package.",
    component="{component}",
    reason="{setting} is {desired}, and the node's package lists have {named} at {offered}",
    source="{command} {package} on the node, whose lists were read in the last 24 hours",
    remedy="set {setting} to a version that they have, or give the node a repository that has {desired}",
)
MAY_NOT_BE_OFFERED = CautionMessage(
    "version-may-not-be-offered",
    "The node's package lists do not have the desired version of a package, and may be out of date.",
    component="{component}",
    reason="{setting} is {desired}, and the node's package lists, read more than 24 hours ago, have {named} at "
    "{offered}",
    source="{command} {package} on the node",
    remedy="refresh the lists on the node and plan again; where they still lack it, set {setting} to a version "
    "that they have",
    detail="The run refreshes the lists, and fails before it installs anything where they still lack the version.",
)


@dataclass(frozen=True)
class _Package:
    """A package that a run would install.

    repository: the label of gpunode's repository that it comes from; empty: one of the node's own
    rule: a version or a branch; None: any
    """

    component: str
    setting: str
    desired: str
    name: str
    rule: str | None
    repository: str


def offered_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a version that lists which were read today do not have. The settings are those of `resolve_for_os`."""
    if machine.lists_age is not None and machine.lists_age <= _FRESH:
        yield from (NOT_OFFERED(**values) for values in _not_offered(settings, machine))


def offered_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of a version that older lists do not have."""
    if machine.lists_age is not None and machine.lists_age > _FRESH:
        yield from (MAY_NOT_BE_OFFERED(**values) for values in _not_offered(settings, machine))


def _not_offered(settings: Settings, machine: Machine) -> Iterator[dict[str, str]]:
    for package in _to_install(settings, machine):
        actual = [version for name, version in machine.available if name == package.name]
        if any(satisfies(version, package.rule) for version in actual):
            continue
        # Of a repository that the node does not read yet, its lists say nothing.
        if not actual and not _is_read(settings, machine, package.repository):
            continue
        if package.component == "cuda":
            names = [name for name, _ in machine.available if name.startswith("cuda-toolkit-")]
            actual = [name.removeprefix("cuda-toolkit-").replace("-", ".") for name in names]
        yield {
            "component": package.component,
            "setting": package.setting,
            "desired": package.desired,
            "package": package.name,
            "named": "CUDA" if package.component == "cuda" else package.name,
            "offered": ", ".join(list(dict.fromkeys(actual))[:_MOST]) or "no version",
            "command": wording(machine.operating_system).offered,
        }


def _is_read(settings: Settings, machine: Machine, label: str) -> bool:
    """Say whether the node has gpunode's repository as the settings ask for it."""
    repository = package_repository(settings, machine.operating_system, label) if label else None
    present = dict(machine.applied.present).get(repository.path) if repository else None
    return repository is not None and present is not None and present.sha256 == _digest(repository.text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _to_install(settings: Settings, machine: Machine) -> Iterator[_Package]:
    for package, installed in _packages(settings, machine):
        if installed is None or not satisfies(installed, package.rule):
            yield package


def _packages(settings: Settings, machine: Machine) -> Iterator[tuple[_Package, str | None]]:
    """Yield one package of each component that is installed, and its installed version."""
    yield from _of_driver(settings, machine)
    cuda, toolkit, dcgm = settings.cuda, settings.toolkit, settings.dcgm
    if cuda.enabled and cuda.source == "cuda-repository":
        name = f"cuda-toolkit-{cuda.version.replace('.', '-')}"
        own = cuda.version if any(versions.in_branch(each, cuda.version) for each in machine.cuda.versions) else None
        yield _Package("cuda", "cuda.version", cuda.version, name, None, "cuda"), own
    if toolkit.enabled:
        named = toolkit.version or "any version"
        package = _Package("toolkit", "toolkit.version", named, PACKAGES[0], toolkit.version, "toolkit")
        yield package, dict(machine.toolkit.packages).get(PACKAGES[0])
    for setting, enabled, name, rule in (
        ("dcgm.version", dcgm.enabled, known().core, dcgm.version),
        ("dcgm.exporter.version", dcgm.enabled and dcgm.exporter.enabled, known().exporter, dcgm.exporter.version),
    ):
        if enabled:
            package = _Package("dcgm", setting, rule or "any version", name, rule, "cuda")
            yield package, dict(machine.dcgm.packages).get(name)
    yield from _of_runtimes(settings, machine)


def _of_driver(settings: Settings, machine: Machine) -> Iterator[tuple[_Package, str | None]]:
    desired, source = settings.driver, driver_source(settings, machine.operating_system, machine.boot)
    flavour = chosen_flavour(settings, machine.pci.gpus, machine.operating_system)
    # Of a module stream that is not enabled the package manager tells nothing; the archive's driver is judged there.
    if source is None or desired.source != "cuda-repository" or module_stream(desired, source, flavour):
        return
    names = {name for name, _ in machine.available}
    for name, rule in package_set(desired, source, flavour, machine.pci.fabric, machine.boot).items():
        if rule and name in names:
            setting = "driver.version" if desired.version else "driver.branch"
            yield _Package("driver", setting, rule, name, rule, "cuda"), dict(machine.driver.packages).get(name)
            return


def _of_runtimes(settings: Settings, machine: Machine) -> Iterator[tuple[_Package, str | None]]:
    row = tables.distribution(machine.operating_system.id, machine.operating_system.version_id)
    installed = dict(machine.runtime_packages.installed)
    docker = docker_packages(settings.docker.source, row) if row else ()
    podman = ("podman",) if settings.podman.source == "distribution" else ()
    for component, own, names in (
        ("containerd", settings.containerd, containerd_of(settings).packages),
        ("docker", settings.docker, docker),
        ("podman", settings.podman, podman),
    ):
        if own.enabled and names:
            label = "docker" if own.source == "docker-repository" else ""
            named = own.version or "any version"
            package = _Package(component, f"{component}.version", named, names[0], own.version, label)
            yield package, machine.podman.version if component == "podman" else installed.get(names[0])
