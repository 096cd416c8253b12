"""Power limits, clocks and ECC."""

from gpunode.deploys.component import component, drain, needed, node, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import power as limits
from gpunode.operations.phase import is_image


@component("Power", own_files=True)
def power() -> None:
    """Set the GPUs' power limits, clocks and ECC; none: what gpunode set of them goes back to the GPUs' defaults."""
    if is_image() or not node().has_gpu:
        return
    desired, disruption = settings().power, settings().disruption
    needed(
        desired.is_asked,
        limits.kept,
        name="Set power limits, clocks and ECC" if desired.is_asked else "Set no power limits",
        settings=desired,
        allowed=disruption.allow,
        timeout=disruption.reboot_timeout,
        drain=drain(),
        _parallel=disruption.max_parallel,
    )


run_alone(__name__, power, uncordon)
