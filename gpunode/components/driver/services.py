"""What serves the driver: fabric manager and what it needs at NVSwitches, IMEX, persistenced, nvidia_peermem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpunode.base import versions
from gpunode.base.comparison import BY_HAND, RUN, FindingMessage, by_hand
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.components.driver.state import DriverState, driver_finding
from gpunode.packages.driver_packages.names import is_fabric_manager, is_imex
from gpunode.settings.driver import DriverSettings
from gpunode.system.pci import PciGpus
from gpunode.system.service import MASKED, MEND_SERVICE, masked_refusal

RUNS = "running, starts at boot"

FABRIC_MANAGER = driver_finding(
    "fabric manager",
    "NVIDIA's fabric manager is not of the driver's version, or does not run.",
    "On machines with NVSwitches CUDA does not start (error 802) without it at the driver's very version.",
    cause="CUDA does not start (error 802) with a fabric manager of another version than the driver",
)
SUBNET_MANAGER = driver_finding(
    "NVLink subnet manager",
    "The NVLink subnet manager (nvlsm) is missing.",
    "On boards of NVLink 5 fabric manager does not start without it, and so CUDA does not either (error 802).",
    cause="fabric manager does not start without nvlsm on a board of NVLink 5",
)
UMAD = driver_finding(
    "ib_umad",
    "The module ib_umad is not loaded.",
    "Fabric manager reaches the NVSwitches of NVLink 5 by it.",
    cause="fabric manager reaches the NVSwitches of NVLink 5 by it",
)
IMEX = driver_finding(
    "nvidia-imex",
    "nvidia-imex is not of the driver's version.",
    "An IMEX daemon of another version ends when it starts, and GPUs of several machines share no memory.",
    cause="an IMEX of another version than the driver ends when it starts",
)
_ENDED = "systemd reports it as failed; its journal ends: {words}"
SERVICE = driver_finding(
    "service",
    "A service that belongs to the driver is not in the state that the settings ask for.",
    "It is the persistence daemon, fabric manager or a similar service. It does not run although it is needed.",
    causes=(_ENDED,),
    remedies=MEND_SERVICE,
)
_STEPS: dict[str, str] = {
    FABRIC_MANAGER.code: "install fabric manager at the driver's version",
    SUBNET_MANAGER.code: "install the NVLink subnet manager",
    IMEX.code: "install nvidia-imex at the driver's version",
    UMAD.code: "load ib_umad, now and at boot",
}


def services(
    desired: DriverSettings, actual: DriverState, pci: PciGpus, packages: Iterable[str] = ()
) -> Iterator[Finding]:
    """Judge fabric manager where there are NVSwitches, IMEX where it is or comes, the persistence daemon by its unit.

    packages: names of those that the driver comes with
    """
    if pci.fabric and actual.module_version is not None:
        yield _at_version(FABRIC_MANAGER, is_fabric_manager, actual, actual.module_version, Disruption.restart)
        yield _service(actual, "nvidia-fabricmanager")
    if pci.switch_managers and actual.module_version is not None:
        manager = dict(actual.packages).get("nvlsm")
        yield SUBNET_MANAGER.compared(manager, "any version", manager is not None)
        umad = pci.umad_loaded
        yield UMAD.compared("loaded" if umad else None, "loaded", umad)
    has_imex = any(is_imex(name) for name in (*dict(actual.packages), *packages))
    if pci.reaches_other_machines and actual.module_version is not None and has_imex:
        yield _at_version(IMEX, is_imex, actual, actual.module_version)
    # `present` is only verified, and this daemon is a convenience that nobody has asked for there.
    if desired.persistenced and desired.source != "present" and actual.service("nvidia-persistenced"):
        yield _service(actual, "nvidia-persistenced")


def _at_version(
    message: FindingMessage,
    is_one: Callable[[str], bool],
    actual: DriverState,
    version: str,
    disruption: Disruption = Disruption.nothing,
) -> Finding:
    """Judge whether packages, chosen by their names, are there and of the module's version."""
    found = [package_version for name, package_version in actual.packages if is_one(name)]
    good = bool(found) and all(versions.same(each, version) for each in found)
    return message.compared(", ".join(found) or None, version, good, disruption=disruption)


def fabric_steps(found: Iterable[Finding], with_packages: bool) -> Iterator[Step[Any]]:
    """Yield what brings fabric manager and what it needs.

    with_packages: whether the driver's packages change, and bring both managers with them
    """
    for item in bad(*found):
        if (action := _STEPS.get(item.code)) and not (with_packages and item.code != UMAD.code):
            yield Step(action, (item,), item.disruption or Disruption.nothing)


def fresh_steps(pci: PciGpus) -> Iterator[Step[Any]]:
    """Yield what comes behind the first driver of a node: what it needs is not judged before."""
    if pci.switch_managers and not pci.umad_loaded:
        yield Step(_STEPS[UMAD.code], (), Disruption.nothing, actual="none", desired="loaded")
    if pci.fabric:
        action = "run nvidia-fabricmanager, now and at boot"
        yield Step(action, (), Disruption.nothing, actual="not installed", desired=RUNS)


def service_steps(found: Iterable[Finding]) -> Iterator[Step[Any]]:
    """Yield what has the services run."""
    for item in bad(*found):
        if (name := SERVICE.named(item)) and not item.by_person:
            yield Step(f"run {name}, now and at boot", (item,), item.disruption or Disruption.nothing)


def state_of(active: bool, enabled: bool) -> str:
    """Describe the state of a service as `RUNS` does."""
    return f"{'running' if active else 'stopped'}, {'starts' if enabled else 'does not start'} at boot"


def _service(actual: DriverState, name: str) -> Finding:
    service = actual.service(name)
    if service is not None and service.masked:
        return by_hand(SERVICE.compared(MASKED, RUNS, False, of=name), masked_refusal(f"{name}.service"))
    found = "not installed" if service is None else state_of(service.active, service.enabled)
    ended = None if service is None else service.ended
    # It needs the module that is on disk: what it lacks comes with the boot.
    waits = actual.reboot_pending and service is not None and service.enabled
    mend = MEND_SERVICE[1].format(unit=f"{name}.service")
    cause, remedy = (None, None) if ended is None else (_ENDED.format(words=ended), mend)
    return SERVICE.compared(found, RUNS, found == RUNS or waits, of=name, cause=cause, remedy=remedy)


# It comes with the driver's other modules. It needs an interface for peers' memory, which the ib_core of MOFED and
# DOCA-OFED has and the kernel's own lacks: built where there was none, it refuses to load (EINVAL).
# source: NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia-peermem/nvidia-peermem.c; NVIDIA's driver README, chapter
# "GPUDirect RDMA Peer Memory Client"
MODULE = "nvidia_peermem"
# Mellanox' former module.
FORMER = "nv_peer_mem"
NO_STACK = "no RDMA stack is loaded (ib_core): install MOFED or DOCA-OFED, or leave driver.peermem out"
_OTHER = f"{FORMER} is loaded, and one of the two alone can be: disable its service, and take its package away"
_EFFECT = "RDMA adapters reach the GPUs' memory by it (GPUDirect RDMA)"

PEERMEM = driver_finding(
    "nvidia_peermem",
    "The module nvidia_peermem is not loaded as the settings ask.",
    "RDMA adapters reach the GPUs' memory by it (GPUDirect RDMA); without it transfers go through the host.",
    causes=(_OTHER, _EFFECT, NO_STACK),
)


def decide_peermem(desired: bool, actual: DriverState) -> Decision[None]:
    """Return what is to be done about nvidia_peermem; while a boot is pending, it comes with that.

    desired: whether it is asked for, on a node with a GPU
    """
    if not desired or actual.reboot_pending:
        return Decision(())
    good = actual.peermem == MODULE
    cause = _OTHER if actual.peermem == FORMER else _EFFECT if actual.rdma else NO_STACK
    is_ours = actual.rdma and actual.peermem is None
    remedy = RUN if is_ours else BY_HAND
    item = PEERMEM.compared(actual.peermem, MODULE, good, cause=cause, remedy=remedy)
    step = Step[None](f"load {MODULE}, now and at boot", bad(item), Disruption.nothing)
    return Decision((item,), (step,) if is_ours else ())
