"""Does the kubelet that runs on the node agree with what the runtime and the device plugin are to be?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Caution, Refusal
from gpunode.base.versions import at_least
from gpunode.settings import Settings
from gpunode.system.kubelet import Kubelet

_DRIVERS = "Kubernetes documentation, configuring a cgroup driver"
_POLICIES = "NVIDIA/k8s-device-plugin, README, PASS_DEVICE_SPECS"
# Since then a kubelet asks the runtime for its driver, and heeds its own setting where the runtime does not say.
_ASKS_SINCE, _ANSWERS_SINCE = "1.31", "2.0"


def kubelet_refusals(settings: Settings, kubelet: Kubelet, containerd: str | None) -> Iterator[Refusal]:
    """Refuse containerd another cgroup driver than the kubelet's: two would own the same pods' cgroups.

    containerd: the version that the node has, or is to have; None where nobody knows
    """
    actual = kubelet.configuration
    if actual is None or not settings.containerd.enabled or _asks_containerd(kubelet.version, containerd):
        return
    desired = "systemd" if settings.containerd.systemd_cgroup else "cgroupfs"
    if actual.cgroup_driver != desired:
        where = actual.file or "the flag --cgroup-driver"
        yield Refusal(
            "containerd",
            f"the kubelet's cgroupDriver is {actual.cgroup_driver}, and containerd's is to be {desired}: pods would "
            "have two owners of their cgroups, and fail under load",
            _DRIVERS,
            f"set cgroupDriver: {desired} in {where} and restart the kubelet on the drained node, or set "
            f"containerd.systemd_cgroup = {actual.cgroup_driver == 'systemd'}",
        )


def _asks_containerd(kubelet: str | None, containerd: str | None) -> bool:
    return all(
        version is not None and at_least(version, since)
        for version, since in ((kubelet, _ASKS_SINCE), (containerd, _ANSWERS_SINCE))
    )


def kubelet_cautions(settings: Settings, kubelet: Kubelet) -> Iterator[Caution]:
    """Tell of a kubelet that takes devices from running pods unless the plugin passes them on."""
    actual = kubelet.configuration
    if (
        actual is not None
        and actual.cpu_manager_policy == "static"
        and settings.kubernetes.enabled
        and settings.device_plugin.method != "none"
        and settings.device_plugin.pass_device_specs is not True
    ):
        yield Caution(
            "device_plugin",
            "the kubelet's cpuManagerPolicy is static, and device_plugin.pass_device_specs is not True: with each "
            "change of CPUs, pods lose their GPUs",
            _POLICIES,
            "set device_plugin.pass_device_specs = True",
        )
