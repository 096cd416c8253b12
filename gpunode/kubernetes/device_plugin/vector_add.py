"""The pods that add vectors, each on one GPU of a node, NVIDIA's own test of all that is below, and what they show."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpunode.kubernetes.device_plugin.view import Pod, View
from gpunode.kubernetes.objects.own_objects import from_template
from gpunode.system.gpu_users import GpuUsers


@dataclass
class Proof:
    """Hold what looks at the node, while the pods ran, have shown of them.

    places: pod -> the GPU, or MIG device, that it had; together: GPU -> the most of them that had it at one look;
    processes: GPU, or MIG device -> the most of them whose processes nvidia-smi had at one look.
    """

    namespace: str
    pods: Collection[str]
    places: dict[str, str] = field(default_factory=dict)
    together: dict[str, int] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)

    def look(self, users: GpuUsers) -> None:
        """Take one look at the node's containers and processes."""
        now: dict[str, set[str]] = {}
        of_container = {}
        for pod in self.pods:
            for container in users.of_pod(f"{self.namespace}/{pod}"):
                of_container[container.id] = pod
                # One that asks for one of something has one.
                for place in (container.mig or container.gpus)[:1]:
                    self.places[pod] = place
                    now.setdefault(place, set()).add(pod)
        _most(self.together, now)
        now = {}
        for process in users.processes:
            # nvidia-smi names the GPU of a MIG device alone.
            its_pod = of_container.get(process.container or "")
            if its_pod is not None and its_pod in self.places:
                now.setdefault(self.places[its_pod], set()).add(its_pod)
        _most(self.processes, now)

    def said(self) -> str:
        """Return what the looks have shown, for people."""
        if not self.places:
            return "which GPU each of them had was not seen: they ended before their containers were looked at"
        by_place: dict[str, int] = {}
        for place in self.places.values():
            by_place[place] = by_place.get(place, 0) + 1
        told = [self._of_place(place, count) for place, count in sorted(by_place.items())]
        if unseen := len(self.pods) - len(self.places):
            told.append(f"of {unseen} the GPU was not seen")
        if max(by_place.values()) == 1:
            told.append("no two of them were seen on one GPU")
        return "; ".join(told)

    def _of_place(self, place: str, count: int) -> str:
        said = f"{count} on {place}"
        if count > 1 or self.processes.get(place, 0) > 1:
            together, processes = self.together.get(place, 0), self.processes.get(place, 0)
            at_once = f"{together} of them at once" if together > 1 else "never two at once"
            said += f" ({at_once}, {processes} of their processes by nvidia-smi)"
        return said


def _most(found: dict[str, int], now: dict[str, set[str]]) -> None:
    for place, pods in now.items():
        found[place] = max(found.get(place, 0), len(pods))


LABEL = ("app.kubernetes.io/name", "gpunode-vector-add")
PASSED = "Test PASSED"
_ENDED = ("Succeeded", "Failed")


def pod(
    name: str, node: str, image: str, resource: str, runtime_class: str | None, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the pod for a node; it goes nowhere else, and takes one `resource`.

    + labels: by which the view that is to show it finds it, where it asks for some pods alone
    """
    by = {**(labels or {}), **dict([LABEL])}
    (found,) = from_template(
        "vector-add.yaml", name=name, node=node, image=image, resource=resource, runtime_class=runtime_class, labels=by
    )
    return found


def of_node(view: View, node: str) -> tuple[Pod, ...]:
    """Return the test's pods on a node, such as a run that was cut off left behind."""
    key, value = LABEL
    return tuple(each for each in view.pods if each.labels.get(key) == value and each.node == node)


def has_ended(found: Pod) -> bool:
    """Say whether the test is over."""
    return found.phase in _ENDED


def is_crowded_out(found: Pod) -> bool:
    """Say whether it found no GPU that is free: others are at work with them, which is no fault."""
    return (
        found.phase == "Pending"
        and found.node is None
        and any(f"Insufficient {vendor}" in (found.waits or "") for vendor in ("nvidia.com/", "aliyun.com/"))
    )


def text(*pods: Mapping[str, Any]) -> str:
    """Return pods for kubectl, all of them to be made at once."""
    return json.dumps(pods[0] if len(pods) == 1 else {"apiVersion": "v1", "kind": "List", "items": pods})
