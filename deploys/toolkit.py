"""The NVIDIA container toolkit."""

from deploys.component import component, distribution, settings
from deploys.repositories import trust
from gpunode.toolkit import PACKAGES
from operations import packages


@component("Container toolkit")
def toolkit() -> None:
    """Install the container toolkit's four packages at one version."""
    asked = settings().toolkit
    if not asked.enabled:
        return
    trust("toolkit")
    packages.installed(
        name=f"Install NVIDIA container toolkit {asked.version or ''}".strip(),
        family=distribution().family,
        wanted=dict.fromkeys(PACKAGES, asked.version),
        one_version=True,
        repository="toolkit",
    )
