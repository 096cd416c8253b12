"""What package managers need before the first package: a proxy where there is one, and the tools that check keys."""

from gpunode.deploys.component import component, distribution, own_file, run_alone, settings
from gpunode.node.own_files.repositories import PROXY
from gpunode.operations import packages
from gpunode.operations.families import tools


@component("Packaging", own_files=True)
def packaging() -> None:
    """Set apt's proxy and install what fetching and checking a repository key takes."""
    family = distribution().family
    own_file(PROXY, keep="Set apt's proxy", remove="Remove apt's proxy")
    driver, toolkit = settings().driver, settings().toolkit
    holds = driver.installs and driver.hold
    holds = holds or (toolkit.enabled and toolkit.hold)
    packages.installed(
        name="Install what checks repository keys",
        family=family,
        desired=dict.fromkeys(tools(distribution(), holds)),
    )


run_alone(__name__, packaging)
