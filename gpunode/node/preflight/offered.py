"""Do the distribution's archive, and the node's package lists, have the versions that the settings require?

Only a plan reads the lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

from gpunode.base import tables, versions
from gpunode.base.tables.sources import DriverSource
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.driver.flavour import chosen_flavour, needs_open
from gpunode.components.runtimes.containerd.decide import desired_of as containerd_of
from gpunode.components.runtimes.packages import docker_packages
from gpunode.components.runtimes.toolkit.state import PACKAGES
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages.choice import ModuleBehind, module_behind
from gpunode.packages.driver_packages.sources import driver_source, module_stream, package_set
from gpunode.packages.families.wording import wording
from gpunode.packages.installed_packages import satisfies
from gpunode.packages.repositories import package_repository
from gpunode.settings import Settings
from gpunode.settings.dcgm import known

# A run reads the lists again before it installs: of older lists it is not known what they have then.
_FRESH = 24 * 60 * 60
_MOST = 12
_CUDA = "cuda-toolkit-"

NOT_OFFERED = RefusalMessage(
    "version-not-offered",
    "The node's package lists do not have the desired version of a package.",
    component="{component}",
    reason="{setting} is {desired}, and the node's package lists have {named} at {offered}",
    source="{command} {package} on the node, whose lists were read in the last 24 hours",
    remedy="set {setting} to a version that they have, or give the node a repository that has it",
)


def offered_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a version that lists which were read today do not have. The settings are those of `resolve_for_os`."""
    if machine.lists_age is not None and machine.lists_age <= _FRESH:
        yield from (NOT_OFFERED(**values) for values in _not_offered(settings, machine))


def _not_offered(settings: Settings, machine: Machine) -> Iterator[dict[str, str]]:
    for setting, name, rule, label, installed in _packages(settings, machine):
        actual = [version for each, version in machine.available if each == name]
        if any(satisfies(version, rule) for version in (*actual, *filter(None, (installed,)))):
            continue
        # What a repository has that the node does not read yet, only the run finds out.
        if not (machine.available and (_is_read(settings, machine, label) if label else actual)):
            continue
        component, is_cuda = setting.partition(".")[0], setting == "cuda.version"
        if is_cuda:
            releases = (each for each, _ in machine.available if each.startswith(_CUDA))
            actual = [each.removeprefix(_CUDA).replace("-", ".") for each in releases]
        yield {
            "component": component,
            "setting": setting,
            "desired": settings.cuda.version if is_cuda else rule or "not set",
            "package": name,
            "named": "CUDA" if is_cuda else name,
            "offered": ", ".join(list(dict.fromkeys(actual))[:_MOST]) or "no version",
            "command": wording(machine.operating_system).offered,
        }


def _is_read(settings: Settings, machine: Machine, label: str) -> bool:
    """Say whether the node has gpunode's repository as the settings ask for it."""
    repository = package_repository(settings, machine.operating_system, label) if label else None
    if repository is None or (present := dict(machine.applied.present).get(repository.path)) is None:
        return False
    return present.sha256 == sha256(repository.text.encode()).hexdigest()


def _packages(settings: Settings, machine: Machine) -> Iterator[tuple[str, str, str | None, str, str | None]]:
    """Yield setting, one package of its component, rule, label of gpunode's repository or "", installed version."""
    driver, cuda, dcgm, system = settings.driver, settings.cuda, settings.dcgm, machine.operating_system
    source, flavour = driver_source(settings, system, machine.boot), chosen_flavour(settings, machine.pci.gpus, system)
    # Of a module stream that is not enabled nothing is listed; an archive's own driver is judged by `archive`.
    if source is not None and driver.source == "cuda-repository" and not module_stream(driver, source, flavour):
        setting = f"driver.{'version' if driver.version else 'branch'}"
        listed = {name for name, _ in machine.available}
        for name, rule in package_set(driver, source, flavour, machine.pci.fabric, machine.boot).items():
            if rule and name in listed:
                yield setting, name, rule, "cuda", dict(machine.driver.packages).get(name)
    # Where no release at all is listed, the lists are not those of NVIDIA's repository.
    listed_cuda = any(name.startswith(_CUDA) for name, _ in machine.available)
    if cuda.enabled and cuda.source == "cuda-repository" and listed_cuda:
        there = next((each for each in machine.cuda.versions if versions.in_branch(each, cuda.version)), None)
        yield "cuda.version", _CUDA + cuda.version.replace(".", "-"), None, "cuda", there
    row, runtimes = tables.distribution(system.id, system.version_id), machine.runtime_packages.installed
    for component, own, names, label, installed in (
        ("toolkit", settings.toolkit, PACKAGES, "toolkit", machine.toolkit.packages),
        ("dcgm", dcgm, (known().core,), "cuda", machine.dcgm.packages),
        ("dcgm.exporter", dcgm.enabled and dcgm.exporter, (known().exporter,), "cuda", machine.dcgm.packages),
        ("containerd", settings.containerd, containerd_of(settings).packages, "docker", runtimes),
        ("docker", settings.docker, docker_packages(settings.docker.source, row) if row else (), "docker", runtimes),
    ):
        if own and own.enabled and names:
            of = "" if getattr(own, "source", "") == "distribution" else label
            yield f"{component}.version", names[0], own.version, of, dict(installed).get(names[0])
    if settings.podman.enabled and settings.podman.source == "distribution":
        yield "podman.version", "podman", settings.podman.version, "", machine.podman.version


_REPOSITORY = "set driver.source = 'cuda-repository'"
_BY_HAND = "take another distribution for such a node, or set driver.source = 'present' and install both by hand"
_NEWER = (
    "set driver.flavour = 'proprietary' where the GPUs allow it, or driver.source = 'cuda-repository'; to have the "
    "older driver, name it by driver.version",
)

UNKNOWN = RefusalMessage(
    "archive-unknown",
    "gpunode knows no driver packages of this distribution's own archive.",
    component="driver",
    reason="gpunode knows no driver packages of {name}'s own archive",
    source="gpunode/data/driver_packages.yaml",
    remedy=_REPOSITORY,
)
NOT_READ = RefusalMessage(
    "archive-not-read",
    "apt on the node does not read the archive that the driver is to come from.",
    component="driver",
    reason="apt on the node reads no archive of origin {source.origin} ({source.name}), only of {origins}",
    source="/var/lib/apt/lists/*Release of the node's sources (Origin)",
    remedy="add {source.name} to the node's sources, or a mirror that keeps its Release files, or " + _REPOSITORY,
)
WITHOUT_FABRIC = RefusalMessage(
    "archive-without-fabric",
    "The archive has no fabric manager at the driver's version, and the node has NVSwitches.",
    component="driver",
    reason="the node has NVSwitches, and {name} has no {what}, without which CUDA does not start",
    source="gpunode/data/driver_packages.yaml",
    remedies=(_REPOSITORY, _BY_HAND),
)
MODULE_OUTDATED = RefusalMessage(
    "archive-module-behind",
    "The archive's kernel module is older than the rest of its driver.",
    component="driver",
    source="apt-cache madison {package}",
    remedies=_NEWER,
)


def archive_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse what the archive is known not to have; what its lists do not have yet is judged after their refresh.

    The settings are those of `resolve_for_os`.
    """
    desired, system = settings.driver, machine.operating_system
    if not desired.enabled or desired.source != "distribution":
        return
    source = driver_source(settings, system, machine.boot)
    if source is None:
        yield UNKNOWN(name=system.name)
        return
    origins = machine.apt_sources.origins
    if origins and source.origin not in origins:
        yield NOT_READ(source=source, origins=", ".join(origins))
    lacks = [group for group in machine.pci.fabric if group not in source.packages]
    if lacks:
        what = "fabric manager" if "nvswitch" in lacks else "NVLink subnet manager (nvlsm)"
        remedy = _BY_HAND if tables.driver_source("cuda-repository", system.id) is None else _REPOSITORY
        yield WITHOUT_FABRIC(name=source.name, what=what, remedy=remedy)
    packages = _archive_packages(settings, source, machine)
    yield from _lacking(settings, source, packages, machine)
    behind = module_behind(source, packages, machine.offers)
    if behind is not None and behind.package not in dict(machine.driver.packages):
        yield MODULE_OUTDATED(reason=behind.reason(source), package=behind.package, remedy=_remedy(behind, machine))


MODULE_MAY_BE_OUTDATED = CautionMessage(
    "archive-may-be-behind",
    "The archive's open kernel module may be older than the rest of its driver.",
    component="driver",
    source="gpunode/data/distributions.yaml",
    remedies=_NEWER,
)


def archive_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of an open module that is older than the driver by the table, where the node's lists do not name it.

    The settings are those of `resolve_for_os`.
    """
    desired, system = settings.driver, machine.operating_system
    actual = tables.distribution(system.id, system.version_id)
    source = driver_source(settings, system, machine.boot) if desired.source == "distribution" else None
    if source is None or actual is None or actual.open_behind is None or desired.version is not None:
        return
    module, rest = actual.open_behind.module, actual.open_behind.rest
    packages = _archive_packages(settings, source, machine)
    names = [name for name in source.packages["open"] if name in packages and name.endswith("-dkms")]
    listed = {name for name, _ in machine.offers} | {name for name, _ in machine.driver.packages}
    if names and versions.in_branch(module, desired.branch or "") and names[0] not in listed:
        behind = ModuleBehind(names[0], module, rest)
        yield MODULE_MAY_BE_OUTDATED(reason=behind.reason(source), remedy=_remedy(behind, machine))


def _remedy(behind: ModuleBehind, machine: Machine) -> str:
    return behind.remedy(any(needs_open(gpu.generation) for gpu in machine.pci.gpus))


def _archive_packages(settings: Settings, source: DriverSource, machine: Machine) -> dict[str, str | None]:
    flavour = chosen_flavour(settings, machine.pci.gpus, machine.operating_system)
    return package_set(settings.driver, source, flavour, machine.pci.fabric, machine.boot)


ARCHIVE_NOT_OFFERED = RefusalMessage(
    "archive-not-offered",
    "The archive has the driver only at another branch than the desired one.",
    component="driver",
    reason="{source} has {name} at {offered}, and the desired driver is {desired}",
    source="apt-cache madison {name} on the node",
    remedy="set driver.branch to one that it has, or driver.source = 'cuda-repository'",
)


def _lacking(
    settings: Settings, source: DriverSource, packages: Mapping[str, str | None], machine: Machine
) -> Iterator[Refusal]:
    """Refuse a package of which the lists have versions, but not the desired one."""
    for name, rule in packages.items():
        offered = [version for offer, version in machine.offers if offer == name]
        if rule and offered and not any(satisfies(version, rule) for version in offered):
            driver = settings.driver.version or f"branch {rule}"
            yield ARCHIVE_NOT_OFFERED(source=source.name, name=name, offered=", ".join(offered), desired=driver)
            return
