"""What package managers are told before the first package: apt of its proxy.

dnf and zypper are told repository by repository, so that those of the system stay as they are.
"""

from __future__ import annotations

from gpunode.base import tables
from gpunode.base.template import rendered
from gpunode.node.machine import Machine
from gpunode.settings import Settings

PROXY = "/etc/apt/apt.conf.d/80gpunode-proxy"
PATHS = (PROXY,)


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return apt's proxy."""
    system, proxy = machine.operating_system, settings.proxy
    distribution = tables.distribution(system.id, system.version_id)
    if distribution is None or distribution.family != "apt":
        return {}
    if not proxy.environment:
        return {PROXY: None}
    # apt would take the proxy for http for https, too.
    proxies = {"http": proxy.http or "DIRECT", "https": proxy.https or "DIRECT"}
    return {PROXY: rendered("apt-proxy.conf", proxies=proxies, direct=proxy.direct_hosts)}
