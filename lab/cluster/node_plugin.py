"""The device plugin of one lab node from its start to its end. SIMULATED."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpunode.lab.cluster import devices, plugin
from gpunode.lab.cluster.api import Api, ApiError
from gpunode.lab.cluster.pods import Outcome, outcome
from gpunode.lab.nodes import Node

# How often a plugin that failed is started again, and how often a GPU's health is asked for.
_AGAIN_S, _HEALTH_S = 5.0, 10.0


def entries_of(api: Api, pod: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the entries of the ConfigMap that a pod mounts; None where there is none. Raise ApiError."""
    name = plugin.config_map(pod)
    if name is None:
        return None
    try:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{name}"
        return dict(api.get(path).get("data") or {})
    except ApiError as error:
        if error.status != 404:
            raise
        return None


@dataclass
class NodePlugin:
    """Hold what the plugin found when it started: as NVIDIA's, it looks at the GPUs then, and at their health later.

    `resources` is resource -> (capacity, allocatable).
    """

    node: Node
    api: Api
    resources: dict[str, tuple[int, int]] = field(default_factory=dict)
    _started_as: object = None
    _gpus: tuple[devices.Gpu, ...] = ()
    _config: plugin.Config | None = None
    _outcome: Outcome | None = None
    _looked: float = 0.0
    _boot: str = ""
    _holds: bool = False

    def look(
        self, own: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], labels: Mapping[str, str]
    ) -> Outcome | None:
        """Return what becomes of the plugin's pod; None where the node has none. Raise ApiError.

        + own: the plugin's pods on the node; others: all pods of the node
        """
        if not own:
            self.end()
            return None
        pod = own[0]
        if (pulled := outcome(pod, None)).waits:
            self.end()
            return pulled
        if (unit := plugin.memory_unit(pod)) is not None:
            return self._share(pod, unit)
        entries = entries_of(self.api, pod)
        daemon = any(plugin.daemon_set(each).endswith(plugin.MPS_DAEMON) for each in others)
        try:
            config = plugin.config(pod, entries, labels)
        except plugin.PluginError as error:
            self.end()
            return plugin.failure(str(error))
        now = time.monotonic()
        started_as = (pod["metadata"]["uid"], config, daemon)
        if started_as != self._started_as or (not self._is_well and now - self._looked >= _AGAIN_S):
            self._started_as, self._config, self._looked = started_as, config, now
            self._outcome = self._start(pod, config, daemon)
        elif self._is_well and now - self._looked >= _HEALTH_S:
            self._looked = now
            boot, healthy = devices.health(self.node)
            if boot and boot != self._boot:
                # With the node, its containers start anew.
                self._outcome = self._start(pod, config, daemon)
            else:
                self._count(healthy)
        return self._outcome

    def _share(self, pod: Mapping[str, Any], unit: str) -> Outcome:
        """Begin gpushare's plugin: it looks at the GPUs once; one that found none is started again after a while."""
        now, started_as = time.monotonic(), (pod["metadata"]["uid"], unit)
        if self._outcome is None or started_as != self._started_as or (
            not self._is_well and now - self._looked >= _AGAIN_S
        ):  # fmt: skip
            # NVIDIA's plugin may have been here before it.
            self.end()
            self._started_as, self._looked = started_as, now
            try:
                if runtime := devices.without_gpus(self.node, pod["spec"].get("runtimeClassName")):
                    raise devices.NoDevicesError(f"ERROR_LIBRARY_NOT_FOUND; it runs by {runtime}")
                found = plugin.shared_memory(devices.memory(self.node), unit)
            except devices.NoDevicesError as error:
                self._outcome = plugin.failure(f"Failed to initialize NVML: {error}")
            else:
                self.resources = {name: (count, count) for name, count in found.items()}
                offers = ", ".join(f"{name}: {count}" for name, count in found.items())
                self._outcome = Outcome("Running", True, f"SIMULATED device plugin: it offers {offers}\n")
        return self._outcome

    def end(self) -> None:
        """End the plugin, which lets the GPUs go that it held."""
        self.resources, self._started_as, self._outcome = {}, None, None
        if self._holds:
            devices.let_go(self.node)
            self._holds = False

    @property
    def _is_well(self) -> bool:
        return self._outcome is not None and self._outcome.ready

    def _start(self, pod: Mapping[str, Any], config: plugin.Config, daemon: bool) -> Outcome:
        self.resources = {}
        try:
            if runtime := devices.without_gpus(self.node, pod["spec"].get("runtimeClassName")):
                raise devices.NoDevicesError(f"ERROR_LIBRARY_NOT_FOUND; it runs by {runtime}")
            self._boot, _ = devices.health(self.node)
            self._gpus = devices.asked(self.node)
            if config.by_mps and not daemon:
                raise plugin.PluginError("error waiting for MPS daemon: no pod of it is on this node")
            self._count(None)
            devices.hold(self.node, len(self._gpus))
            self._holds = True
        except devices.NoDevicesError as error:
            # Of several GPUs one that is lost ends the plugin, whatever its flags.
            waits = plugin.waits_for_gpus(pod) and not error.is_lost
            return plugin.failure(f"Failed to initialize NVML: {error}", waits)
        except plugin.PluginError as error:
            return plugin.failure(str(error))
        offers = ", ".join(f"{name}: {both[0]}" for name, both in self.resources.items()) or "nothing"
        by = f" by configuration {config.name}" if config.name else ""
        return Outcome("Running", True, f"SIMULATED device plugin: it offers {offers}{by}\n")

    def _count(self, healthy: frozenset[str] | None) -> None:
        if self._config is None:
            return
        every = plugin.offered(self._config, self._gpus)
        well = plugin.offered(self._config, self._gpus, healthy)
        self.resources = {name: (count, well[name]) for name, count in every.items()}
