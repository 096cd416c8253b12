"""Can the distribution's own archive have the driver that is asked for?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables, versions
from gpunode.base.tables.sources import DriverSource
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver.flavour import chosen_flavour, needs_open
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages import ModuleBehind, driver_source, module_behind, package_set
from gpunode.packages.installed_packages import satisfies
from gpunode.settings import Settings

_TABLE = "gpunode/data/driver_packages.yaml"
_REPOSITORY = "set driver.source = 'cuda-repository'"


def archive_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse what the archive is known not to have; what its lists do not tell yet is judged after their refresh.

    The settings are those of `resolve_for_os`.
    """
    desired, system = settings.driver, machine.operating_system
    if not desired.enabled or desired.source != "distribution":
        return
    source = driver_source(settings, system, machine.boot)
    if source is None:
        yield Refusal("driver", f"no driver packages of {system.name}'s own archive are known", _TABLE, _REPOSITORY)
        return
    elsewhere = _REPOSITORY
    if tables.driver_source("cuda-repository", system.id) is None:
        elsewhere = (
            "take another distribution for such a node, or set driver.source = 'present' and install both yourself"
        )
    origins = machine.apt_sources.origins
    if origins and source.origin not in origins:
        yield Refusal(
            "driver",
            f"apt on the node reads no archive of the origin {source.origin} (but {', '.join(origins)}), so that "
            f"{source.name} is not known",
            "/var/lib/apt/lists/*Release of the node's sources (Origin)",
            f"give the node a source of {source.name} or of a mirror that keeps its Release files, or {_REPOSITORY}",
        )
    lacks = [group for group in machine.pci.fabric if group not in source.packages]
    if lacks:
        what = "fabric manager" if "nvswitch" in lacks else "NVLink subnet manager (nvlsm)"
        yield Refusal(
            "driver",
            f"the node has NVSwitches, and {source.name} has no {what}, without which CUDA does not start",
            _TABLE,
            elsewhere,
        )
    yield from _not_offered(settings, machine)
    behind = module_behind(source, _wanted(settings, source, machine), machine.offers)
    if behind is not None and behind.package not in dict(machine.driver.packages):
        yield Refusal("driver", behind.reason(source), f"apt-cache madison {behind.package}", _ways(behind, machine))


def archive_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell of an open module that is known to be behind, where the node's lists do not say how it stands there.

    The settings are those of `resolve_for_os`.
    """
    chosen, system = settings.driver, machine.operating_system
    actual = tables.distribution(system.id, system.version_id)
    source = driver_source(settings, system, machine.boot) if chosen.source == "distribution" else None
    if source is None or actual is None or actual.open_behind is None or chosen.version is not None:
        return
    module, rest = actual.open_behind.module, actual.open_behind.rest
    desired = _wanted(settings, source, machine)
    names = [name for name in source.packages["open"] if name in desired and name.endswith("-dkms")]
    told = {name for name, _ in machine.offers} | {name for name, _ in machine.driver.packages}
    if names and versions.in_branch(module, chosen.branch or "") and names[0] not in told:
        behind = ModuleBehind(names[0], module, rest)
        yield Caution("driver", behind.reason(source), "gpunode/data/distributions.yaml", _ways(behind, machine))


def _ways(behind: ModuleBehind, machine: Machine) -> str:
    return behind.remedy(any(needs_open(gpu.generation) for gpu in machine.pci.gpus))


def _wanted(settings: Settings, source: DriverSource, machine: Machine) -> dict[str, str | None]:
    flavour = chosen_flavour(settings, machine.pci.gpus, machine.operating_system)
    return package_set(settings.driver, source, flavour, machine.pci.fabric, machine.boot)


def _not_offered(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a package of which the lists know versions, and none that is asked for."""
    desired, source = settings.driver, driver_source(settings, machine.operating_system, machine.boot)
    if source is None:
        return
    for name, rule in _wanted(settings, source, machine).items():
        offered = [version for offer, version in machine.offers if offer == name]
        if rule and offered and not any(satisfies(version, rule) for version in offered):
            yield Refusal(
                "driver",
                f"{source.name} has {name} at {', '.join(offered)}, and {desired.version or f'branch {rule}'} is asked "
                "for",
                f"apt-cache madison {name} on the node",
                f"set driver.branch to one that it has, or {_REPOSITORY}",
            )
            return
