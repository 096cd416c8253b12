"""CRI-O with the nvidia runtime."""

from gpunode.components.runtimes.crio.decide import desired_of
from gpunode.deploys.component import component, drain, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import crio as runtime
from gpunode.operations import systemd


@component("CRI-O", own_files=True)
def crio() -> None:
    """Give an installed CRI-O the nvidia runtime, and restart it only where it runs by another configuration."""
    if not settings().crio.enabled:
        return
    desired = desired_of(settings())
    runtime.configuration(
        name=f"Configure CRI-O: default runtime {desired.runtimes.default}",
        desired=desired,
        drain=drain(),
        _parallel=settings().disruption.max_parallel,
    )
    systemd.running(name="Run CRI-O, now and at boot", unit=desired.unit or "crio.service")


run_alone(__name__, crio, uncordon)
