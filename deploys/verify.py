"""The verdict."""

from gpunode.deploys.component import component, is_whole_run, run_alone, settings
from gpunode.operations import applied
from gpunode.operations import verify as verdict
from gpunode.operations.phase import is_image


@component("Verify")
def verify() -> None:
    """Read the node again, fail on any difference from what was asked, and record what was applied."""
    if not is_image():
        verdict.verified(name="Verify the node", settings=settings())
    if settings().verify.smoke and not is_image():
        _containers()
    applied.recorded(name="Record what was applied", settings=settings(), whole=is_whole_run())


@component("Smoke test")
def smoke() -> None:
    """Start containers with and without GPUs, and see that they see what they should."""
    _containers()


def _containers() -> None:
    verdict.containers(name="Start containers with and without GPUs", reload=settings().disruption.allow != "nothing")


run_alone(__name__, verify)
