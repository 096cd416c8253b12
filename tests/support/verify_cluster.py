"""Helpers and data for the tests of verify cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.facts.gpu import Mig as MigFact
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT
from gpunode.operations import vectors, verify_cluster
from gpunode.settings import Settings, settings_from
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host

DAEMON_SET = "nvdp-nvidia-device-plugin"


SHARED = {"strategy": "time-slicing", "replicas": 5, "rename": True}


def _gpu(index: int, *instances: str) -> MigGpu:
    mode = "Enabled" if instances else "Disabled"
    there = tuple(
        GpuInstance(number, 0, profile, 0, 1, (ComputeInstance(0, 0, profile, 0, 1),))
        for number, profile in enumerate(instances)
    )
    return MigGpu(index, f"GPU-{index}", f"0000:0{index}:00.0", "2330", "H100", mode, mode, there)


TWO = Mig("ok", None, (_gpu(0), _gpu(1)))


def _set(name: str = DAEMON_SET, release: str = "nvdp") -> dict[str, Any]:
    return {"kind": "DaemonSet", "metadata": {"name": name, "annotations": {"meta.helm.sh/release-name": release}}}


def _pod(name: str = DAEMON_SET, node: str = "gpu-1", ready: bool = True, **status: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "kind": "Pod",
        "metadata": {"name": f"{name}-x", "ownerReferences": [{"kind": "DaemonSet", "name": name}]},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [condition], **status},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster whose one node offers ten shared GPUs, as it should."""
    made = SimulatedCluster.of(tmp_path, "gpu-1")
    nodes = made.state()["nodes"]
    nodes["gpu-1"]["metadata"]["labels"] |= {CONFIG: "time-slicing-5-renamed", PRESENT: "true"}
    nodes["gpu-1"]["status"]["allocatable"] = {"nvidia.com/gpu.shared": "10", "nvidia.com/gpu": "0", "cpu": "64"}
    made.write(
        nodes=nodes, objects={"daemonsets.apps,pods": [_set(), _set(f"{DAEMON_SET}-mps-control-daemon"), _pod()]}
    )
    return made


def _settings(cluster: SimulatedCluster, **more: Any) -> Settings:
    kubernetes = {**cluster.settings(), **more.pop("kubernetes", {})}
    return settings_from({"kubernetes": kubernetes, "sharing": SHARED, **more})


def _bad(findings: tuple[Finding, ...] | list[Finding]) -> list[tuple[str, str | None, str | None]]:
    return [(each.what, each.actual, each.desired) for each in findings if each.finding_class is not FindingClass.OK]


SLICED = Mig("ok", None, (_gpu(0, "1g.10gb", "1g.10gb"), _gpu(1)))


@pytest.fixture
def node(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return the host that operations see, on which two GPUs are, and let no time pass."""
    host.readings[MigFact] = TWO
    clock = iter(range(0, 100_000, 5))
    for module in (verify_cluster, vectors):
        monkeypatch.setattr(module, "monotonic", lambda: float(next(clock)))
        monkeypatch.setattr(module, "sleep", lambda _: None)
    yield host


def _verified(node: Host, settings: Settings) -> str:
    """Return why the operation refuses, or why there is nothing to do."""
    shared = settings.device_plugin.method == "gpushare"
    for command in verify_cluster.verified._inner(settings=settings, gpus=(), with_gpushare=shared):
        assert command.function(node.state, node) is False
    return "\n".join(node.refusals or node.noops)
