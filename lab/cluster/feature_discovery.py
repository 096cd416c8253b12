"""GPU feature discovery of one lab node, with node feature discovery behind it. SIMULATED.

Like NVIDIA's, it looks at the GPUs when its pod starts, and when its configuration is another one; node feature
discovery sets its labels then, and takes them away when the pod has gone. Not simulated: that it looks again every
minute.
Source: github.com/NVIDIA/k8s-device-plugin, internal/lm and cmd/gpu-feature-discovery.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpunode.lab.cluster import devices, plugin
from gpunode.lab.cluster.api import Api
from gpunode.lab.cluster.devices import Described, Gpu
from gpunode.lab.cluster.pods import VENDOR, Outcome, outcome
from gpunode.lab.nodes import Node

_WHOLE = VENDOR + "gpu"


def is_discovery(pod: Mapping[str, Any]) -> bool:
    """Say whether a pod is one of GPU feature discovery."""
    return plugin.daemon_set(pod).endswith(plugin.FEATURE_DISCOVERY)


def labels(config: plugin.Config, gpus: Sequence[Gpu], described: Described) -> dict[str, str]:
    """Return the labels that discovery would write of these GPUs; none where there is no GPU."""
    if not gpus:
        return {}
    if config.by_mps and any(gpu.mig for gpu in gpus):
        raise plugin.PluginError("failed to check MPS-capable: MPS sharing is not supported for mig devices")
    major, minor, *revision = described.driver.split(".")
    found = {
        "mig.capable": str(described.mig_capable).lower(),
        "mps.capable": str(config.by_mps).lower(),
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision[0] if revision else "",
        "cuda.driver-version.full": described.driver,
        "cuda.runtime-version.full": described.cuda,
    }
    return {**{VENDOR + name: value for name, value in found.items()}, **_of_resources(config, gpus, described)}


def _of_resources(config: plugin.Config, gpus: Sequence[Gpu], described: Described) -> dict[str, str]:
    # All GPUs of a lab node are of one model.
    all_divided = all(gpu.mig for gpu in gpus)
    found = _base(config, _WHOLE, described.model, len(gpus), shares=not all_divided)
    found[f"{_WHOLE}.memory"] = str(described.memory)
    if config.mig_strategy == "none":
        return found
    found[f"{VENDOR}mig.strategy"] = config.mig_strategy
    counts = Counter(profile.replace("+", ".") for gpu in gpus for profile, _ in gpu.devices)
    if config.mig_strategy == "mixed":
        for profile, count in counts.items():
            found |= _base(config, f"{VENDOR}mig-{profile}", f"{described.model} MIG {profile}", count)
    elif any(gpu.mig for gpu in gpus):
        if all_divided and all(gpu.devices for gpu in gpus) and len(counts) == 1:
            ((profile, count),) = counts.items()
            found |= _base(config, _WHOLE, f"{described.model} MIG {profile}", count)
        else:
            invalid = {"count": "0", "replicas": "0", "sharing-strategy": "", "memory": "0"}
            found |= {f"{_WHOLE}.{name}": value for name, value in invalid.items()}
            found[f"{_WHOLE}.product"] = "-".join([*described.model.split(), "MIG", "INVALID"])
    return found


def _base(config: plugin.Config, resource: str, product: str, count: int, shares: bool = True) -> dict[str, str]:
    replicas, name = config.shared.get(resource, (1, resource))
    strategy = "mps" if config.by_mps else "time-slicing"
    words = re.sub(r"[^A-Za-z0-9_. -]", "", product).split()
    if shares and replicas > 1 and name == resource:
        words.append("SHARED")
    return {
        f"{resource}.product": "-".join(words),
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(replicas if shares else 0),
        f"{resource}.sharing-strategy": strategy if shares and replicas > 1 else "none",
    }


@dataclass
class NodeDiscovery:
    """Hold what discovery wrote of a node, and by which pod and configuration."""

    node: Node
    api: Api
    written: dict[str, str] = field(default_factory=dict)
    _started_as: object = None

    def look(
        self, own: Sequence[Mapping[str, Any]], entries: Mapping[str, str] | None, actual: Mapping[str, str]
    ) -> Outcome | None:
        """Return what becomes of discovery's pod; None where the node has none. Raise ApiError.

        + own: its pods on the node; entries: those of its ConfigMap; actual: the node's labels
        """
        if not own:
            self._started_as = None
            self._write({})
            return None
        pod = own[0]
        if (pulled := outcome(pod, None)).waits:
            return pulled
        try:
            config = plugin.config(pod, entries, actual)
            started_as = (pod["metadata"]["uid"], config)
            if started_as != self._started_as:
                self._write(labels(config, devices.asked(self.node), devices.described(self.node)))
                self._started_as = started_as
        except (plugin.PluginError, devices.NoDevicesError) as error:
            return plugin.failure(str(error))
        return Outcome("Running", True, f"SIMULATED GPU feature discovery: it wrote {len(self.written)} labels\n")

    def _write(self, found: dict[str, str]) -> None:
        change: dict[str, str | None] = {**dict.fromkeys(name for name in self.written if name not in found), **found}
        if change:
            self.api.patch(f"/api/v1/nodes/{self.node.name}", {"metadata": {"labels": change}})
        self.written = found
