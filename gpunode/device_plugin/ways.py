"""What a cluster gets by the ways without a helm release, from the settings of all hosts of an inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpunode.device_plugin.runtime_class import NAME, needs_runtime_class
from gpunode.device_plugin.static_manifest import static_manifest
from gpunode.gpushare.configuration import Extender
from gpunode.gpushare.objects import gpushare_objects
from gpunode.settings import Settings
from gpunode.settings.kubernetes import LOCAL

# Those by which somebody's pods get their GPUs; what a person calls `none` is his own.
WITH_OBJECTS = ("manifest", "gpushare")


def nodes_by(way: str, hosts: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the hosts that get their GPUs into the cluster in one way."""
    return {
        host: settings
        for host, settings in hosts.items()
        if settings.kubernetes.enabled and settings.device_plugin.way == way
    }


def wanted_objects(hosts: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """Return the objects of gpunode's own that the cluster is to have, in the order in which they are made."""
    found: list[dict[str, Any]] = []
    if nodes := nodes_by("manifest", hosts):
        first, each = next(iter(nodes.values())), list(nodes.values())
        by_class = any(map(needs_runtime_class, each))
        found += static_manifest(first.device_plugin, [settings.sharing for settings in each], by_class)
    if nodes := nodes_by("gpushare", hosts):
        first = next(iter(nodes.values()))
        by_class = any(map(needs_runtime_class, nodes.values()))
        found += gpushare_objects(first.gpushare, NAME if by_class else None)
    return found


def extender(hosts: Mapping[str, Settings]) -> Extender | None:
    """Return the extender that the cluster's schedulers are to ask; None where they are to ask none of gpunode's."""
    first = next(iter(nodes_by("gpushare", hosts).values()), None)
    if first is None or first.gpushare.scheduler == "theirs":
        return None
    return Extender(first.gpushare.address, first.gpushare.ignorable)


def schedulers(hosts: Mapping[str, Settings]) -> tuple[str, ...]:
    """Return the control-plane hosts whose scheduler is gpunode's to change, also back; none where nobody names any."""
    first = next((settings for settings in hosts.values() if settings.kubernetes.enabled), None)
    if first is None or first.gpushare.scheduler == "theirs":
        return ()
    if first.gpushare.schedulers:
        return tuple(first.gpushare.schedulers)
    return () if first.kubernetes.run_on == LOCAL else (first.kubernetes.run_on,)
