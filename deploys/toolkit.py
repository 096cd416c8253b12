"""The NVIDIA container toolkit."""

from gpunode.components.runtimes.toolkit.configuration import desired_keys
from gpunode.components.runtimes.toolkit.packages import lost
from gpunode.components.runtimes.toolkit.state import LEGACY, LINK_RULE, PACKAGES, PACMAN_PACKAGES
from gpunode.deploys.component import component, distribution, needed, node, own_file, run_alone, settings
from gpunode.deploys.repositories import trust
from gpunode.operations import packages
from gpunode.operations import toolkit as container_toolkit
from gpunode.operations.phase import is_image
from gpunode.settings import ToolkitSettings


@component("Container toolkit", own_files=True)
def toolkit() -> None:
    """Install the container toolkit's four packages at one version, and configure it."""
    desired = settings().toolkit
    if not desired.enabled:
        return
    _packages(desired)
    driver = settings().driver
    container_toolkit.configuration(
        name="Configure the container toolkit",
        desired=desired_keys(desired, driver.root if driver.enabled else None),
        by_containerd=settings().containerd.enabled and not is_image(),
    )
    generate = desired.cdi == "generate"
    if not is_image():
        name = "Keep a CDI specification of the loaded driver" if generate else "Keep no CDI specification"
        needed(generate, container_toolkit.specification, name=name, generate=generate)
    own_file(
        LINK_RULE,
        keep="Link NVIDIA's devices in /dev/char whenever the driver is loaded",
        remove="Remove the udev rule that links NVIDIA's devices",
    )
    if desired.device_links and not is_image():
        container_toolkit.device_links(name="Link NVIDIA's devices in /dev/char")


def _packages(desired: ToolkitSettings) -> None:
    family = distribution().family
    trust("toolkit")
    container_toolkit.released(
        name="Let go of the toolkit's packages where they are to move",
        family=family,
        version=desired.version,
        hold=desired.hold,
    )
    packages.installed(
        name=f"Install NVIDIA container toolkit {desired.version or ''}".strip(),
        family=family,
        desired=dict.fromkeys(PACMAN_PACKAGES if family == "pacman" else PACKAGES, desired.version),
        one_version=True,
        repository="toolkit",
        replaces=LEGACY if desired.migrate else (),
        lost=lost(node().toolkit),
    )
    if desired.hold:
        container_toolkit.held(name="Hold the container toolkit", family=family)


run_alone(__name__, toolkit)
