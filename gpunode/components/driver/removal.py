"""A driver that is to be absent: is it gone from the disk, and from memory?"""

from __future__ import annotations

from gpunode.base.comparison import RUN, compared
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject
from gpunode.components.driver.loading import Act, boot_step
from gpunode.components.driver.state import DriverState


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
    absent = compared("driver", Subject.INSTALLED_BY, None, "none", good=True)
    module = compared(
        "driver",
        Subject.MODULE_ON_DISK,
        actual.module_version,
        "none",
        actual.module_version is None,
        cause="no package and no runfile of NVIDIA's brought it: gpunode does not remove it",
        remedy="see where it lies (`modinfo -F filename nvidia`), remove it and run depmod",
    )
    if not loaded:
        return Decision((absent, module))
    gone = Finding(
        "driver",
        FindingClass.REBOOT_PENDING,
        Subject.LOADED_MODULE,
        actual.runs,
        "none",
        cause="the driver was removed while its module was in use",
        remedy="drain and reboot the node",
        disruption=Disruption.reboot,
    )
    return Decision((absent, module, gone), (boot_step("boot the node without the driver", bad(gone), allowed),))


def _installed(allowed: Disruption, actual: DriverState) -> Finding:
    ways = " and ".join(actual.ways)
    if removal_waits(allowed, actual):
        return Finding(
            "driver",
            FindingClass.REBOOT_PENDING,
            Subject.INSTALLED_BY,
            ways,
            "none",
            cause=f"the module {actual.loaded_version} is loaded, and disruption.allow is {allowed.name}",
            remedy=f"drain the node, set disruption.allow = 'reboot' and {RUN}",
            disruption=Disruption.reboot,
        )
    disruption = Disruption.nothing if actual.loaded_version is None else Disruption.reboot
    return compared("driver", Subject.INSTALLED_BY, ways, "none", good=False, disruption=disruption)
