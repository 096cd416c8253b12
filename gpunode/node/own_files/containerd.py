"""What the kernel and systemd are told for containerd."""

from __future__ import annotations

from gpunode.base.template import rendered
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.system.kernel import KUBERNETES

MODULES_LOAD = "/etc/modules-load.d/gpunode-containerd.conf"
MODULES = ("overlay", "br_netfilter")
SYSCTLS = "/etc/sysctl.d/90-gpunode-kubernetes.conf"
PROXY = "/etc/systemd/system/containerd.service.d/80-gpunode-proxy.conf"
# What a daemon starts with, noted at each start.
LOADED_UNIT = "gpunode-containerd-loaded.service"
LOADED = f"/etc/systemd/system/{LOADED_UNIT}"
PATHS = (MODULES_LOAD, SYSCTLS, PROXY, LOADED)


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return modules, sysctls, the proxy of containerd's unit, and the unit that notes what it starts with."""
    if not settings.containerd.enabled:
        return {}
    found: dict[str, str | None] = {MODULES_LOAD: rendered("modules-load.conf", modules=MODULES)}
    if settings.containerd.kubernetes_sysctls:
        found[SYSCTLS] = rendered("kubernetes-sysctl.conf", values=KUBERNETES)
    environment = {name.upper(): value for name, value in settings.proxy.environment.items()}
    found[PROXY] = rendered("http-proxy.conf", environment=environment) if environment else None
    found[LOADED] = rendered("containerd-loaded.service")
    return found
