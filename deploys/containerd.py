"""containerd with the nvidia runtime."""

from gpunode.components.runtimes.containerd.decide import desired_of
from gpunode.components.runtimes.containerd.own_files import LOADED, LOADED_UNIT, MODULES, MODULES_LOAD, PROXY, SYSCTLS
from gpunode.components.runtimes.containerd.source import UNIT
from gpunode.deploys import repositories
from gpunode.deploys.component import component, drain, node, own_file, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.node.machine import resolved
from gpunode.operations import containerd as runtime
from gpunode.operations import kernel, systemd
from gpunode.operations.phase import is_image
from gpunode.system.kernel import KUBERNETES


@component("containerd", own_files=True)
def containerd() -> None:
    """Install containerd, configure its nvidia runtime, and restart it only where it runs by another configuration."""
    if not resolved(settings(), node()).containerd.enabled:
        return
    desired = desired_of(settings())
    packages: dict[str, str | None] = dict.fromkeys(desired.packages, desired.version)
    source = settings().containerd.source
    repositories.installed("containerd", source, packages, lambda: runtime.packages_now(desired))
    own_file(MODULES_LOAD, keep="Persist the kernel modules that containers need")
    if not is_image():
        kernel.loaded(name="Load the kernel modules that containers need", modules=MODULES)
    own_file(SYSCTLS, keep="Persist what Kubernetes needs of the kernel")
    if desired.sysctls and not is_image():
        kernel.parameters_set(name="Set what Kubernetes needs of the kernel", values=KUBERNETES)
    own_file(PROXY, keep="Set containerd's proxy", remove="Remove containerd's proxy")
    # The one way to tell a changed comment from a changed configuration.
    own_file(LOADED, keep="Note what containerd starts with", remove="Remove what notes that")
    if desired.unit == UNIT:
        systemd.at_boot(name="Note it at every start", unit=LOADED_UNIT)
    runtime.configuration(
        name=f"Configure containerd: default runtime {desired.runtimes.default}",
        desired=desired,
        drain=drain(),
        _parallel=settings().disruption.max_parallel,
    )
    systemd.running(name="Run containerd, now and at boot", unit=desired.unit or "containerd.service")


run_alone(__name__, containerd, uncordon)
