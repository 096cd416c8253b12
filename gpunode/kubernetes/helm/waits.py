"""What helm waits for once it has changed a release, and how long: said before it begins, for it says nothing."""

from __future__ import annotations

from collections.abc import Iterable

from gpunode.kubernetes.helm.manifest import Identity, is_custom

# source: helm v3, pkg/kube/ready.go; helm v4 takes all kinds (kstatus), of which these and custom resources take time.
_TAKE_TIME = {
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "PersistentVolumeClaim",
    "Pod",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
}
_FEW = 6
_POLICY = "ClusterPolicy"


def waited_for(objects: Iterable[Identity], major: int) -> tuple[Identity, ...]:
    """Return the objects of a release that a helm of this major version waits for."""
    return tuple(sorted(each for each in objects if each.kind in _TAKE_TIME or (major >= 4 and is_custom(each))))


def waiting(objects: Iterable[Identity], version: str, timeout: int) -> str:
    """Return what helm of this version waits for and how many seconds at most, for people; empty: for nothing."""
    found = waited_for(objects, int(version.partition(".")[0]))
    if not found:
        return ""
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    text = (
        f"helm {version} now waits until {', '.join(map(str, found[:_FEW]))}{more} "
        f"{'are' if len(found) > 1 else 'is'} ready, for {timeout} s at most (kubernetes.timeout), and as long again "
        "where it goes back"
    )
    if any(each.kind == _POLICY for each in found):
        text += f"; the {_POLICY} is ready when the operator's own pods run on every GPU node"
    return text
