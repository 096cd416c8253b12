"""The stand-in for the kubelets and the device plugin of a lab's nodes: a small process that simulates both.

`python -m gpunode.lab.cluster.stand_in LAB PORT`, in the cluster's folder. All that it does it logs, with the word
SIMULATED. Pods of other nodes than the lab's are none of its business.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cluster import devices, plugin, pods
from gpunode.lab.cluster.api import Api, ApiError
from gpunode.lab.cluster.feature_discovery import NodeDiscovery, is_discovery
from gpunode.lab.cluster.logs import Logs, serve
from gpunode.lab.cluster.mps_daemon import NodeDaemon, is_daemon
from gpunode.lab.cluster.node_plugin import NodePlugin, entries_of
from gpunode.lab.cluster.vector_adds import VectorAdds
from gpunode.lab.nodes import Node

_PAUSE_S = 0.5
# A node's annotation that names the UID of a plugin's pod which its kubelet does not know: one that began anew.
FORGOTTEN = "gpunode-lab/kubelet-forgot"


def log(text: str) -> None:
    """Say what is simulated."""
    print(f"{_now()} SIMULATED {text}", flush=True)


@dataclass
class StandIn:
    """Hold what is known between two rounds."""

    api: Api
    lab: str
    logs: Logs
    plugins: dict[str, NodePlugin] = field(default_factory=dict)
    discoveries: dict[str, NodeDiscovery] = field(default_factory=dict)
    daemons: dict[str, NodeDaemon] = field(default_factory=dict)
    reported: dict[str, pods.Outcome] = field(default_factory=dict)
    vectors: VectorAdds = field(default_factory=VectorAdds)

    def round(self) -> None:
        """Look at the cluster once, and do what kubelets and plugins would; raise ApiError."""
        nodes = {node.name: node for node in lab_nodes.nodes(self.lab)}
        every = [pod for pod in self.api.get("/api/v1/pods")["items"] if pod["spec"].get("nodeName") in nodes]
        objects = {item["metadata"]["name"]: item for item in self.api.get("/api/v1/nodes")["items"]}
        for pod in every:
            if pod["metadata"].get("deletionTimestamp"):
                if plugin.is_plugin(pod) and (own := self.plugins.get(pod["spec"]["nodeName"])):
                    # A pod has gone once its programs have ended.
                    own.end()
                if is_daemon(pod) and (daemon := self.daemons.get(pod["spec"]["nodeName"])):
                    daemon.end()
                self._remove(pod)
        alive = [pod for pod in every if not pod["metadata"].get("deletionTimestamp")]
        for name, node in nodes.items():
            if name in objects:
                of_node = [pod for pod in alive if pod["spec"]["nodeName"] == name]
                self._node(node, objects[name], of_node)

    def _node(self, node: Node, found: dict[str, Any], of_node: list[dict[str, Any]]) -> None:
        # First the daemons, which the plugin may wait for, and last what needs its resources.
        asked = [pod for pod in of_node if plugin.is_plugin(pod)]
        daemon = self.daemons.setdefault(node.name, NodeDaemon(node, self.api))
        begun = [pod for pod in of_node if is_daemon(pod)]
        became = daemon.look(begun, found["metadata"].get("labels") or {})
        for pod in begun:
            if became is not None:
                self._report(pod, became)
        for pod in of_node:
            played = plugin.is_plugin(pod) or is_discovery(pod) or is_daemon(pod)
            if not played and not pods.has_ended(pod):
                trouble = self._gpu_trouble(node, pod) if pods.is_one_shot(pod) else None
                becomes = pods.outcome(pod, trouble)
                self._report(pod, self.vectors.outcome(node, pod, becomes) if pods.passes(becomes) else becomes)
        own = self.plugins.setdefault(node.name, NodePlugin(node, self.api))
        outcome = own.look(asked, of_node, found["metadata"].get("labels") or {})
        for pod in asked:
            if outcome is not None:
                self._report(pod, outcome)
        forgotten = (found["metadata"].get("annotations") or {}).get(FORGOTTEN)
        is_known = all(pod["metadata"]["uid"] != forgotten for pod in asked)
        self._offer(node, found["status"], own.resources if is_known else {})
        self._discover(node, found, [pod for pod in of_node if is_discovery(pod)])

    def _discover(self, node: Node, found: dict[str, Any], of_node: list[dict[str, Any]]) -> None:
        own = self.discoveries.setdefault(node.name, NodeDiscovery(node, self.api))
        entries, before = entries_of(self.api, of_node[0]) if of_node else None, own.written
        outcome = own.look(of_node, entries, found["metadata"].get("labels") or {})
        for pod in of_node:
            if outcome is not None:
                self._report(pod, outcome)
        if own.written != before:
            log(f"GPU feature discovery of {node.name}: {own.written}")

    def _gpu_trouble(self, node: Node, pod: dict[str, Any]) -> str | None:
        """Return why a pod's programs would see no GPU of the node."""
        if not pods.asks_for_gpu(pod):
            return "no CUDA-capable device is detected; the pod asks for none"
        if runtime := devices.without_gpus(node, pod["spec"].get("runtimeClassName")):
            return f"no CUDA-capable device is detected; the pod runs by {runtime}"
        try:
            devices.asked(node)
        except devices.NoDevicesError as error:
            return str(error)
        return None

    def _report(self, pod: dict[str, Any], outcome: pods.Outcome) -> None:
        namespace, name, uid = (pod["metadata"][key] for key in ("namespace", "name", "uid"))
        if self.reported.get(uid) == outcome:
            return
        self.logs.set(namespace, name, outcome.log)
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        self.api.patch(path, {"status": pods.status(pod, outcome, _now())})
        self.reported[uid] = outcome
        words = f"{outcome.phase}{', ready' if outcome.ready else ''}{f', {outcome.waits}' if outcome.waits else ''}"
        log(f"kubelet of {pod['spec']['nodeName']}: pod {namespace}/{name} is {words}")

    def _remove(self, pod: dict[str, Any]) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path, only = f"/api/v1/namespaces/{namespace}/pods/{name}", {"uid": pod["metadata"]["uid"]}
        try:
            self.api.delete(path, {"gracePeriodSeconds": 0, "preconditions": only})
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        self.vectors.end(pod["metadata"]["uid"])
        self.reported.pop(pod["metadata"]["uid"], None)
        self.logs.remove(namespace, name)
        log(f"kubelet of {pod['spec']['nodeName']}: pod {namespace}/{name} has ended")

    def _offer(self, node: Node, status: dict[str, Any], resources: dict[str, tuple[int, int]]) -> None:
        """Report the plugin's resources; one that is offered no more stays at 0, as a kubelet keeps it.

        What others have counted in the node's capacity is allocatable, too.
        """
        change: dict[str, dict[str, str | None]] = {}
        for kind, which in (("capacity", 0), ("allocatable", 1)):
            before = {name: count for name, count in (status.get(kind) or {}).items() if name.startswith(pods.VENDORS)}
            wanted = {**dict.fromkeys(before, "0"), **{name: str(both[which]) for name, both in resources.items()}}
            if wanted != before:
                change[kind] = dict(wanted)
        if counted := pods.counted_by_others(status):
            change["allocatable"] = {**change.get("allocatable", {}), **counted}
        if change:
            self.api.patch(f"/api/v1/nodes/{node.name}/status", {"status": change})
            log(f"device plugin of {node.name}: {change.get('allocatable', change)}")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> None:
    """Simulate until the cluster's folder is gone."""
    lab, port = sys.argv[1], int(sys.argv[2])
    here = Path()
    stand_in = StandIn(Api(Path("api.sock")), lab, Logs(here / "pod-logs"))
    certificates = here / "certificates"
    if certificates.is_dir():
        serve(stand_in.logs, port, certificates / "apiserver.crt", certificates / "apiserver.key")
    else:
        log("kubelet: no logs are served in a cluster that was given")
    log(f"kubelets and device plugins of lab {lab}")
    while Path("ports.json").exists():
        try:
            stand_in.round()
        except (ApiError, OSError) as error:
            log(f"nothing done in this round: {error}")
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
