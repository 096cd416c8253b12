"""The NVIDIA container toolkit."""

from deploys.component import component, settings
from deploys.repositories import trust
from operations import apt

PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)


@component("Container toolkit")
def toolkit() -> None:
    """Install the container toolkit's four packages at one version."""
    asked = settings().toolkit
    if not asked.enabled:
        return
    trust("toolkit")
    apt.packages(
        name=f"Install NVIDIA container toolkit {asked.version or ''}".strip(),
        wanted=dict.fromkeys(PACKAGES, asked.version),
    )
