"""The kubelet of a node: reservations, evictions, and how CPUs are given to pods."""

from gpunode.deploys.component import component, drain, needed, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import kubelet as own
from gpunode.operations.phase import is_image


@component("Kubelet")
def kubelet() -> None:
    """Keep the kubelet that runs at what the settings ask, and restart it only where it is to run by something else."""
    # No kubelet runs where an image is made.
    if is_image():
        return
    desired = settings().kubernetes.kubelet
    needed(
        desired.asks,
        own.configuration,
        name="Configure the kubelet" if desired.asks else "Leave nothing in the kubelet's files",
        settings=desired,
        allowed=settings().disruption.allow,
        drain=drain(),
        _parallel=settings().disruption.max_parallel,
    )


run_alone(__name__, kubelet, uncordon)
