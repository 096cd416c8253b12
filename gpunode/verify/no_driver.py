"""Is the driver gone that was to be removed: from the disk, and from memory?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings


def no_driver(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge a node that is to have no driver; one that is loaded goes at disruption.allow reboot alone."""
    driver = node.driver
    ways = driver.ways
    waits = bool(ways) and driver.loaded_version is not None and settings.disruption.allow != "reboot"
    if waits:
        yield Finding(
            "driver", FindingClass.REBOOT_PENDING, Subject.INSTALLED_BY, " and ".join(ways), "none",
            cause=f"the module {driver.loaded_version} is loaded, and disruption.allow is {settings.disruption.allow}",
            remedy=f"drain the node, set disruption.allow = 'reboot' and {RUN}",
            disturbs=Disturbance.reboot,
        )  # fmt: skip
    else:
        yield compared(
            "driver", Subject.INSTALLED_BY, " and ".join(ways) or None, "none", not ways,
            disturbs=Disturbance.nothing if driver.loaded_version is None else Disturbance.reboot,
        )  # fmt: skip
    if ways:
        return
    yield compared(
        "driver", Subject.MODULE_ON_DISK, driver.module_version, "none", driver.module_version is None,
        cause="no package and no runfile of NVIDIA's brought it: gpunode does not remove it",
        remedy="see where it lies (`modinfo -F filename nvidia`), remove it and run depmod",
    )  # fmt: skip
    if driver.loaded_version is not None:
        yield Finding(
            "driver", FindingClass.REBOOT_PENDING, Subject.LOADED_MODULE, driver.runs, "none",
            cause="the driver was removed while its module was in use",
            remedy="drain and reboot the node", disturbs=Disturbance.reboot,
        )  # fmt: skip
