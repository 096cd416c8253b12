"""The node's GPUs in Slurm."""

from gpunode.deploys.component import component, needed, run_alone, settings
from gpunode.operations import slurm as gres
from gpunode.operations.phase import is_image


@component("Slurm", own_files=True)
def slurm() -> None:
    """Tell a Slurm that is there of the node's GPUs, in files that the site's include; else gpunode's files go."""
    # The devices are those of the machine that boots from it.
    if is_image():
        return
    desired = settings().slurm
    needed(
        desired.enabled,
        gres.devices,
        name="Tell Slurm of the GPUs" if desired.enabled else "Tell Slurm of no GPUs",
        settings=desired,
        allowed=settings().disruption.allow,
        _parallel=settings().disruption.max_parallel,
    )


run_alone(__name__, slurm)
