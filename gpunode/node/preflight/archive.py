"""Does the distribution's own archive have the driver that the settings ask for?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables, versions
from gpunode.base.tables.sources import DriverSource
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.driver.flavour import chosen_flavour, needs_open
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages.choice import ModuleBehind, module_behind
from gpunode.packages.driver_packages.sources import driver_source, package_set
from gpunode.packages.installed_packages import satisfies
from gpunode.settings import Settings

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
    yield from _not_offered(settings, machine)
    behind = module_behind(source, _packages(settings, source, machine), machine.offers)
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
    packages = _packages(settings, source, machine)
    names = [name for name in source.packages["open"] if name in packages and name.endswith("-dkms")]
    listed = {name for name, _ in machine.offers} | {name for name, _ in machine.driver.packages}
    if names and versions.in_branch(module, desired.branch or "") and names[0] not in listed:
        behind = ModuleBehind(names[0], module, rest)
        yield MODULE_MAY_BE_OUTDATED(reason=behind.reason(source), remedy=_remedy(behind, machine))


def _remedy(behind: ModuleBehind, machine: Machine) -> str:
    return behind.remedy(any(needs_open(gpu.generation) for gpu in machine.pci.gpus))


def _packages(settings: Settings, source: DriverSource, machine: Machine) -> dict[str, str | None]:
    flavour = chosen_flavour(settings, machine.pci.gpus, machine.operating_system)
    return package_set(settings.driver, source, flavour, machine.pci.fabric, machine.boot)


NOT_OFFERED = RefusalMessage(
    "archive-not-offered",
    "The archive has the driver only at another branch than the desired one.",
    component="driver",
    reason="{source} has {name} at {offered}, and the desired driver is {desired}",
    source="apt-cache madison {name} on the node",
    remedy="set driver.branch to one that it has, or driver.source = 'cuda-repository'",
)


def _not_offered(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a package of which the lists have versions, but not the desired one."""
    desired, source = settings.driver, driver_source(settings, machine.operating_system, machine.boot)
    if source is None:
        return
    for name, rule in _packages(settings, source, machine).items():
        offered = [version for offer, version in machine.offers if offer == name]
        if rule and offered and not any(satisfies(version, rule) for version in offered):
            driver = desired.version or f"branch {rule}"
            yield NOT_OFFERED(source=source.name, name=name, offered=", ".join(offered), desired=driver)
            return
