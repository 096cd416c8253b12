"""The MPS daemon of the device plugin on a node with two GPUs, for tests and cases."""

from __future__ import annotations

from typing import Any

from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mps.plugin import PluginDaemon, PluginMps, PluginServer
from gpunode.kubernetes.device_plugin.judge_mps import judge_mps, resource_of
from gpunode.settings import settings_from
from gpunode.system.gpu import Gpu, Gpus, MigMode

DAEMON = PluginDaemon("nvidia.com/gpu", True, "10.0", ((0, "4G"), (1, "4G")), (PluginServer(92, "ACTIVE"),), (101, 102))
GOOD = PluginMps("/usr/bin/nvidia-cuda-mps-control", (DAEMON,))
FIRST, SECOND = (
    Gpu(
        index, f"GPU-{index}", "A100", f"0000:4{index}:00.0", "580", 40960, MigMode("Disabled", "Disabled"),
        "Exclusive_Process", "Enabled",
    )
    for index in (0, 1)
)  # fmt: skip
GPUS = Gpus("ok", 0, None, (FIRST, SECOND))
_SHARED = {"sharing": {"strategy": "mps", "replicas": 10}}


def judged(data: dict[str, Any], actual: PluginMps = GOOD, gpus: Gpus = GPUS) -> tuple[Finding, ...]:
    """Return what is said of a node whose settings, but for kubernetes, are these."""
    return tuple(judge_mps(settings_from({"kubernetes": {"enabled": True}, **data}), actual, gpus))


def differences(actual: PluginMps, gpus: Gpus = GPUS, data: dict[str, Any] = _SHARED) -> tuple[Finding, ...]:
    """Return what is not as the settings mean it, or to be known by a person."""
    found = judged(data, actual, gpus)
    return tuple(each for each in found if each.cause or each.by_person or each.finding_class is not FindingClass.OK)


def resource(sharing: dict[str, Any]) -> str | None:
    """Return the resource that is shared."""
    return resource_of(settings_from({"kubernetes": {"enabled": True}, "sharing": sharing}))
