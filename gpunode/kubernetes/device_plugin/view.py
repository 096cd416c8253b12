"""What a cluster has of the plugin: its nodes, and the workloads and pods in the plugin's namespace, and gpushare's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpunode.base.folding import in_one_line
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import load_json
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, told
from gpunode.kubernetes.objects.own_objects import is_ready, way_of

# helm writes it on each object of a release.
_RELEASE = "meta.helm.sh/release-name"
# The number of a DaemonSet's template, and of the one that a pod was made by. Where a former template comes back, its
# pods have another number and are as desired: the name of their revision says so.
# source: kubernetes/kubernetes, pkg/controller/daemon/util/daemonset_util.go (IsPodUpdated, CreatePodTemplate)
_POD_REVISION = "controller-revision-hash"
_GENERATION, _POD_GENERATION = "deprecated.daemonset.template.generation", "pod-template-generation"
MPS_DAEMON, FEATURE_DISCOVERY = "-mps-control-daemon", "-gpu-feature-discovery"
# It brings its own DaemonSets into the release, where nobody promises on which nodes they are.
_NODE_FEATURE_DISCOVERY = "node-feature-discovery"


@dataclass(frozen=True)
class DaemonSet:
    """Hold a DaemonSet: the release that it is of, and gpunode's method; None where it is neither's.

    stays: its pods stay as they are until somebody ends them (OnDelete); generation: the number of its template;
    observed: its controller has seen that; is_current: and says that all pods are of it; revision: the name that pods
    of it bear, None where nobody asked
    """

    name: str
    release: str | None
    method: str | None = None
    stays: bool = False
    generation: str | None = None
    observed: bool = False
    is_current: bool = False
    revision: str | None = None

    def makes_otherwise(self, pod: Pod) -> bool:
        """Say whether it would make a pod of its own otherwise now."""
        if self.is_current:
            return False
        if self.revision is not None and _POD_REVISION in pod.labels:
            return pod.labels[_POD_REVISION] != self.revision
        return self.generation not in (None, pod.labels.get(_POD_GENERATION))


@dataclass(frozen=True)
class Deployment:
    """Hold a Deployment: by which method gpunode made it (None: somebody else did), and whether all of it runs."""

    name: str
    method: str | None
    ready: bool


@dataclass(frozen=True)
class Pod:
    """Hold a pod: which DaemonSet it is of, on which node, whether it is ready, its phase, and why it waits.

    `started` is when the node's kubelet took it, in seconds of the node's clock; None where it did not yet. `images`
    has, for each container, the image that it asks for, and what the node's runtime says that it runs (empty: not yet).
    `leaves`: somebody has removed it, and it ends.
    """

    name: str
    labels: Mapping[str, str]
    daemon_set: str | None
    node: str | None
    ready: bool
    phase: str
    waits: str | None
    started: float | None = None
    images: tuple[tuple[str, str], ...] = ()
    leaves: bool = False

    def other_images(self, digest: str) -> tuple[str, ...]:
        """Return what its containers run that is not the image of a digest; what does not run yet is none.

        An image that a node has by two digests (an index, and what it names) is told by either. A container that asks
        for the digest runs that, or does not start.
        """
        running = ((desired, by) for desired, by in self.images if by)
        others = (by for desired, by in running if not (desired.endswith(f"@{digest}") or by.endswith(digest)))
        return tuple(dict.fromkeys(others))


def parse_revisions(text: str) -> dict[str, str]:
    """Parse ControllerRevisions: DaemonSet -> the name that pods of its newest template bear; raise ParseError."""
    return told(text, "list of ControllerRevisions", lambda found: _revisions(found["items"]))


def _revisions(items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        str(owner["name"]): str(each["metadata"]["labels"][_POD_REVISION])
        for each in sorted(items, key=lambda each: int(each["revision"]))
        for owner in each["metadata"].get("ownerReferences") or []
        if owner.get("kind") == "DaemonSet" and _POD_REVISION in (each["metadata"].get("labels") or {})
    }


@dataclass(frozen=True)
class View:
    """Hold all of it, from one moment; `exporter`: the same of the namespace of DCGM's exporter, where one is asked."""

    nodes: Mapping[str, ClusterNode]
    daemon_sets: tuple[DaemonSet, ...]
    pods: tuple[Pod, ...]
    deployments: tuple[Deployment, ...] = ()
    exporter: View | None = None

    def plugin_sets(self, release: str) -> tuple[str, ...]:
        """Return the names of the release's own DaemonSets."""
        return tuple(
            each.name
            for each in self.daemon_sets
            if each.release == release and _NODE_FEATURE_DISCOVERY not in each.name
        )

    def pod(self, daemon_set: str, node: str) -> Pod | None:
        """Return a DaemonSet's pod on a node, the ready one where there are two in the middle of a change."""
        found = [each for each in self.pods if (each.daemon_set, each.node) == (daemon_set, node)]
        return max(found, key=lambda each: each.ready, default=None)

    def outdated(self, sets: Sequence[str], node: str) -> tuple[Pod, ...]:
        """Return pods on a node that their DaemonSet would make otherwise now, and which nobody ends (OnDelete)."""
        staying = {each.name: each for each in self.daemon_sets if each.name in sets and each.stays}
        of_node = (pod for pod in self.pods if pod.node == node and not pod.leaves)
        return tuple(
            pod
            for pod in of_node
            if (found := staying.get(pod.daemon_set or "")) is not None and found.makes_otherwise(pod)
        )

    @property
    def has_outdated(self) -> bool:
        """Say whether a DaemonSet whose pods stay may have some that it would make otherwise now."""
        return any(each.stays and not each.is_current for each in self.daemon_sets)

    def with_revisions(self, revisions: Mapping[str, str]) -> View:
        """Return the view with the name that each DaemonSet's new pods bear: what parse_revisions returns."""
        sets = tuple(
            replace(each, revision=revisions.get(each.name)) if each.observed else each for each in self.daemon_sets
        )
        return replace(self, daemon_sets=sets)

    def stale_plugins(self, sets: Sequence[str], node: str, changed: float) -> tuple[Pod, ...]:
        """Return DaemonSets' pods on a node that began before its MIG devices `changed`, and know the former ones."""
        pods = (self.pod(each, node) for each in sets)
        return tuple(pod for pod in pods if pod is not None and pod.started is not None and pod.started <= changed)


def parse_objects(*texts: str) -> tuple[tuple[DaemonSet, ...], tuple[Pod, ...], tuple[Deployment, ...]]:
    """Parse lists of DaemonSets, Deployments and Pods; raise ParseError."""
    try:
        items = [each for text in texts for each in load_json(text)["items"]]
        sets = tuple(_daemon_set(each) for each in items if each["kind"] == "DaemonSet")
        pods = tuple(_pod(each) for each in items if each["kind"] == "Pod")
        chosen = (each for each in items if each["kind"] == "Deployment")
        deployments = (Deployment(str(each["metadata"]["name"]), way_of(each), is_ready(each)) for each in chosen)
        return sets, pods, tuple(deployments)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise ParseError("kubectl's answer is no list of DaemonSets and pods") from None


def _daemon_set(item: Mapping[str, Any]) -> DaemonSet:
    metadata, annotations = item["metadata"], item["metadata"].get("annotations") or {}
    spec, status = item.get("spec") or {}, item.get("status") or {}
    seen = status.get("observedGeneration") is not None and status["observedGeneration"] == metadata.get("generation")
    updated = int(status.get("updatedNumberScheduled") or 0)
    return DaemonSet(
        name=str(metadata["name"]),
        release=annotations.get(_RELEASE),
        method=way_of(item),
        stays=(spec.get("updateStrategy") or {}).get("type") == "OnDelete",
        generation=annotations.get(_GENERATION),
        observed=seen,
        is_current=seen and updated >= int(status.get("desiredNumberScheduled") or 0),
    )


def _pod(item: Mapping[str, Any]) -> Pod:
    metadata, status = item["metadata"], item.get("status") or {}
    owners = [each for each in metadata.get("ownerReferences") or [] if each.get("kind") == "DaemonSet"]
    ready = [each for each in status.get("conditions") or [] if each.get("type") == "Ready"]
    return Pod(
        name=str(metadata["name"]),
        labels=dict(metadata.get("labels") or {}),
        daemon_set=str(owners[0]["name"]) if owners else None,
        node=(item.get("spec") or {}).get("nodeName"),
        ready=bool(ready) and ready[0].get("status") == "True" and not metadata.get("deletionTimestamp"),
        phase=str(status.get("phase") or "Unknown"),
        waits=next(_waits(status), None),
        leaves=bool(metadata.get("deletionTimestamp")),
        images=tuple(_images(item.get("spec") or {}, status)),
        started=datetime.fromisoformat(str(status["startTime"])).timestamp() if status.get("startTime") else None,
    )


def _images(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in ("initContainer", "container"):
        desired = {each["name"]: str(each.get("image") or "") for each in spec.get(f"{kind}s") or []}
        for each in status.get(f"{kind}Statuses") or []:
            yield desired.get(each.get("name"), ""), str(each.get("imageID") or "")


def _waits(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a pod does not run: why it is not scheduled, what its containers wait for, how they ended."""
    for each in status.get("conditions") or []:
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            yield _said(each)
    for each in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        for state in (each.get("state") or {}, each.get("lastState") or {}):
            for part in ("waiting", "terminated"):
                if state.get(part) and state[part].get("reason") != "Completed":
                    yield _said(state[part])


def _said(state: Mapping[str, Any]) -> str:
    return ": ".join(in_one_line(state[part]) for part in ("reason", "message") if state.get(part))
