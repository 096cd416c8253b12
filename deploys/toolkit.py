"""The NVIDIA container toolkit."""

from deploys.component import component, settings
from deploys.repositories import trust
from gpunode.toolkit import PACKAGES
from operations import apt


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
        one_version=True,
        repository="toolkit",
    )
