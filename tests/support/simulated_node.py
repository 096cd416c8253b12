"""A cluster with one node, SIMULATED: it answers kubectl's command lines, and keeps what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gpunode.kubernetes.drain.commands import drain_of
from gpunode.kubernetes.drain.session import Session
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.nodes.cluster_nodes import ANNOTATION
from gpunode.settings import settings_from

NOW = "2026-01-31T12:00:00Z"
BUDGET = {
    "apiVersion": "policy/v1beta1",
    "metadata": {"namespace": "shop", "name": "web"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
    "status": {"disruptionsAllowed": 0},
}


def pod(name: str, **parts: Any) -> dict[str, Any]:
    """Return a pod of a ReplicaSet, in the namespace shop, as kubectl prints it; `parts` are merged into it."""
    found: dict[str, Any] = {
        "metadata": {
            "namespace": "shop", "name": name, "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "controller": True}],
        },
        "spec": {"volumes": []},
        "status": {"phase": "Running"},
    }  # fmt: skip
    for part, values in parts.items():
        found[part] = {**found[part], **values}
    return found


class Cluster:
    """Hold a node, its pods and budgets; `asked` are kubectl's verbs in order."""

    def __init__(self, name: str = "gpu-1") -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": name, "resourceVersion": "1", "annotations": {}, "managedFields": []},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "boot"}},
        }
        self.pods: list[dict[str, Any]] = []
        self.budgets: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.words: list[tuple[str, ...]] = []
        self.silent = False
        # The cluster's other nodes.
        self.others: list[dict[str, Any]] = []
        # What happens right before a request is answered, once.
        self.meanwhile: dict[str, Callable[[], None]] = {}

    @property
    def note(self) -> dict[str, str] | None:
        """Return what the annotation says."""
        text = self.node["metadata"]["annotations"].get(ANNOTATION)
        return None if text is None else dict(json.loads(text))

    @property
    def cordoned(self) -> bool:
        """Say whether the node takes no pods."""
        return self.node["spec"].get("unschedulable") is True

    def patch(self, patch: dict[str, Any], manager: str) -> None:
        """Merge a patch into the node under somebody's name."""
        metadata = self.node["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        for part in ("annotations", "labels"):
            for key, value in patch.get("metadata", {}).get(part, {}).items():
                if value is None:
                    metadata[part].pop(key, None)
                else:
                    metadata[part][key] = value
        if "spec" in patch and bool(patch["spec"]["unschedulable"]) != self.cordoned:
            metadata["managedFields"] = []
            self.node["spec"] = {}
            if patch["spec"]["unschedulable"]:
                self.node["spec"]["unschedulable"] = True
                fields: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
                metadata["managedFields"] = [{"manager": manager, "operation": "Update", "fieldsV1": fields}]

    def by_hand(self, cordoned: bool) -> None:
        """Cordon or uncordon the node as an admin does."""
        self.patch({"spec": {"unschedulable": cordoned or None}}, "kubectl-cordon")

    def __call__(self, command: Command) -> Output:
        """Answer a command line of kubectl's."""
        verb = " ".join(command.words[1:3])
        self.asked.append(verb)
        self.words.append(command.words)
        if happens := self.meanwhile.pop(verb, None):
            happens()
        if self.silent:
            return Output(1, "", "The connection to the server 10.0.0.1:6443 was refused")
        if command.words[1] == "patch":
            return self._patched(command.words)
        if command.words[1] == "drain":
            return self._drained(command.words)
        if command.words[2:] == ("--raw", "/api/v1/nodes", "--request-timeout", "30s"):
            return Output(0, json.dumps({"items": [self.node, *self.others]}), "")
        if command.words[2] == "--raw":
            if not command.words[3].endswith(f"/{self.node['metadata']['name']}"):
                return Output(1, "", 'Error from server (NotFound): nodes "x" not found')
            return Output(0, json.dumps(self.node), "")
        items = self.pods if command.words[2] == "pods" else self.budgets
        return Output(0, json.dumps({"items": items}), "")

    def _patched(self, words: tuple[str, ...]) -> Output:
        patch = json.loads(words[words.index("--patch") + 1])
        version = patch["metadata"].get("resourceVersion")
        if version not in (None, self.node["metadata"]["resourceVersion"]):
            return Output(1, "", "Error from server (Conflict): the object has been modified")
        self.patch(patch, words[words.index("--field-manager") + 1])
        return Output(0, "node/gpu-1 patched", "")

    def _drained(self, words: tuple[str, ...]) -> Output:
        alone = [each for each in self.pods if not each["metadata"].get("ownerReferences")]
        if alone and "--force" not in words:
            # Also where it ends already.
            return Output(1, "", "error: unable to drain node: cannot delete Pods that declare no controller")
        spent = any(not each["status"]["disruptionsAllowed"] for each in self.budgets)
        stuck = [each for each in self.pods if spent and each["metadata"]["labels"] == {"app": "web"}]
        self.pods = stuck
        return Output(1, "", "error when evicting pods\nerror: timed out") if stuck else Output(0, "drained", "")


def session(cluster: Cluster, host: str = "gpu-1", **drain: object) -> Session:
    """Return the drain of a cluster's node, whose clock goes a minute with each look."""
    found = drain_of(host, settings_from({"kubernetes": {"enabled": True, "drain": drain}}))
    assert found is not None
    minutes = iter(range(0, 600_000, 60))
    return Session(found, cluster, lambda: NOW, lambda: float(next(minutes)), lambda _: None)
