"""Does the kubelet that runs on the node agree with what the runtime and the device plugin are to be?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Caution, Refusal
from gpunode.base.versions import at_least, upstream
from gpunode.node.machine import Machine
from gpunode.node.preflight.words import caution, refusal
from gpunode.settings import Settings
from gpunode.system.kubelet import Kubelet

# Since then a kubelet asks the runtime for its driver, and heeds its own setting where the runtime does not say.
_ASKS_SINCE, _ANSWERS_SINCE = "1.31", "2.0"


def kubelet_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse containerd another cgroup driver than the kubelet's: two would own the same pods' cgroups."""
    actual, installed = machine.kubelet.configuration, dict(machine.runtime_packages.installed)
    package = next((installed[name] for name in ("containerd.io", "containerd") if name in installed), None)
    comes = settings.containerd.version or (package and upstream(package))
    if actual is None or not settings.containerd.enabled or _asks_containerd(machine.kubelet.version, comes):
        return
    desired = "systemd" if settings.containerd.systemd_cgroup else "cgroupfs"
    if actual.cgroup_driver != desired:
        where, agrees = actual.file or "the flag --cgroup-driver", actual.cgroup_driver == "systemd"
        yield refusal("kubelet-cgroup-driver", actual=actual, desired=desired, where=where, agrees=agrees)


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
        yield caution("kubelet-static-cpus")
