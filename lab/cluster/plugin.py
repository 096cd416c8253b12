"""What a device plugin would offer, NVIDIA's or gpushare's: by its configuration, as its program reads it. SIMULATED.

Pure: pods, ConfigMaps and GPUs come in, resources go out. Held against the real plugin's recorded answers by
tests/unit/test_recorded_device_plugin.py. Source: github.com/NVIDIA/k8s-device-plugin, internal/rm and api/config/v1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpunode.kubernetes.device_plugin.config_file import ends
from gpunode.lab.cluster.devices import Gpu
from gpunode.lab.cluster.pods import VENDOR, Outcome
from gpunode.settings.mig_parted.document import read_document

MPS_DAEMON, FEATURE_DISCOVERY = "-mps-control-daemon", "-gpu-feature-discovery"
# NVIDIA's by its chart, and by gpunode's static manifest; Aliyun's.
_PLUGIN, _STATIC, _SHARED = "nvidia-device-plugin", "gpunode-device-plugin-", "gpushare-device-plugin"
_OTHERS = (MPS_DAEMON, FEATURE_DISCOVERY)
_CONFIGS = ("/available-configs", "/config")
_TAG = re.compile(r":v(\d+\.\d+\.\d+)")
_NEWEST = "0.20.0"


class PluginError(Exception):
    """Say why the plugin would not start, in its words as far as they are known."""


@dataclass(frozen=True)
class Config:
    """The plugin's configuration: name of the entry, MIG strategy, resource -> (replicas, offered as); its version."""

    name: str
    mig_strategy: str = "none"
    shared: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    by_mps: bool = False
    version: str = _NEWEST


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
    variables, version = _variables(pod), _version(pod)
    strategy = variables.get("MIG_STRATEGY") or "none"
    if not entries:
        return Config("", strategy, version=version)
    name = _option(pod, "--config-file").rpartition("/")[2]
    name = name or chosen(
        labels.get(variables.get("NODE_LABEL", "")), variables.get("DEFAULT_CONFIG"), entries, version
    )
    if name not in entries:
        raise PluginError(f"specified config {name} does not exist; there are {', '.join(sorted(entries))}")
    return parsed(name, entries[name], variables.get("MIG_STRATEGY"), version)


def chosen(label: str | None, default: str | None, entries: Collection[str], version: str = _NEWEST) -> str:
    """Return the entry that config-manager takes; raise PluginError where it ends.

    + default: config.default of the chart, whose fallback strategies are the name default, then the only entry
    """
    start = default or ("default" if "default" in entries else next(iter(entries)) if len(entries) == 1 else "")
    # The first container of the pod does not see the label since 0.18.2.
    needed = (start, label or start) if _numbers(version) >= (0, 18, 2) else (label or start,)
    for name in needed:
        if name not in entries:
            raise PluginError(f"specified config {name} does not exist" if name else "all fallbacks failed")
    return needed[-1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def parsed(name: str, text: str, strategy: str | None, version: str = _NEWEST) -> Config:
    """Return the configuration of an entry's text; raise PluginError where the plugin would end.

    + strategy: that of the command line, which goes before the file's
    """
    if reason := ends(text):
        raise PluginError(f"unable to load config {name}: {reason}")
    content: Any = read_document(text, name, unique=False) or {}
    sharing = _of(content, "sharing") or {}
    mps = _of(sharing, "mps")
    ways = mps or _of(sharing, "timeSlicing") or {}
    shared: dict[str, tuple[int, str]] = {}
    for each in ways.get("resources") or ():
        resource = each["name"] if each["name"].startswith(VENDOR) else VENDOR + each["name"]
        # It ignores another name, and which devices are to be shared; of two rows the larger one counts.
        renamed = f"{resource}.shared" if ways.get("renameByDefault") else resource
        shared[resource] = max(shared.get(resource, (0, renamed)), (int(each["replicas"]), renamed))
    found = strategy or _of(_of(content, "flags") or {}, "migStrategy") or "none"
    if mps and found == "mixed":
        raise PluginError("using --mig-strategy=mixed is not supported with MPS")
    return Config(name, found, shared, mps is not None, version)


def _of(content: Mapping[str, Any], name: str) -> Any:
    """Return the value of a key, which Go's decoder knows in any case."""
    return next((value for key, value in content.items() if str(key).lower() == name.lower()), None)


def _version(pod: Mapping[str, Any]) -> str:
    found = _TAG.search(str(pod["spec"]["containers"][0].get("image", "")))
    return found[1] if found else _NEWEST


def offered(asked: Config, gpus: Sequence[Gpu], healthy: frozenset[str] | None = None) -> dict[str, int]:
    """Return resource -> how many of it the node offers; raise PluginError where the strategy does not fit the GPUs.

    `healthy` has the UUIDs that still answer; None: all do.
    """
    counted: Counter[str] = Counter()
    for resource, uuid in _devices(asked, gpus):
        count, name = asked.shared.get(resource, (1, resource))
        counted[name] += count if healthy is None or uuid in healthy else 0
    return dict(sorted(counted.items()))


def _devices(asked: Config, gpus: Sequence[Gpu]) -> list[tuple[str, str]]:
    """Return (resource, UUID) of all that is offered before it is shared."""
    whole = VENDOR + "gpu"
    if asked.mig_strategy == "none" or not any(gpu.mig for gpu in gpus):
        return [(whole, gpu.uuid) for gpu in gpus]
    sliced = [(profile, uuid) for gpu in gpus for profile, uuid in gpu.devices]
    if asked.mig_strategy == "single":
        if any(gpu.mig and not gpu.devices for gpu in gpus):
            raise PluginError("a GPU in MIG mode has no MIG devices configured")
        # All GPUs of a lab node are of one model.
        if len({profile for profile, _ in sliced}) > 1:
            raise PluginError("more than one MIG device type present on node")
        if not all(gpu.mig for gpu in gpus):
            raise PluginError("all devices on the node must be configured with the same migEnabled value")
        return [(whole, uuid) for _, uuid in sliced]
    named = [(_mig_resource(profile, asked.version), uuid) for profile, uuid in sliced]
    return [(whole, gpu.uuid) for gpu in gpus if not gpu.mig] + named


def _mig_resource(profile: str, version: str) -> str:
    if _numbers(version) < (0, 20, 0):
        # Any resource whose pattern is a part of the profile serves it.
        profile = profile.split("c.")[-1].split("+")[0].split("-")[0]
    elif "c." in profile:
        raise PluginError(f"MIG profile '{profile}' does not match any resource patterns")
    return f"{VENDOR}mig-{profile.replace('+', '.')}"


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
