"""Extended resources that a person counts: what a node's status is to say of them, and the one request for it.

Nobody hands a device over for such a resource: the scheduler counts, and that is all. The kubelet takes a node's
capacity for what is allocatable whenever it reports. Those up to Kubernetes 1.13 set every extended resource to 0 when
they start; later ones only on a node without a checkpoint of device plugins. So a count that a kubelet took away is
drift, and the next run sets it again.
source: kubernetes/kubernetes, pkg/kubelet/nodestatus/setters.go (MachineInfo), pkg/kubelet/kubelet_node_status.go
(reconcileExtendedResource), pkg/kubelet/cm/devicemanager/manager.go (ShouldResetExtendedResourceCapacity)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import ANNOTATION, cluster_finding
from gpunode.kubernetes.nodes.labels import RESOURCES, accepts, difference, noted
from gpunode.settings.other_plugins import by_hand

UNBACKED = "a count by hand: no device plugin backs it, and pods that ask for it are given no device"
_DROPPED = "a kubelet sets it to 0 where it begins anew without a checkpoint of device plugins"

_FOREIGN, _NOT_DESIRED = "it is of another owner, such as a device plugin", "the settings no longer ask for it"
EXTENDED_RESOURCE = cluster_finding(
    "extended resource",
    "An extended resource of the node has another count than the settings ask for.",
    "Pods can request this number. A kubelet sets it to 0 when it starts without its checkpoint.",
    causes=(_FOREIGN, _DROPPED, _NOT_DESIRED),
)


@dataclass(frozen=True)
class ResourceChange:
    """Hold what is to be done about the resources of a node that are counted by hand.

    to_set: name -> count; to_remove: names; ours: what the annotation is then to say, None where it is to go;
    conflicts: name -> count of somebody else's, which is left alone; before: what the annotation says now;
    annotated: whether the node has any annotation
    """

    to_set: Mapping[str, int]
    to_remove: tuple[str, ...]
    ours: str | None
    conflicts: Mapping[str, str]
    before: str | None
    annotated: bool

    @property
    def is_none(self) -> bool:
        """Say whether there is nothing to do."""
        return not (self.to_set or self.to_remove or self.ours != self.before)


def owned(annotation: str | None) -> frozenset[str]:
    """Return the resources that an annotation says are gpunode's; none that gpunode would never set is believed."""
    return noted(annotation, partial(accepts, by_hand))


def resource_change(desired: Mapping[str, int], actual: ClusterNode) -> ResourceChange:
    """Return what brings a node's resources to those that are desired.

    One of somebody else's with the same count is left his; with another count it is a conflict.
    """
    counts = {name: str(count) for name, count in desired.items()}
    to_set, to_remove, text, conflicts = difference(counts, actual.capacity, owned(actual.resources))
    return ResourceChange(
        {name: desired[name] for name in to_set}, to_remove, text, conflicts, actual.resources, actual.is_annotated
    )


def decide_resources(node: str, desired: Mapping[str, int], actual: ClusterNode | None) -> Decision[ResourceChange]:
    """Return what is to be done about the resources of a node that are counted by hand; None: no such node.

    That the cluster has no such node is told with its labels.
    """
    if actual is None:
        return Decision(())
    change = resource_change(desired, actual)
    findings = tuple(_findings(desired, actual, change))
    if change.is_none:
        return Decision(findings)
    settles = tuple(each for each in bad(*findings) if EXTENDED_RESOURCE.named(each) not in change.conflicts)
    step = Step(f"count the extended resources of node {node}", settles, Disruption.nothing, change=change)
    return Decision(findings, (step,))


def _findings(desired: Mapping[str, int], actual: ClusterNode, change: ResourceChange) -> Iterator[Finding]:
    ours = owned(change.ours)
    for name, count in desired.items():
        found = actual.capacity.get(name)
        if name in change.conflicts:
            yield EXTENDED_RESOURCE.compared(found, count, False, of=name, remedy=BY_HAND, cause=_FOREIGN)
        elif name in change.to_set:
            cause = _DROPPED if found == "0" else None
            yield EXTENDED_RESOURCE.compared(found, count, False, of=name, cause=cause)
        else:
            # Whose count it is, may have a plugin behind it.
            cause = UNBACKED if name in ours else None
            yield EXTENDED_RESOURCE.finding(FindingClass.OK, found, str(count), of=name, cause=cause)
    for name in change.to_remove:
        yield EXTENDED_RESOURCE.compared(actual.capacity[name], "none", False, of=name, cause=_NOT_DESIRED)
    if change.ours != change.before and not (change.to_set or change.to_remove):
        yield ANNOTATION.compared(change.before, change.ours or "none", False, of=RESOURCES)


def patch(change: ResourceChange) -> list[dict[str, Any]]:
    """Return the JSON patch of a Node's status: the counts, and the annotation that says which are gpunode's.

    In one request, as kubelets change annotations and status: two would leave counts that nobody knows for gpunode's.
    It is refused where another run has changed the annotation meanwhile.
    """
    note, found = f"/metadata/annotations/{_escaped(RESOURCES)}", list[dict[str, Any]]()
    if change.before is not None:
        found.append({"op": "test", "path": note, "value": change.before})
    if change.ours != change.before:
        if change.ours is None:
            found.append({"op": "remove", "path": note})
        elif change.annotated:
            found.append({"op": "add", "path": note, "value": change.ours})
        else:
            found.append({"op": "add", "path": "/metadata/annotations", "value": {RESOURCES: change.ours}})
    for name, count in sorted(change.to_set.items()):
        found.append({"op": "add", "path": f"/status/capacity/{_escaped(name)}", "value": str(count)})
    for name in change.to_remove:
        found.append({"op": "remove", "path": f"/status/capacity/{_escaped(name)}"})
    return found


def _escaped(name: str) -> str:
    """Return a name as a part of a JSON pointer, where a slash begins the next part."""
    return name.replace("~", "~0").replace("/", "~1")
