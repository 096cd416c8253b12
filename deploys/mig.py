"""Multi-Instance GPU."""

from gpunode.deploys.component import component, drain, needed, node, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import mig as instances


@component("MIG", own_files=True)
def mig() -> None:
    """Divide the GPUs as the configuration says, now and after every boot; none: they are left as they are."""
    desired, disruption = settings().mig, settings().disruption
    if not node().has_gpu:
        return
    needed(
        desired.config is not None or desired.config_from_label,
        instances.layout,
        name=f"Divide the GPUs by MIG configuration {desired.config}" if desired.config else "Divide no GPU",
        settings=desired,
        gpus=node().pci.gpus,
        allowed=disruption.allow,
        timeout=disruption.reboot_timeout,
        drain=drain(),
        node_of=settings() if settings().kubernetes.enabled else None,
        _parallel=disruption.max_parallel,
    )


run_alone(__name__, mig, uncordon)
