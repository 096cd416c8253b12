"""gpunode's own files for containerd: kernel modules and settings, its proxy, and the unit that records its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpunode.base.template import rendered
from gpunode.components.runtimes.containerd.source import UNIT
from gpunode.system.kernel import KUBERNETES

if TYPE_CHECKING:
    from gpunode.settings import Settings

MODULES_LOAD = "/etc/modules-load.d/gpunode-containerd.conf"
MODULES = ("overlay", "br_netfilter")
SYSCTLS = "/etc/sysctl.d/90-gpunode-kubernetes.conf"
PROXY = "/etc/systemd/system/containerd.service.d/80-gpunode-proxy.conf"
# Records the digest of the configuration that containerd starts with.
LOADED_UNIT = "gpunode-containerd-loaded.service"
LOADED = f"/etc/systemd/system/{LOADED_UNIT}"
PATHS = (MODULES_LOAD, SYSCTLS, PROXY, LOADED)


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return path -> text of these files; None: the file is removed."""
    if not settings.containerd.enabled:
        return {}
    found: dict[str, str | None] = {MODULES_LOAD: rendered("modules-load.conf", modules=MODULES)}
    if settings.containerd.kubernetes_sysctls:
        found[SYSCTLS] = rendered("kubernetes-sysctl.conf", values=KUBERNETES)
    if settings.containerd.unit != UNIT:
        # The environment and the start of another program's unit are not gpunode's.
        return {**found, PROXY: None, LOADED: None}
    environment = {name.upper(): value for name, value in settings.proxy.environment.items()}
    found[PROXY] = rendered("http-proxy.conf", environment=environment) if environment else None
    found[LOADED] = rendered("containerd-loaded.service")
    return found
