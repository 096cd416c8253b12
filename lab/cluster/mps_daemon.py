"""The device plugin's MPS daemon of one lab node, from its pod's start to its end. SIMULATED.

A process of the node's stands for it where the plugin's would be, told what the plugin tells its own: NVIDIA's own
nvidia-cuda-mps-control where a test has put it on the node. No program is a client of it.
source: NVIDIA/k8s-device-plugin v0.20.0, cmd/mps-control-daemon/mps/daemon.go and root.go
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpunode.lab.cluster import devices, plugin
from gpunode.lab.cluster.api import Api
from gpunode.lab.cluster.node_plugin import entries_of
from gpunode.lab.cluster.pods import Outcome, outcome
from gpunode.lab.nodes import Node

# How often one that failed is started again.
_AGAIN_S = 5.0


def is_daemon(pod: Mapping[str, Any]) -> bool:
    """Say whether a pod is one of the plugin's MPS daemon."""
    return plugin.daemon_set(pod).endswith(plugin.MPS_DAEMON)


@dataclass
class NodeDaemon:
    """Hold by which pod and configuration the daemon was started, and what became of it."""

    node: Node
    api: Api
    _started_as: object = None
    _outcome: Outcome | None = None
    _looked: float = 0.0

    def look(self, own: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Outcome | None:
        """Return what becomes of the daemon's pod; None where the node has none. Raise ApiError.

        It starts anew with another pod, and with another configuration, as the plugin's does by SIGHUP.
        """
        if not own:
            self.end()
            return None
        pod = own[0]
        if (pulled := outcome(pod, None)).waits:
            self.end()
            return pulled
        try:
            config = plugin.config(pod, entries_of(self.api, pod), labels)
        except plugin.PluginError as error:
            self.end()
            return plugin.failure(str(error))
        started_as = (pod["metadata"]["uid"], config)
        now, is_well = time.monotonic(), self._outcome is not None and self._outcome.ready
        if started_as != self._started_as or (not is_well and now - self._looked >= _AGAIN_S):
            self.end()
            self._started_as, self._looked, self._outcome = started_as, now, self._start(config)
        return self._outcome

    def _start(self, config: plugin.Config) -> Outcome:
        if not config.by_mps:
            return Outcome("Running", True, "SIMULATED MPS daemon: the configuration shares nothing by MPS\n")
        try:
            memory = devices.memory(self.node)
            for replicas, name in config.shared.values():
                devices.start_mps(self.node, name, 100 // replicas, [each // replicas for each in memory])
        except devices.NoDevicesError as error:
            return plugin.failure(f"Failed to initialize NVML: {error}")
        return Outcome("Running", True, f"SIMULATED MPS daemon: started by configuration {config.name}\n")

    def end(self) -> None:
        """End the daemon, and with it the programs of its clients, of which there are none."""
        if self._started_as is not None:
            devices.end_mps(self.node)
        self._started_as, self._outcome = None, None
