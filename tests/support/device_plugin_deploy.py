"""Helpers and data for the tests of device plugin deploy."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm
from tests.support.simulated_cluster import SimulatedCluster

CONFIG, PRESENT = "nvidia.com/device-plugin.config", "nvidia.com/gpu.present"


DEPLOY = """
from types import SimpleNamespace

from pyinfra import host

import gpunode.deploys.component
import gpunode.deploys.device_plugin
from gpunode.operations.failure import WaitsForCluster, fail, node_operation

# Preflight has its own tests, and a @fake host is no GPU node.
gpunode.deploys.component.accepted = lambda: not host.data.get("x_refused")
gpunode.deploys.device_plugin.node = lambda: SimpleNamespace(pci=SimpleNamespace(gpus=()))


@node_operation
def own_work():
    if host.data.get("x_fails") and host.state.is_executing:
        yield fail("broken on purpose")
        return
    if host.data.get("x_waits"):
        raise WaitsForCluster("a drain waits for the cluster")
    host.noop("done")


own_work(name="The node's own work")
gpunode.deploys.device_plugin.device_plugin()
"""


class Run:
    """Hold what pyinfra left."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.said = done.returncode, done.stderr
        self.actual: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
        assert "Traceback" not in self.said and "internal exception" not in self.said, self.said

    @property
    def failed(self) -> list[str]:
        """Return the hosts that failed, by their names in the cluster."""
        return sorted(name.removeprefix("@fake/") for name in self.actual["results"]["failed_hosts"])

    @property
    def changes(self) -> list[str]:
        """Return what a dry run says would change."""
        return [row["name"] for row in self.actual["plan"] if row["hosts_with_change"]]


def run(folder: Path, hosts: Mapping[str, Mapping[str, Any]], *options: str) -> Run:
    """Run the deploy on hosts, name -> data."""
    (folder / "deploy.py").write_text(DEPLOY)
    listed = [(f"@fake/{name}", dict(data)) for name, data in hosts.items()]
    (folder / "inventory.py").write_text(f"hosts = {listed!r}\n")
    words = ["--json", *(options or ("-y",)), str(folder / "inventory.py"), str(folder / "deploy.py")]
    return Run(warm.run("pyinfra", *words, env={**os.environ, "NO_COLOR": "1"}))


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster of three nodes that nothing is in."""
    return SimulatedCluster.of(tmp_path, "gpu-1", "gpu-2", "gpu-3")


def data(cluster: SimulatedCluster, name: str, **settings: Any) -> dict[str, Any]:
    """Return the data of a node of the cluster."""
    return {"kubernetes": cluster.settings(node_name=name), **settings}
