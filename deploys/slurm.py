"""The node's GPUs in Slurm."""

from gpunode.deploys.component import component, needed, settings
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


# pyinfra runs the file by itself, where gpu_node.py and `deploys.slurm.slurm` import it.
if not __name__.endswith("deploys.slurm"):
    slurm()
