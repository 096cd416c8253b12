"""Does the kubelet that runs on the node agree with what the runtime and the device plugin are to be?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.base.versions import at_least, upstream
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.system.kubelet import Kubelet

# Since then a kubelet asks the runtime for its driver, and heeds its own setting where the runtime does not say.
# source: KEP-4033; containerd/containerd#8722; CRI-O 1.28
_ASKS_SINCE, _ANSWERS_SINCE = "1.31", {"containerd": "2.0", "crio": "1.28"}


CGROUP_DRIVER = RefusalMessage(
    "kubelet-cgroup-driver",
    "The kubelet and the container runtime are to have different cgroup drivers.",
    component="{runtime}",
    reason="the kubelet's cgroupDriver is {actual}, and {runtime}'s is to be {desired}: pods would fail under load",
    source="Kubernetes documentation, configuring a cgroup driver",
    remedy="set {where} and restart the kubelet on the drained node, or set {runtime}.systemd_cgroup = {agrees}",
)


def kubelet_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse the kubelet's runtime another cgroup driver than the kubelet's: two would own the same pods' cgroups."""
    actual = machine.kubelet.configuration
    runtime = "containerd" if settings.containerd.enabled else "crio" if settings.crio.enabled else None
    if actual is None or runtime is None or runtime not in (actual.runtime_endpoint or runtime):
        return
    version = machine.crio.version if runtime == "crio" else _containerd(settings, machine)
    answers = version is None or at_least(version, _ANSWERS_SINCE[runtime])
    if answers and machine.kubelet.version is not None and at_least(machine.kubelet.version, _ASKS_SINCE):
        return
    desired = "systemd" if getattr(settings, runtime).systemd_cgroup else "cgroupfs"
    if actual.cgroup_driver != desired:
        file, agrees = actual.cgroup_driver_file, actual.cgroup_driver == "systemd"
        where = f"cgroupDriver: {desired} in {file}" if file else f"--cgroup-driver={desired} where the kubelet starts"
        yield CGROUP_DRIVER(runtime=runtime, actual=actual.cgroup_driver, desired=desired, where=where, agrees=agrees)


def _containerd(settings: Settings, machine: Machine) -> str | None:
    """Return the desired version, else that of the installed package; None: no package is installed."""
    installed = dict(machine.runtime_packages.installed)
    package = next((installed[name] for name in ("containerd.io", "containerd") if name in installed), None)
    return settings.containerd.version or (upstream(package) if package else None)


STATIC_CPUS = CautionMessage(
    "kubelet-static-cpus",
    component="device_plugin",
    reason="with the kubelet's cpuManagerPolicy static, pods without pass_device_specs lose GPUs as their CPUs change",
    source="NVIDIA/k8s-device-plugin, README, PASS_DEVICE_SPECS",
    remedy="set device_plugin.pass_device_specs = True",
)


def kubelet_cautions(settings: Settings, kubelet: Kubelet) -> Iterator[Caution]:
    """Warn of a kubelet that takes devices from running pods unless the plugin passes them on."""
    actual = kubelet.configuration
    if (
        actual is not None
        and actual.cpu_manager_policy == "static"
        and settings.kubernetes.enabled
        and settings.device_plugin.method != "none"
        and settings.device_plugin.pass_device_specs is not True
    ):
        yield STATIC_CPUS()
