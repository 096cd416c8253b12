"""What was seen of several pods that added vectors at once: on which GPU each was, and which processes it had there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

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
