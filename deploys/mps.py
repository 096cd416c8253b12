"""The Multi-Process Service on the host."""

from gpunode.components.mps.daemon import daemons
from gpunode.deploys.component import component, drain, needed, node, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import mps as control
from gpunode.operations.phase import is_image


@component("MPS", own_files=True)
def mps() -> None:
    """Run the MPS control daemons that are asked for, with their settings; none: what gpunode set up of them goes."""
    if is_image():
        return
    desired = settings().mps
    needed(
        desired.enabled,
        control.daemons,
        name="Run the MPS control daemon" if desired.enabled else "Run no MPS control daemon",
        desired=daemons(desired, range(len(node().pci.gpus))) if desired.enabled else (),
        settings=desired,
        restart_allowed=settings().disruption.allow != "nothing",
        drain=drain(),
    )


run_alone(__name__, mps, uncordon)
