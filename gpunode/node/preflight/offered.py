"""Do the node's package lists have the versions that the settings ask for? Only a plan reads the lists."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from gpunode.base import tables, versions
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.components.containerd.decide import desired_of as containerd_of
from gpunode.components.driver.flavour import chosen_flavour
from gpunode.components.runtime import docker_packages
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
