"""What package managers need before the first package: a proxy where there is one, and the tools that check keys."""

from deploys.component import component, distribution, settings
from operations import files, packages
from operations.families import tools

PROXY = "/etc/apt/apt.conf.d/80gpunode-proxy"


@component("Packaging", own_files=True)
def packaging() -> None:
    """Set apt's proxy and install what fetching and checking a repository key takes."""
    family = distribution().family
    if family == "apt":
        _apt_proxy()
    driver, toolkit = settings().driver, settings().toolkit
    holds = driver.installs and driver.hold
    holds = holds or (toolkit.enabled and toolkit.hold)
    packages.installed(
        name="Install what checks repository keys",
        family=family,
        wanted=dict.fromkeys(tools(distribution(), holds)),
    )


def _apt_proxy() -> None:
    """Set apt's proxy; dnf is told of it repository by repository, so that those of the system stay as they are."""
    proxy = settings().proxy
    if proxy.environment:
        files.template(
            name="Set apt's proxy",
            path=PROXY,
            source="apt-proxy.conf",
            # apt would take the proxy for http for https, too.
            proxies={"http": proxy.http or "DIRECT", "https": proxy.https or "DIRECT"},
            direct=proxy.direct_hosts,
        )
    else:
        files.absent(name="Remove apt's proxy", path=PROXY)


# pyinfra runs the file by itself, where gpu_node.py and `deploys.packaging.packaging` import it.
if __name__ != "deploys.packaging":
    packaging()
