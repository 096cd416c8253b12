"""containerd with the nvidia runtime."""

from deploys import runtime_packages
from deploys.component import component, drain, settings
from deploys.drain import returned
from gpunode.runtime_packages import containerd_packages
from gpunode.sysctl import KUBERNETES
from operations import containerd as runtime
from operations import files, kernel, sysctl, systemd

MODULES = ["overlay", "br_netfilter"]
SYSCTLS = "/etc/sysctl.d/90-gpunode-kubernetes.conf"
PROXY = "/etc/systemd/system/containerd.service.d/80-gpunode-proxy.conf"


@component("containerd", own_files=True)
def containerd() -> None:
    """Install containerd, give it the nvidia runtime, and restart it only if what runs is not what is asked."""
    asked = settings().containerd
    if not asked.enabled:
        return
    runtime_packages.installed(runtime="containerd", asked=asked, names=containerd_packages(asked))
    files.template(
        name="Persist the kernel modules that containers need",
        path="/etc/modules-load.d/gpunode-containerd.conf",
        source="modules-load.conf",
        modules=MODULES,
    )
    kernel.loaded(name="Load the kernel modules that containers need", modules=MODULES)
    if asked.kubernetes_sysctls:
        _kubernetes_sysctls()
    _proxy()
    _noted_at_start()
    runtime.configuration(
        name=f"Configure containerd: default runtime {asked.default_runtime}",
        default_runtime=asked.default_runtime,
        systemd_cgroup=asked.systemd_cgroup,
        nvidia=settings().toolkit.enabled,
        restart_allowed=settings().disruption.allow != "nothing",
        cdi=asked.cdi,
        placement=asked.placement,
        drain=drain(),
        _parallel=settings().disruption.max_parallel,
    )
    systemd.running(name="Run containerd, now and at boot", unit="containerd.service")


def _kubernetes_sysctls() -> None:
    source = "kubernetes-sysctl.conf"
    files.template(name="Persist what Kubernetes needs of the kernel", path=SYSCTLS, source=source, values=KUBERNETES)
    sysctl.set_now(name="Set what Kubernetes needs of the kernel", values=KUBERNETES)


def _noted_at_start() -> None:
    """Have it noted what containerd starts with: the one way to tell a changed comment from a changed configuration."""
    files.template(
        name="Note what containerd starts with",
        path=f"/etc/systemd/system/{runtime.LOADED_UNIT}",
        source="containerd-loaded.service",
    )
    systemd.at_boot(name="Note it at every start", unit=runtime.LOADED_UNIT)


def _proxy() -> None:
    proxy = settings().proxy
    environment = {name.upper(): value for name, value in proxy.environment.items()}
    if environment:
        files.template(name="Set containerd's proxy", path=PROXY, source="http-proxy.conf", environment=environment)
    else:
        files.absent(name="Remove containerd's proxy", path=PROXY)


# pyinfra runs the file by itself, where gpu_node.py and `deploys.containerd.containerd` import it.
if __name__ != "deploys.containerd":
    containerd()
    returned()
