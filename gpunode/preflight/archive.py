"""Can the distribution's own archive have the driver that is asked for?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import tables
from gpunode.driver_packages import driver_source, package_set
from gpunode.machine import Machine
from gpunode.packages import satisfies
from gpunode.preflight.flavour import chosen_flavour
from gpunode.preflight.verdicts import Refusal
from gpunode.settings import Settings

_TABLE = "gpunode/data/driver_packages.yaml"
_REPOSITORY = "set driver.source = 'cuda-repository'"


def archive_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse what the archive is known not to have; what its lists do not tell yet is judged after their refresh.

    The settings are those of `on_system`.
    """
    asked, system = settings.driver, machine.operating_system
    if not asked.enabled or asked.source != "distribution":
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
    origins = dict.fromkeys(origin for origin, _ in machine.apt_sources.archives)
    if origins and source.origin not in origins:
        yield Refusal(
            "driver",
            f"apt on the node reads no archive of the origin {source.origin} (but {', '.join(origins)}), so that "
            f"{source.name} is not known",
            "apt-get indextargets on the node (Origin)",
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


def _not_offered(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a package of which the lists know versions, and none that is asked for."""
    asked, source = settings.driver, driver_source(settings, machine.operating_system, machine.boot)
    if source is None:
        return
    flavour = chosen_flavour(settings, machine.pci.gpus)
    for name, rule in package_set(asked, source, flavour, machine.pci.fabric, machine.boot).items():
        offered = [version for offer, version in machine.offers if offer == name]
        if rule and offered and not any(satisfies(version, rule) for version in offered):
            yield Refusal(
                "driver",
                f"{source.name} has {name} at {', '.join(offered)}, and {asked.version or f'branch {rule}'} is asked "
                "for",
                f"apt-cache madison {name} on the node",
                f"set driver.branch to one that it has, or {_REPOSITORY}",
            )
            return
