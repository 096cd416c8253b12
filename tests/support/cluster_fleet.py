"""SIMULATED: three nodes of one cluster that lacks its release, and readings of them by `gpunode drift`'s own way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.mig.state import Mig
from gpunode.fleet import cluster as fleet_cluster
from gpunode.fleet import drift, nodes
from gpunode.fleet.inventory import host_data
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes.nodes.labels import CONFIG, OURS, PRESENT
from gpunode.settings import check_hosts
from tests.support.simulated_cluster import ENFORCED, SimulatedCluster
from tests.support.verify import GOOD
from tests.support.verify_cluster import DAEMON_SET, SHARED, _gpu, _pod, _set

_NODE = replace(GOOD, mig=Mig("ok", None, (_gpu(0),)))


@dataclass(frozen=True)
class Fleet:
    """Hold an inventory of nodes and their cluster."""

    inventory: Path
    cluster: SimulatedCluster

    def inspect(
        self,
        unreachable: Collection[str] = (),
        only: Collection[str] | None = None,
        limit: Collection[str] = (),
        cordons: Mapping[str, Finding] = MappingProxyType({}),
    ) -> tuple[NodeReport, ...]:
        """Return what drift reports where some nodes are unreachable; a node itself has one finding.

        cordons: what is found of the nodes that a run drained
        """
        hosts = check_hosts(host_data(self.inventory))

        def read(*_: Any, **__: Any) -> tuple[Answer[Any], ...]:
            names = [name for name in hosts if (only is None or name in only) and (not limit or name in limit)]
            return tuple(
                Answer(name, hosts[name], None, "timed out")
                if name in unreachable
                else Answer(name, hosts[name], _NODE, None)
                for name in names
            )

        good = Finding(
            "driver", FindingClass.OK, "loaded module", "580.95.05", "580.95.05", code="driver.loaded-module"
        )
        with ExitStack() as stack:
            stack.enter_context(patch.object(nodes, "read", read))
            stack.enter_context(patch.object(drift, "judge_apart", lambda *_: (good,)))
            stack.enter_context(patch.object(fleet_cluster, "held_back", lambda *_: cordons))
            return drift.inspect(self.inventory, only=only, limit=limit)


def fleet(
    folder: Path,
    names: Collection[str] = ("gpu-1", "gpu-2", "gpu-3"),
    more: Mapping[str, Any] = MappingProxyType({}),
    **kubernetes: Any,
) -> Fleet:
    """Return nodes that are as desired, in a cluster whose release was uninstalled; more: of the nodes' settings."""
    cluster = SimulatedCluster.of(folder, *names)
    nodes, labels = cluster.state()["nodes"], {CONFIG: "time-slicing-5-renamed", PRESENT: "true"}
    for each in nodes.values():
        each["metadata"]["labels"] |= labels
        each["metadata"]["annotations"] = {OURS: '["nvidia.com/device-plugin.config","nvidia.com/gpu.present"]'}
        each["status"]["allocatable"] = {"nvidia.com/gpu.shared": "5", "nvidia.com/gpu": "0", "cpu": "64"}
    pods = [_pod(node=name) for name in names]
    cluster.write(
        nodes=nodes, objects={"daemonsets.apps,pods": [_set(), *pods]}, namespaces={DAEMON_SET[5:]: dict([ENFORCED])}
    )
    settings = {"kubernetes": cluster.settings(**kubernetes), "sharing": SHARED, **more}
    inventory = folder / "fleet.py"
    inventory.write_text(f"gpu_nodes = {[(name, settings) for name in names]!r}\n")
    return Fleet(inventory, cluster)


def differences(
    settings: Mapping[str, Any], plugin_is_there: bool = False, unreachable: Collection[str] = ()
) -> dict[str, list[str]]:
    """Return host or `the cluster` -> the codes of what differs; the DaemonSets went with the release."""
    with TemporaryDirectory() as folder:
        made = fleet(Path(folder), more=settings)
        if not plugin_is_there:
            made.cluster.write(objects={"daemonsets.apps,pods": []})
        return {
            report.title: [item.code for item in report.findings if item.is_negative]
            for report in made.inspect(unreachable)
        }


def of_both(found: tuple[dict[str, list[Finding]], NodeReport | None]) -> list[Finding]:
    """Return what fleet_cluster.findings says of gpu-1, then of the cluster."""
    nodes, cluster = found
    return [*nodes.get("gpu-1", ()), *(cluster.findings if cluster is not None else ())]
