"""What package managers need before the first package: a proxy where there is one, and the tools that check keys."""

from deploys.component import component, settings
from operations import apt, files


@component("Packaging")
def packaging() -> None:
    """Set apt's proxy and install what fetching and checking a repository key takes."""
    proxy = settings().proxy
    if proxy.environment:
        files.template(
            name="Set apt's proxy",
            path="/etc/apt/apt.conf.d/80gpunode-proxy",
            source="apt-proxy.conf",
            # apt would take the proxy for http for https, too.
            proxies={"http": proxy.http or "DIRECT", "https": proxy.https or "DIRECT"},
            direct=proxy.direct_hosts,
        )
    else:
        files.absent(name="Remove apt's proxy", path="/etc/apt/apt.conf.d/80gpunode-proxy")
    apt.packages(
        name="Install what checks repository keys",
        wanted={"ca-certificates": None, "curl": None, "gpg": None},
    )
