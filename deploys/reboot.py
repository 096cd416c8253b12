"""The reboot into a new driver."""

from deploys.component import component, settings
from operations import driver as kernel_module
from operations import reboot as node


@component("Reboot")
def reboot() -> None:
    """Reboot a node that has another driver loaded than the one on its disk, if the settings allow it."""
    if not settings().driver.enabled:
        return
    disruption = settings().disruption
    node.rebooted(
        name="Reboot into the driver on disk",
        allowed=disruption.allow == "reboot",
        timeout=disruption.reboot_timeout,
        _parallel=disruption.max_parallel,
    )
    kernel_module.module_loaded(name="After a reboot, load the NVIDIA kernel modules")
