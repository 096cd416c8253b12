"""What the simulated device plugin offers, by its configuration and the GPUs; pure."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.kubernetes.device_plugin.promise import promised_memory
from gpunode.kubernetes.nodes.labels import configuration
from gpunode.lab.cluster.devices import Gpu
from gpunode.lab.cluster.plugin import (
    Config,
    PluginError,
    config,
    config_map,
    failure,
    is_plugin,
    memory_unit,
    offered,
    shared_memory,
    waits_for_gpus,
)
from gpunode.settings.sharing import SharingSettings
from gpunode.system.gpu import Gpu as Gpu_
from gpunode.system.gpu import Gpus, MigMode

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

_LABEL = "nvidia.com/device-plugin.config"
WHOLE = (Gpu("GPU-0", False), Gpu("GPU-1", False))


def _pod(owner: str = "nvdp-nvidia-device-plugin", **variables: str) -> dict[str, Any]:
    variables = {"NODE_LABEL": _LABEL, "DEFAULT_CONFIG": "none", **variables}
    container = {
        "name": "main",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "configs", "mountPath": "/available-configs"}],
    }
    return {
        "metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": owner}]},
        "spec": {"containers": [container], "volumes": [{"name": "configs", "configMap": {"name": "the-map"}}]},
    }


_SHARINGS = [SharingSettings.model_validate(each) for each in ({}, {"strategy": "time-slicing", "replicas": 5})]
_ENTRIES = {each.name: each.text for each in map(configuration, _SHARINGS)}


def test_the_plugin_s_own_pods_are_told_from_those_beside_it() -> None:
    names = ("nvdp-nvidia-device-plugin", "nvidia-device-plugin-daemonset", "calico-node")
    beside = ("nvdp-nvidia-device-plugin-mps-control-daemon", "nvdp-nvidia-device-plugin-gpu-feature-discovery")
    assert [name for name in (*names, *beside) if is_plugin(_pod(name))] == [*names[:2]]
    assert config_map(_pod()) == "the-map" and config_map({"spec": {"containers": [{"name": "main"}]}}) is None


@pytest.mark.parametrize(
    ("variables", "entries", "labels", "expected"),
    [
        ({}, _ENTRIES, {}, ("none", "none")),
        ({"DEFAULT_CONFIG": "time-slicing-5"}, _ENTRIES, {}, ("time-slicing-5", "none")),
        ({"DEFAULT_CONFIG": ""}, {"only": "version: v1"}, {}, ("only", "none")),
        ({"MIG_STRATEGY": "mixed"}, None, {}, ("", "mixed")),
        # A flag goes before the file.
        ({"MIG_STRATEGY": "mixed"}, {"none": "flags: {migStrategy: single}"}, {}, ("none", "mixed")),
        # What ends the plugin.
        ({}, _ENTRIES, {_LABEL: "gone"}, None),
        ({}, {"only": "flags: 3"}, {_LABEL: "only"}, None),
    ],
)
def test_the_entry_is_that_of_the_label_or_the_default(
    variables: dict[str, str], entries: dict[str, str] | None, labels: dict[str, str], expected: tuple[str, str] | None
) -> None:
    if expected is None:
        with pytest.raises(PluginError):
            config(_pod(**variables), entries, labels)
    else:
        found = config(_pod(**variables), entries, labels)
        assert (found.name, found.mig_strategy) == expected


def test_a_gpu_that_no_longer_answers_takes_its_shares_with_it() -> None:
    asked = Config("", "none", {"nvidia.com/gpu": (5, "nvidia.com/gpu.shared")})
    assert offered(asked, WHOLE, frozenset({"GPU-1"})) == {"nvidia.com/gpu.shared": 5}
    assert offered(asked, WHOLE, frozenset()) == {"nvidia.com/gpu.shared": 0}


def test_a_plugin_of_the_static_manifest_reads_the_entry_that_its_option_names() -> None:
    pod = _pod("gpunode-device-plugin-shared")
    pod["spec"]["containers"][0] |= {
        "env": [], "args": ["--config-file=/config/shared"],
        "volumeMounts": [{"name": "configs", "mountPath": "/config"}],
    }  # fmt: skip
    assert is_plugin(pod) and config_map(pod) == "the-map" and memory_unit(pod) is None
    assert config(pod, {"none": "version: v1", "shared": "flags: {migStrategy: mixed}"}, {}).mig_strategy == "mixed"


def test_gpushare_s_plugin_offers_the_memory_that_gpunode_promises() -> None:
    pod = _pod("gpushare-device-plugin")
    pod["spec"]["containers"][0]["command"] = ["gpushare-device-plugin-v2", "--memory-unit=MiB"]
    assert is_plugin(pod) and memory_unit(pod) == "MiB"
    gpu = Gpu_(0, "GPU-0", "H100", "0", "1", 81559, MigMode("Disabled", "Disabled"), "Default", "Disabled")
    for unit in ("GiB", "MiB"):
        assert shared_memory([81559, 81559], unit) == promised_memory(Gpus("ok", 0, None, (gpu, gpu)), unit)


def test_a_plugin_without_gpus_ends_unless_it_is_told_to_wait() -> None:
    assert waits_for_gpus(_pod(FAIL_ON_INIT_ERROR="false")) and not waits_for_gpus(_pod())
    ended, waiting = failure("no GPU"), failure("no GPU", waits=True)
    assert (ended.ready, ended.waits, waiting.ready) == (False, "CrashLoopBackOff", True)
    assert ended.log == waiting.log == "SIMULATED device plugin: no GPU\n"
