"""What becomes of a pod that is bound to a lab node: the status that a kubelet would report. SIMULATED, and pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

VENDOR = "nvidia.com/"
# Of the device plugins that are simulated.
VENDORS = (VENDOR, "aliyun.com/")
# An image with this tag is one that cannot be pulled.
NO_SUCH_IMAGE = "does-not-exist"
_VECTOR_ADD = ("vectoradd", "vector-add")
_ENDED = ("Succeeded", "Failed")
_PASSED = "Test PASSED"


@dataclass(frozen=True)
class Outcome:
    """Hold what becomes of a pod: its phase, whether it is ready, what its containers say; and why it waits."""

    phase: str
    ready: bool
    log: str
    waits: str = ""


def counted_by_others(status: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what changes of a node's allocatable resources by those that no plugin offers; None: it goes.

    Source: kubernetes/kubernetes, pkg/kubelet/nodestatus/setters.go (MachineInfo).
    """
    capacity, allocatable = ({**(status.get(kind) or {})} for kind in ("capacity", "allocatable"))
    gone = (name for name in allocatable if "/" in name and name not in capacity)
    found = {
        name: count
        for name, count in capacity.items()
        if "/" in name and not name.startswith(VENDORS) and allocatable.get(name) != count
    }
    return {**found, **dict.fromkeys(gone)}


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Say whether nothing becomes of the pod any more."""
    return pod["status"].get("phase") in _ENDED


def is_one_shot(pod: Mapping[str, Any]) -> bool:
    """Say whether the pod is to end by itself."""
    return bool(pod["spec"].get("restartPolicy") in ("Never", "OnFailure"))


def asks_for_gpu(pod: Mapping[str, Any]) -> bool:
    """Say whether one of the pod's containers has a resource of a device plugin's."""
    limits = (container.get("resources", {}).get("limits") or {} for container in pod["spec"]["containers"])
    return any(name.startswith(VENDORS) for each in limits for name in each)


def outcome(pod: Mapping[str, Any], gpu_trouble: str | None) -> Outcome:
    """Return what becomes of a pod.

    `gpu_trouble` is why its programs would see no GPU; None where they would see one.
    """
    images = [container["image"] for container in pod["spec"]["containers"]]
    if any(image.endswith(f":{NO_SUCH_IMAGE}") for image in images):
        return Outcome("Pending", False, "", "ErrImagePull")
    if not is_one_shot(pod):
        return Outcome("Running", True, "SIMULATED: no container runs\n")
    if not any(word in image.lower() or _named(pod, word) for image in images for word in _VECTOR_ADD):
        return Outcome("Succeeded", False, "SIMULATED: no container ran\n")
    begun = "SIMULATED: no container ran; judged by the node's nvidia-smi\n[Vector addition of 50000 elements]\n"
    if gpu_trouble is None:
        return Outcome("Succeeded", False, f"{begun}{_PASSED}\nDone\n")
    return Outcome("Failed", False, f"{begun}Failed to allocate device vector A ({gpu_trouble})!\nTest FAILED\n")


def passes(found: Outcome) -> bool:
    """Say whether that is what becomes of a pod that adds vectors on a GPU."""
    return _PASSED in found.log


def status(pod: Mapping[str, Any], found: Outcome, now: str) -> dict[str, Any]:
    """Return the pod's status for that outcome; `now` is the time, as Kubernetes writes it."""
    before = pod["status"]
    kept = [each for each in before.get("conditions") or () if each["type"] == "PodScheduled"]
    ready = "True" if found.ready else "False"
    conditions = [
        {"type": name, "status": state, "lastTransitionTime": now}
        for name, state in (("Initialized", "True"), ("Ready", ready), ("ContainersReady", ready))
    ]
    return {
        "phase": found.phase,
        "startTime": before.get("startTime") or now,
        "conditions": [*conditions, *kept],
        "containerStatuses": [_container(each, found, now) for each in pod["spec"]["containers"]],
        "initContainerStatuses": [
            _container(each, Outcome("Succeeded", True, ""), now) for each in pod["spec"].get("initContainers") or ()
        ],
    }


def _container(container: Mapping[str, Any], found: Outcome, now: str) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {"startedAt": now}}
    if found.waits:
        state = {"waiting": {"reason": found.waits, "message": "SIMULATED"}}
    elif found.phase in _ENDED:
        failed = found.phase == "Failed"
        ended = {"reason": "Error" if failed else "Completed", "startedAt": now, "finishedAt": now}
        state = {"terminated": {"exitCode": int(failed), **ended}}
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "" if found.waits else _image_id(container["image"]),
        "ready": found.ready,
        "restartCount": 0,
        "started": found.phase == "Running",
        "state": state,
    }


def _image_id(image: str) -> str:
    """Return what a runtime says of an image: its name and digest; one that is named by a tag gets some digest."""
    name, _, digest = image.partition("@")
    return f"{re.sub(r':[^/:]*$', '', name)}@{digest or 'sha256:' + sha256(name.encode()).hexdigest()}"


def _named(pod: Mapping[str, Any], word: str) -> bool:
    return word in pod["metadata"]["name"].lower()
