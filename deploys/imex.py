"""The node's part in an IMEX domain."""

from gpunode.deploys.component import component, drain, needed, node, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import imex as domain
from gpunode.operations.phase import is_image


@component("IMEX", own_files=True)
def imex() -> None:
    """Keep the node in its IMEX domain; else what gpunode set up of one goes."""
    desired, allowed = settings().imex, settings().disruption.allow
    # nvidia-imex comes where there is a GPU that needs it.
    if is_image() or (desired.enabled and not node().has_gpu):
        return
    comes = settings().driver.installs
    # On all nodes before the next begins on any: daemons with another list would block each other for good.
    needed(
        desired.enabled,
        domain.nodes,
        name="Write the nodes of the IMEX domain" if desired.enabled else "Be in no IMEX domain of gpunode's",
        settings=desired,
        allowed=allowed,
        comes=comes,
        drain=drain(),
    )
    if desired.enabled:
        domain.running(name="Run nvidia-imex, now and at boot", settings=desired, allowed=allowed, comes=comes)


run_alone(__name__, imex, uncordon)
