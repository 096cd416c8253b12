"""May the container toolkit and the runtimes come that are asked for, and what is there go for them?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables, versions
from gpunode.base.codes import preflight
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.containerd.decide import desired_of as containerd_of
from gpunode.components.crio.decide import INSTALL
from gpunode.components.runtime_packages import docker_packages, removed_for, told_source, way_out
from gpunode.components.toolkit.configuration import runtime_mode
from gpunode.node.machine import Machine
from gpunode.node.preflight.words import caution, refusal
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings
from gpunode.settings.crio import known

# The families whose packages of the toolkit gpunode can hold, and replace others by, in one transaction.
_HOLDING = ("apt", "dnf", "dnf5")


def toolkit_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse to put the toolkit beside nvidia-docker2 unasked, a version below a minimum, a hold that nobody keeps."""
    desired, system = settings.toolkit, machine.operating_system
    if not desired.enabled:
        return
    actual = tables.distribution(system.id, system.version_id)
    family = actual.family if actual else None
    legacy = ", ".join(f"{name} {version}" for name, version in machine.toolkit.legacy.items())
    if legacy and not desired.migrate:
        yield refusal("toolkit-legacy", legacy=legacy)
    elif legacy and family not in _HOLDING:
        yield refusal("toolkit-legacy-stays", legacy=legacy, family=family)
    if desired.hold and family is not None and family not in _HOLDING:
        yield refusal("toolkit-not-held", family=family)
    yield from _below_minimum(settings, machine, "minimum")


def toolkit_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell of a version with a known hole, and of a preset that the device plugin has to agree with."""
    desired = settings.toolkit
    if not desired.enabled:
        return
    for item in _below_minimum(settings, machine, "security"):
        yield Caution(item.component, item.reason, item.source, item.remedy, preflight("toolkit-with-known-hole"))
    by_variable = desired.accept_nvidia_visible_devices_envvar_when_unprivileged is not False
    if not by_variable and not desired.accept_nvidia_visible_devices_as_volume_mounts and desired.cdi == "off":
        yield caution("toolkit-no-way-in")
    driver = machine.driver
    # A specification that gpunode makes takes the devices from /dev.
    by_specification = (desired.mode or runtime_mode(machine.toolkit.config_text)) == "cdi"
    if driver.is_elsewhere and driver.root_smi and not driver.root_devices and not by_specification:
        yield caution("toolkit-root-without-devices", root=driver.root)


def _below_minimum(settings: Settings, machine: Machine, kind: str) -> Iterator[Refusal]:
    """Yield the highest minimum of a kind that the version asked for does not reach."""
    desired = settings.toolkit.version
    rows = [
        row
        for row in tables.minimums()
        if row.component == "nvidia-container-toolkit"
        and row.kind == kind
        and row.minimum
        and (row.when != "tegra" or machine.operating_system.tegra)
    ]
    missed = [row for row in rows if desired and not versions.at_least(desired, row.minimum or "")]
    for row in sorted(missed, key=lambda row: versions.parsed(row.minimum or ""))[-1:]:
        yield refusal("toolkit-below-minimum", desired=desired, needed_by=row.needed_by or row.kind, row=row)


def lock_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a hold by dnf where somebody switched off what keeps it; its package comes first where it is not there."""
    driver, toolkit = settings.driver, settings.toolkit
    holds = {"driver": driver.enabled and driver.installs and driver.hold, "toolkit": toolkit.enabled and toolkit.hold}
    holding = [name for name, held in holds.items() if held and machine.toolkit.locking_off]
    if holding:
        loose = " and ".join(f"{name}.hold = False" for name in holding)
        yield refusal("hold-without-lock", first=holding[0], named=loose.replace(" = False", ""), loose=loose)


def crio_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without the CRI-O that is to be configured, or with another one: gpunode installs none."""
    desired, actual, first = settings.crio.version, machine.crio.version, known().first_with_cdi
    if not settings.crio.enabled:
        return
    if actual is None:
        yield refusal("crio-absent", install=INSTALL)
    elif desired is not None and not versions.in_branch(actual, desired):
        yield refusal("crio-another", actual=actual, desired=desired)
    elif not versions.at_least(actual, versions.major_minor(first)):
        yield refusal("crio-too-old", actual=actual, first=first)


def runtime_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a runtime for which another one's packages would be removed, with the containers that these run."""
    system = tables.distribution(machine.operating_system.id, machine.operating_system.version_id)
    if system is None:
        return
    installed = machine.runtime_packages.names
    for runtime, desired, names in (
        ("containerd", settings.containerd, containerd_of(settings).packages),
        ("docker", settings.docker, docker_packages(settings.docker.source, system)),
    ):
        lost = removed_for(names, installed, system.family) if desired.enabled else ()
        if lost:
            words = wording(machine.operating_system)
            yield refusal(
                "runtime-removes",
                runtime=runtime,
                names=" and ".join(names),
                origin=told_source(desired.source),
                lost=", ".join(lost),
                are="is" if len(lost) == 1 else "are",
                way_out=way_out(runtime, desired.source, system),
                words=words,
                to_remove=" ".join(lost),
            )
