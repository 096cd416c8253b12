"""Helpers and data for the tests of mps restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.verdicts import Refusal
from gpunode.cli.plan import as_json
from gpunode.components.mig.state import Mig, MigGpu
from gpunode.components.mps.plugin import PluginDaemon, PluginMps
from gpunode.fleet import cluster as fleet_cluster
from gpunode.fleet import plan_cluster
from gpunode.fleet.cluster import cluster_nodes
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, OURS, PRESENT
from gpunode.node.plan import Plan, PlannedStep
from gpunode.settings import Settings, settings_from
from tests.support.mps_clients import gpu_pod
from tests.support.simulated_cluster import SimulatedCluster, node
from tests.support.verify import GOOD
from tests.support.verify_cluster import _pod, _set

# What is found of the cluster itself, among what is found of the nodes.
CLUSTER = "@cluster"
RELEASE = "helm release nvidia-device-plugin/nvdp"


NODES, SET = ("gpu-1", "gpu-2"), "nvdp-nvidia-device-plugin"


WHOLE = MigGpu(0, "GPU-0", "0000:01:00.0", "2330", "H100", "Disabled", "Disabled", ())


SHARED = replace(GOOD.gpus.gpus[0], compute_mode="Exclusive_Process")


READING = replace(
    GOOD,
    mig=Mig("ok", None, (WHOLE,)),
    gpus=replace(GOOD.gpus, gpus=(SHARED,)),
    plugin_mps=PluginMps("/usr/bin/nvidia-cuda-mps-control", (PluginDaemon("nvidia.com/gpu", True, "25.0"),)),
)


@dataclass(frozen=True)
class Told:
    """Hold what the plan and drift say of two nodes, by host, and the plan of their cluster."""

    cluster: Plan
    plans: Mapping[str, Plan]
    drift: Mapping[str, dict[str, Finding]]


@dataclass(frozen=True)
class Planned:
    """Hold gpunode's plan of the first node and of the cluster, the nodes by verdict, and the exit code."""

    plan: Plan
    cluster: Plan
    counts: dict[str, int]
    exit_code: int


def planned(
    failures: dict[str, str], replicas: tuple[int, ...] = (8, 8), steps: int = 0, refused: bool = False
) -> Planned:
    """Return the plan of two nodes of a cluster.

    failures: command -> what it prints as it fails; replicas: of the GPUs of each node, which has 4
    steps: what there is to do on the first node itself; refused: whether it is refused
    """
    with TemporaryDirectory() as folder:
        made = _cluster(Path(folder))
        made.write(failures=failures)
        hosts = {name: _settings(made, count) for name, count in zip(NODES, replicas, strict=True)}
        own = PlannedStep("containerd", "configure its runtimes", "runc", "nvidia", Disruption.restart)
        no = (Refusal("driver", "it has none", "a table", "replace it", "preflight.driver-none"),) if refused else ()
        found = told(hosts, own={"gpu-1": Plan(no, (), (own,) * steps)})
    document = as_json({**found.plans, CLUSTER: found.cluster})
    return Planned(found.plans["gpu-1"], found.cluster, document["counts"]["hosts"], document["exit_code"])


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster in which two nodes share their GPUs by MPS, in 4 parts; gpu-1 has a client."""
    return _cluster(tmp_path)


def _cluster(folder: Path) -> SimulatedCluster:
    made = SimulatedCluster.of(folder, *NODES)
    nodes = {name: node(name, **{"nvidia.com/gpu": "4"}) for name in NODES}
    labels = {CONFIG: "mps-4", PRESENT: "true", MPS_CAPABLE: "true"}
    for each in nodes.values():
        each["metadata"]["labels"] |= labels
        each["metadata"]["annotations"] = {OURS: json.dumps([CONFIG, PRESENT, MPS_CAPABLE], separators=(",", ":"))}
    made.write(
        with_daemon=True,
        nodes=nodes,
        objects={"daemonsets.apps,pods": [_set(), *(_pod(node=name) for name in NODES)], "daemonsets.apps": []},
    )
    installed(made, _settings(made, 4), _settings(made, 4))
    made.write(objects={**made.state()["objects"], "pods": [gpu_pod("training")]}, calls=[])
    return made


def _settings(cluster: SimulatedCluster, replicas: int, drain: bool = False, **more: Any) -> Settings:
    kubernetes = cluster.settings(drain={"enabled": drain})
    sharing = {"strategy": "mps", "replicas": replicas}
    plugin = {"values": {"updateStrategy": {"type": "RollingUpdate"}}}
    return settings_from({"kubernetes": kubernetes, "sharing": sharing, "device_plugin": plugin, **more})


def installed(cluster: SimulatedCluster, *settings: Settings) -> None:
    """Have the release made as a run makes it."""
    from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
    from gpunode.kubernetes.helm.session import Session
    from gpunode.kubernetes.run_on import here

    desired = desired_cluster(dict(zip(NODES, settings, strict=True)))
    assert desired is not None
    session = Session.begun(desired.kubernetes, desired.plugin, settings[0].proxy, here)
    session.run(session.commands.upgrade(desired.values, False))


def told(hosts: Mapping[str, Settings], only: tuple[str, ...] = NODES, own: Mapping[str, Plan] | None = None) -> Told:
    """Return what plan and drift report of some hosts of an inventory; own: host -> the plan without the cluster."""
    answers = [Answer(name, hosts[name], READING, None) for name in only]
    with patch.object(plan_cluster, "host_settings", lambda _: dict(hosts)):
        before: dict[str, Plan | Finding] = {name: (own or {}).get(name, Plan((), (), ())) for name in only}
        known = cluster_nodes(Path("none.py"), hosts.values())
        assert known is not None
        plans = plan_cluster.with_cluster(Path("none.py"), answers, before, known)
    found, cluster = fleet_cluster.findings(Path("none.py"), hosts, dict.fromkeys(only, READING))
    made = {name: each for name, each in plans.items() if isinstance(each, Plan)}
    of_cluster = made.pop(CLUSTER)
    assert cluster is not None
    every = {**found, CLUSTER: cluster.findings}
    return Told(of_cluster, made, {name: {item.what: item for item in each} for name, each in every.items()})
