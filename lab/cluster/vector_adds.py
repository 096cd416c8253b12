"""Pods that add vectors: each is given a GPU, or a MIG device, for a few seconds, as the node's runtime would show it.

SIMULATED: on the node stand a process that has the GPU's device open (gpunode-lab-hold) and the specification that
containerd keeps of a running container; there is no container. NVIDIA's plugin spreads replicas over the GPUs, and so
does this; gpushare's scheduler fills one GPU after the other.
source: NVIDIA/k8s-device-plugin, internal/rm/allocate.go (distributedAlloc)
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from gpunode.lab import nodes
from gpunode.lab.cluster import devices
from gpunode.lab.cluster.devices import Gpu
from gpunode.lab.cluster.pods import VENDOR, Outcome
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node

_SECONDS = 4.0
_FOLDER = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
_BEGIN = """set -eu
systemd-run --quiet --collect --unit={unit} gpunode-lab-hold {gpu} --name vectorAdd
mkdir -p {folder}; printf '%s' {content} > {folder}/config.json
systemctl show -p MainPID --value {unit} > {folder}/init.pid
"""
_END = "systemctl stop {unit}; rm -rf {folder}"


@dataclass(frozen=True)
class _Running:
    node: Node
    place: str
    unit: str
    folder: str
    until: float


@dataclass
class VectorAdds:
    """Hold the pods that run at the moment, by UID, and the UIDs of those that have had their time."""

    clock: Callable[[], float] = time.monotonic
    running: dict[str, _Running] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)

    def outcome(self, node: Node, pod: Mapping[str, Any], found: Outcome) -> Outcome:
        """Return what is to be reported of a pod that will pass: it runs first, with its GPU."""
        uid = pod["metadata"]["uid"]
        if uid in self.over:
            return found
        if uid not in self.running:
            try:
                self._begin(node, pod, uid)
            except (devices.NoDevicesError, LabError):
                # A node that goes down meanwhile shows nothing.
                self.over.add(uid)
                return found
        if self.clock() < self.running[uid].until:
            return Outcome("Running", True, found.log.partition("Test PASSED")[0])
        self.end(uid)
        self.over.add(uid)
        return found

    def _begin(self, node: Node, pod: Mapping[str, Any], uid: str) -> None:
        taken = Counter(each.place for each in self.running.values() if each.node.name == node.name)
        index, place = chosen(devices.asked(node), _resource(pod), taken)
        identity = sha256(uid.encode()).hexdigest()
        unit, folder = f"gpunode-lab-vector-add-{identity[:12]}.service", f"{_FOLDER}/{identity}"
        content = json.dumps(specification(pod, index, place))
        # JSON escapes no single quote; a pod's names hold none.
        nodes.run(node, _BEGIN.format(unit=unit, gpu=index, folder=folder, content=f"'{content}'"), timeout=20)
        self.running[uid] = _Running(node, place, unit, folder, self.clock() + _SECONDS)

    def end(self, uid: str) -> None:
        """Let a pod's GPU go; fine where it has none."""
        if (each := self.running.pop(uid, None)) is not None:
            with suppress(LabError):
                nodes.run(each.node, _END.format(unit=each.unit, folder=each.folder), timeout=20)


def chosen(gpus: Sequence[Gpu], resource: str, taken: Mapping[str, int]) -> tuple[int, str]:
    """Return a GPU's index, and the UUID of what a pod gets of it; `taken`: UUID -> how many have it already."""
    whole = [(index, gpu.uuid, "gpu") for index, gpu in enumerate(gpus) if not gpu.mig]
    parts = [(index, uuid, f"mig-{name}") for index, gpu in enumerate(gpus) for name, uuid in gpu.devices]
    wanted = resource.removeprefix(VENDOR).removesuffix(".shared").replace(".me", "+me")
    fitting = [(index, uuid) for index, uuid, kind in parts if kind == wanted]
    # With the strategy single MIG devices have the name of whole GPUs.
    fitting = fitting or [(index, uuid) for index, uuid, _ in whole or parts]
    if not resource.startswith(VENDOR):
        return fitting[0]
    return min(fitting, key=lambda each: (taken.get(each[1], 0), each))


def specification(pod: Mapping[str, Any], index: int, place: str) -> dict[str, Any]:
    """Return what containerd keeps of a pod's container by which a person tells its GPU."""
    cri, metadata = "io.kubernetes.cri", pod["metadata"]
    return {
        "annotations": {
            f"{cri}.container-type": "container",
            f"{cri}.container-name": pod["spec"]["containers"][0]["name"],
            f"{cri}.sandbox-name": metadata["name"],
            f"{cri}.sandbox-namespace": metadata["namespace"],
        },
        "process": {"env": [f"NVIDIA_VISIBLE_DEVICES={place}"]},
        "linux": {"devices": [{"path": f"/dev/nvidia{index}", "type": "c"}]},
    }


def _resource(pod: Mapping[str, Any]) -> str:
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits") or {}
    return next((name for name in sorted(limits) if "/" in name), "")
