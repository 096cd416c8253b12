"""What serves the driver: fabric manager and what it needs at NVSwitches, IMEX' package, the persistence daemon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpunode.base import versions
from gpunode.base.comparison import compared
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.subject import Subject
from gpunode.components.driver.state import DriverState
from gpunode.packages.driver_packages import is_imex
from gpunode.settings.driver import DriverSettings
from gpunode.system.pci import PciGpus

RUNS = "running, starts at boot"
_STEPS: dict[str, str] = {
    Subject.FABRIC_MANAGER: "install fabric manager at the driver's version",
    Subject.SUBNET_MANAGER: "install the NVLink subnet manager",
    Subject.IMEX: "install nvidia-imex at the driver's version",
    Subject.UMAD: "load ib_umad, now and at boot",
}


def services(
    desired: DriverSettings, actual: DriverState, pci: PciGpus, packages: Iterable[str] = ()
) -> Iterator[Finding]:
    """Judge fabric manager where there are NVSwitches, IMEX where it is or comes, the persistence daemon by its unit.

    packages: names of those that the driver comes with
    """
    if pci.fabric and actual.module_version is not None:
        managers = actual.fabric_managers
        yield compared(
            "driver",
            Subject.FABRIC_MANAGER,
            ", ".join(managers) or None,
            actual.module_version,
            bool(managers) and all(versions.same(version, actual.module_version) for version in managers),
            cause="CUDA does not start (error 802) with a fabric manager of another version than the driver",
            disruption=Disruption.restart,
        )
        yield _service(actual, "nvidia-fabricmanager")
    if pci.switch_managers and actual.module_version is not None:
        manager = dict(actual.packages).get("nvlsm")
        yield compared(
            "driver",
            Subject.SUBNET_MANAGER,
            manager,
            "any version",
            manager is not None,
            cause="fabric manager does not start without nvlsm on a board of NVLink 5",
        )
        umad = pci.umad_loaded
        yield compared(
            "driver",
            Subject.UMAD,
            "loaded" if umad else None,
            "loaded",
            umad,
            cause="fabric manager reaches the NVSwitches of NVLink 5 by it",
        )
    if pci.reaches_other_machines and actual.module_version is not None:
        imex = actual.imex
        if imex or any(is_imex(name) for name in packages):
            yield compared(
                "driver",
                Subject.IMEX,
                ", ".join(imex) or None,
                actual.module_version,
                bool(imex) and all(versions.same(version, actual.module_version) for version in imex),
                cause="an IMEX of another version than the driver ends when it starts",
            )
    # `present` is only verified, and this daemon is a convenience that nobody has asked for there.
    if desired.persistenced and desired.source != "present" and actual.service("nvidia-persistenced"):
        yield _service(actual, "nvidia-persistenced")


def fabric_steps(found: Iterable[Finding], with_packages: bool) -> Iterator[Step[Any]]:
    """Yield what brings fabric manager and what it needs.

    with_packages: whether the driver's packages change, and bring both managers with them
    """
    for item in bad(*found):
        if (action := _STEPS.get(item.what)) and not (with_packages and item.what != Subject.UMAD):
            yield Step(action, (item,), item.disruption or Disruption.nothing)


def fresh_steps(pci: PciGpus) -> Iterator[Step[Any]]:
    """Yield what comes behind the first driver of a node: what it needs is not judged before."""
    if pci.switch_managers and not pci.umad_loaded:
        yield Step(_STEPS[Subject.UMAD], (), Disruption.nothing, actual="none", desired="loaded")
    if pci.fabric:
        action = "run nvidia-fabricmanager, now and at boot"
        yield Step(action, (), Disruption.nothing, actual="not installed", desired=RUNS)


def service_steps(found: Iterable[Finding]) -> Iterator[Step[Any]]:
    """Yield what has the services run."""
    for item in bad(*found):
        if name := Subject.SERVICE.named(item.what):
            yield Step(f"run {name}, now and at boot", (item,), item.disruption or Disruption.nothing)


def _service(actual: DriverState, name: str) -> Finding:
    service = actual.service(name)
    found = "not installed"
    if service is not None:
        boot = "starts at boot" if service.enabled else "does not start at boot"
        found = f"{'running' if service.active else 'stopped'}, {boot}"
    # It needs the module that is on disk: what it lacks comes with the boot.
    waits = actual.reboot_pending and service is not None and service.enabled
    return compared("driver", Subject.SERVICE.of(name), found, RUNS, found == RUNS or waits)
