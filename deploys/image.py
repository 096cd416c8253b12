"""What an image needs beside a node's packages and files; nothing on a machine that runs."""

from gpunode.deploys.component import component, run_alone, settings
from gpunode.operations import image as own
from gpunode.operations.phase import is_image


@component("Image")
def image() -> None:
    """Have the first boot of a machine that is made from the image verify itself, and record that."""
    if is_image():
        own.first_boot(name="Have the first boot verified", settings=settings())


run_alone(__name__, image)
