"""The reboot into a new driver."""

from gpunode.deploys.component import component, drain, run_alone, settings
from gpunode.deploys.component import node as machine
from gpunode.deploys.drain import uncordon
from gpunode.operations import driver as kernel_module
from gpunode.operations import reboot as node


@component("Reboot")
def reboot() -> None:
    """Reboot a node with another driver loaded than the one on its disk, or none there, if the settings allow it."""
    desired, disruption = settings().driver, settings().disruption
    if not desired.enabled or not machine().has_gpu:
        return
    # Below that level a run reboots nothing: what waits is the verdict's to tell.
    if disruption.allow != "reboot" and not machine().driver.booted_for:
        return
    node.rebooted(
        name="Reboot out of the driver that was removed" if desired.removes else "Reboot into the driver on disk",
        allowed=disruption.allow == "reboot",
        timeout=disruption.reboot_timeout,
        parameters=settings().module_parameters if desired.installs else {},
        absent=desired.removes,
        drain=drain(),
        _parallel=disruption.max_parallel,
    )
    if desired.removes:
        return
    kernel_module.module_loaded(name="After a reboot, load the NVIDIA kernel modules")


run_alone(__name__, reboot, uncordon)
