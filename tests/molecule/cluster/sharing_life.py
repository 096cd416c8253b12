"""Helpers and data for the tests of sharing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import CHART, NAME, KeptRelease, by
from tests.molecule.conftest import Run, command, inventory_with

NAMESPACE = "nvidia-device-plugin"


ALONE = "deploys/device_plugin.py"


NODES: dict[str, dict[str, object]] = {
    "gpu-1": {"sharing": {"strategy": "time-slicing", "replicas": 5, "rename": True}},
    "gpu-2": {"mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"}},
}


# Of two H100 each.
OFFERED = {
    "gpu-1": {"nvidia.com/gpu.shared": "10"},
    "gpu-2": {"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-2g.20gb": "2", "nvidia.com/mig-3g.40gb": "2"},
}


_PATIENCE_S = 60


class Life:
    """Run the project's commands against the lab's cluster, by one helm or the other."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig, self.folder = kubeconfig, folder

    def release(self, major: int = 3) -> KeptRelease:
        return KeptRelease(self.kubeconfig, programs(major), NAMESPACE)

    def inventory(self, major: int) -> str:
        both: dict[str, object] = {
            "kubernetes": by(self.kubeconfig, programs(major), 120),
            "device_plugin": {"chart": str(CHART)},
        }
        return inventory_with(self.folder, {name: {**both, **own} for name, own in NODES.items()})

    def alone(self, major: int) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(major), ALONE)

    def node(self, name: str) -> dict[str, Any]:
        return self.release().live("node", name)

    def offered(self, name: str) -> dict[str, str]:
        allocatable = self.node(name)["status"]["allocatable"]
        return {key: count for key, count in allocatable.items() if key.startswith("nvidia.com/") and count != "0"}

    def wait_for(self, wanted: dict[str, dict[str, str]]) -> None:
        """Wait until the nodes offer that: helm is content with a DaemonSet that is still to start on one of them."""
        deadline = time.monotonic() + _PATIENCE_S
        while (found := {name: self.offered(name) for name in wanted}) != wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        assert found == wanted

    def state(self) -> object:
        """Return what must stay as it is: revisions, and the nodes' versions of the API server's."""
        release = self.release()
        versions = {name: self.node(name)["metadata"]["resourceVersion"] for name in NODES}
        return release.history(), versions, release.live("daemonset", f"{NAME}-nvidia-device-plugin")["metadata"]
