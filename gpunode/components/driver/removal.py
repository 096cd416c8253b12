"""A driver that is to be absent: is it gone from the disk, and from memory?"""

from __future__ import annotations

from gpunode.base.comparison import REBOOT, REBOOT_NODE, RUN
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.loading import LOADED_MODULE, REMOVED, Act, boot_step
from gpunode.components.driver.state import DriverState, driver_finding

MIXED, MIGRATE = "a runfile and packages overwrite each other's files", f"set driver.migrate = True and {RUN}"
_LOADED = "the module {loaded_version} is loaded, and disruption.allow is {name}"
_ALLOW = f"drain the node, set disruption.allow = 'reboot' and {RUN}"
_NOT_OURS = "no package and no runfile of NVIDIA's brought it: gpunode does not remove it"
_FIND_IT = "see where it lies (`modinfo -F filename nvidia`), remove it and run depmod"
INSTALLED_BY = driver_finding(
    "installed by",
    "The driver was installed in another way than the settings ask for.",
    "Packages and NVIDIA's .run installer overwrite each other's files; driver.migrate allows the change.",
    causes=(MIXED, _LOADED),
    remedies=(RUN, MIGRATE, _ALLOW),
    classes=REBOOT,
)
MODULE_ON_DISK = driver_finding(
    "module on disk",
    "The driver's module on disk is not of the version that the settings ask for.",
    "It is what the next boot loads: missing, of another version, or there although it is to be absent.",
    causes=(_NOT_OURS,),
    remedies=(RUN, _FIND_IT),
)


def removal_waits(allowed: Disruption, actual: DriverState) -> bool:
    """Say whether a driver that is to go stays for now: below `reboot` a run unloads nothing, and removes no driver."""
    return actual.loaded_version is not None and is_forbidden(Disruption.reboot, allowed, 0)


def decide_removal(allowed: Disruption, actual: DriverState) -> Decision[Act]:
    """Return what is to be done about a driver that is to be absent; its module goes at once where nothing uses it."""
    ways, loaded = actual.ways, actual.loaded_version is not None
    if ways:
        installed = _installed(allowed, actual)
        boots = ", and boot the node where its module is in use" if loaded else ""
        action, disruption = f"remove the driver of the {installed.actual}{boots}", installed.disruption
        waits = installed.cause if removal_waits(allowed, actual) else None
        step = Step(action, (installed,), disruption or Disruption.nothing, waits, Act.REMOVE)
        return Decision((installed,), (step,))
    absent = INSTALLED_BY.compared(None, "none", True)
    module = MODULE_ON_DISK.compared(
        actual.module_version, "none", actual.module_version is None, cause=_NOT_OURS, remedy=_FIND_IT
    )
    if not loaded:
        return Decision((absent, module))
    gone = LOADED_MODULE.finding(
        FindingClass.REBOOT_PENDING,
        actual.runs,
        "none",
        cause=REMOVED,
        remedy=REBOOT_NODE,
        disruption=Disruption.reboot,
    )
    return Decision((absent, module, gone), (boot_step("boot the node without the driver", bad(gone), allowed),))


def _installed(allowed: Disruption, actual: DriverState) -> Finding:
    ways = " and ".join(actual.ways)
    if removal_waits(allowed, actual):
        return INSTALLED_BY.finding(
            FindingClass.REBOOT_PENDING,
            ways,
            "none",
            cause=_LOADED.format(loaded_version=actual.loaded_version, name=allowed.name),
            remedy=_ALLOW,
            disruption=Disruption.reboot,
        )
    disruption = Disruption.nothing if actual.loaded_version is None else Disruption.reboot
    return INSTALLED_BY.compared(ways, "none", False, disruption=disruption)
