"""What a device plugin would offer, NVIDIA's or gpushare's: by its configuration, as its program reads it. SIMULATED.

Pure: pods, ConfigMaps and GPUs come in, resources go out. Source: github.com/NVIDIA/k8s-device-plugin, README.md and
api/config/v1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpunode.lab.cluster.devices import Gpu
from gpunode.lab.cluster.pods import VENDOR, Outcome

MPS_DAEMON, FEATURE_DISCOVERY = "-mps-control-daemon", "-gpu-feature-discovery"
# NVIDIA's by its chart, and by gpunode's static manifest; Aliyun's.
_PLUGIN, _STATIC, _SHARED = "nvidia-device-plugin", "gpunode-device-plugin-", "gpushare-device-plugin"
_OTHERS = (MPS_DAEMON, FEATURE_DISCOVERY)
_CONFIGS = ("/available-configs", "/config")


class PluginError(Exception):
    """Say why the plugin would not start, in its words as far as they are known."""


@dataclass(frozen=True)
class Config:
    """Hold the plugin's configuration: name of the entry, MIG strategy, resource -> (replicas, offered as)."""

    name: str
    mig_strategy: str = "none"
    shared: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    by_mps: bool = False


def daemon_set(pod: Mapping[str, Any]) -> str:
    """Return the name of the DaemonSet that a pod is of; empty where it is of none."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["name"] for owner in owners if owner["kind"] == "DaemonSet"), "")


def is_plugin(pod: Mapping[str, Any]) -> bool:
    """Say whether a pod is one of the device plugin itself."""
    name = daemon_set(pod)
    return (_PLUGIN in name and not name.endswith(_OTHERS)) or name.startswith(_STATIC) or name == _SHARED


def memory_unit(pod: Mapping[str, Any]) -> str | None:
    """Return the unit in which gpushare's plugin offers memory; None where the pod is another plugin's."""
    if daemon_set(pod) != _SHARED:
        return None
    return _option(pod, "--memory-unit") or "GiB"


def shared_memory(memory: Sequence[int], unit: str) -> dict[str, int]:
    """Return what gpushare's plugin offers of GPUs with that much memory each, in MiB; the first one's counts."""
    each = (memory[0] // 1024 if unit == "GiB" else memory[0]) if memory else 0
    return {"aliyun.com/gpu-count": len(memory), "aliyun.com/gpu-mem": len(memory) * each}


def _option(pod: Mapping[str, Any], name: str) -> str:
    words = [word for each in _containers(pod) for word in (*(each.get("command") or ()), *(each.get("args") or ()))]
    return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), "")


def config_map(pod: Mapping[str, Any]) -> str | None:
    """Return the ConfigMap that the pod reads its configurations from; None where it mounts none."""
    volumes = {volume["name"]: volume.get("configMap") for volume in pod["spec"].get("volumes") or ()}
    for container in _containers(pod):
        for mount in container.get("volumeMounts") or ():
            if mount["mountPath"].rstrip("/") in _CONFIGS and volumes.get(mount["name"]):
                return str(volumes[mount["name"]]["name"])
    return None


def config(pod: Mapping[str, Any], entries: Mapping[str, str] | None, labels: Mapping[str, str]) -> Config:
    """Return the configuration of the plugin's pod on a node with these labels; raise PluginError.

    `entries` are the ConfigMap's, None where there is no such ConfigMap.
    """
    variables = _variables(pod)
    strategy = variables.get("MIG_STRATEGY") or "none"
    if not entries:
        return Config("", strategy)
    name = labels.get(variables.get("NODE_LABEL", "")) or variables.get("DEFAULT_CONFIG", "")
    name = _option(pod, "--config-file").rpartition("/")[2] or name
    if not name and len(entries) == 1:
        name = next(iter(entries))
    if name not in entries:
        raise PluginError(f"specified config {name} does not exist; there are {', '.join(sorted(entries))}")
    try:
        return _config(name, yaml.safe_load(entries[name]), variables.get("MIG_STRATEGY"))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise PluginError(f"unable to load config {name}: {type(error).__name__}: {error}") from None


def _config(name: str, content: Mapping[str, Any], strategy: str | None) -> Config:
    sharing = content.get("sharing") or {}
    by_mps = "mps" in sharing
    ways = sharing.get("mps") or sharing.get("timeSlicing") or {}
    shared = {}
    for each in ways.get("resources") or ():
        resource = each["name"] if "/" in each["name"] else VENDOR + each["name"]
        # It ignores another name, and which devices are to be shared.
        renamed = f"{resource}.shared" if ways.get("renameByDefault") else resource
        shared[resource] = (int(each["replicas"]), renamed)
    # A flag of the command line goes before the file.
    found = strategy or (content.get("flags") or {}).get("migStrategy") or "none"
    return Config(name, found, shared, by_mps)


def offered(asked: Config, gpus: Sequence[Gpu], healthy: frozenset[str] | None = None) -> dict[str, int]:
    """Return resource -> how many of it the node offers; raise PluginError where the strategy does not fit the GPUs.

    `healthy` has the UUIDs that still answer; None: all do.
    """
    counted: Counter[str] = Counter()
    for resource, uuid in _devices(asked.mig_strategy, gpus):
        count, name = asked.shared.get(resource, (1, resource))
        counted[name] += count if healthy is None or uuid in healthy else 0
    return dict(sorted(counted.items()))


def _devices(strategy: str, gpus: Sequence[Gpu]) -> list[tuple[str, str]]:
    """Return (resource, UUID) of all that is offered before it is shared."""
    whole = VENDOR + "gpu"
    if strategy == "none" or not any(gpu.mig for gpu in gpus):
        return [(whole, gpu.uuid) for gpu in gpus]
    for number, gpu in enumerate(gpus):
        if gpu.mig and not gpu.devices:
            raise PluginError(f"invalid MIG configuration: device {number} has no MIG devices configured")
    sliced = [(profile, uuid) for gpu in gpus for profile, uuid in gpu.devices]
    if strategy == "single":
        if not all(gpu.mig for gpu in gpus) or len({profile for profile, _ in sliced}) != 1:
            raise PluginError("invalid MIG configuration: strategy single, and not all GPUs are divided alike")
        return [(whole, uuid) for _, uuid in sliced]
    named = [(f"{VENDOR}mig-{profile.replace('+', '.')}", uuid) for profile, uuid in sliced]
    return [(whole, gpu.uuid) for gpu in gpus if not gpu.mig] + named


def failure(text: str, waits: bool = False) -> Outcome:
    """Return what becomes of the plugin's pod that cannot start: it ends and is started again, or `waits`, and runs."""
    said = f"SIMULATED device plugin: {text}\n"
    return Outcome("Running", True, said) if waits else Outcome("Running", False, said, "CrashLoopBackOff")


def waits_for_gpus(pod: Mapping[str, Any]) -> bool:
    """Say whether the plugin of this pod runs on where it finds no GPU."""
    return _variables(pod).get("FAIL_ON_INIT_ERROR") == "false"


def _variables(pod: Mapping[str, Any]) -> dict[str, str]:
    every = (each for container in _containers(pod) for each in container.get("env") or ())
    return {each["name"]: each.get("value") or "" for each in every}


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
