"""One release that restarts the plugin's MPS daemons of two nodes with clients: node by node.

API server, scheduler, controllers, helm, kubectl, evictions and the MPS control daemon (of Debian's package) are real.
SIMULATED: GPUs, kubelets, the device plugin that starts the daemon, and its clients, which are pods that ask for a
share.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cluster import kubectl as lab_kubectl
from gpunode.lab.kubernetes_programs import programs
from gpunode.lab.state import lab_folder
from tests.molecule.cluster.releases import CHART, by
from tests.molecule.cluster.sharing_life import ALONE, NAMESPACE
from tests.molecule.conftest import LAB, Run, command, converge, inventory_with, third_tier
from tests.molecule.mps.mps_nodes import UNPACK

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life]
NODES = ("gpu-1", "gpu-2")
TEAM = "mps-team"
# Another template for every pod of the release, and nothing that a stand-in looks at.
CHANGED: dict[str, Any] = {"values": {"podAnnotations": {"changed-by": "the test"}}}
# An image that no node can pull: the first node's pods do not come back.
BROKEN: dict[str, Any] = {"image_tag": "does-not-exist"}
ASK = "echo get_default_active_thread_percentage | CUDA_MPS_PIPE_DIRECTORY=/run/nvidia/mps/nvidia.com/gpu/pipe "
_PATIENCE_S = 60


class Shared:
    """Run the project's commands for two nodes that share their GPUs by MPS."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig, self.folder = kubeconfig, folder

    def inventory(self, replicas: int, timeout: int = 60, **plugin: Any) -> str:
        data: dict[str, object] = {
            "kubernetes": by(self.kubeconfig, programs(4), timeout, drain={"timeout": 30, "force": True}),
            "device_plugin": {"chart": str(CHART), **plugin},
            "sharing": {"strategy": "mps", "replicas": replicas},
            # Whichever the tests before left there.
            "driver": {"source": "present"},
            "mig": {"config": "all-disabled"},
            "disruption": {"allow": "reset"},
        }
        return inventory_with(self.folder, dict.fromkeys(NODES, data))

    def alone(self, replicas: int, timeout: int = 60, **plugin: Any) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(replicas, timeout, **plugin), ALONE)

    def asked(self, *words: str) -> dict[str, Any]:
        return lab_kubectl.asked(self.kubeconfig, *words)

    def told(self, *words: str, **sends: Any) -> str:
        return lab_kubectl.told(self.kubeconfig, *words, **sends)

    def pods(self) -> dict[str, set[str]]:
        """Return node -> UIDs of the release's pods on it."""
        items = self.asked("get", "pods", "--namespace", NAMESPACE)["items"]
        return {
            name: {pod["metadata"]["uid"] for pod in items if pod["spec"].get("nodeName") == name} for name in NODES
        }

    def cordoned(self) -> set[str]:
        return {name for name in NODES if self.asked("get", "node", name)["spec"].get("unschedulable")}

    def clients_run(self) -> None:
        """Wait until each node has its client: one that was evicted comes again when its node takes pods."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            items = self.asked("get", "pods", "--namespace", TEAM)["items"]
            if sorted(pod["spec"].get("nodeName", "") for pod in items if pod["status"]["phase"] == "Running") == [
                *NODES
            ]:
                return
            time.sleep(0.5)
        pytest.fail(f"the clients do not run: {[pod['status'] for pod in items]}")


def ended(since: int) -> list[tuple[str, str]]:
    """Return (node, what) that a kubelet, which is SIMULATED, ended behind a place of its log: client or daemon."""
    text = _log()[since:]
    rows = re.findall(r"kubelet of (\S+): pod (\S+) has ended", text)
    kinds = (("client", TEAM), ("daemon", "mps-control-daemon"))
    return [(node, kind) for node, pod in rows for kind, part in kinds if part in pod]


def _log() -> str:
    return (lab_folder(LAB) / "cluster" / "stand-in.log").read_text()


def percentages() -> set[str]:
    """Return what the daemons of both nodes answer."""
    nodes = {node.name: node for node in lab_nodes.nodes(LAB)}
    asked = [lab_nodes.run(nodes[name], f"{ASK} nvidia-cuda-mps-control") for name in NODES]
    return {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr for done in asked}


def client(node: str) -> dict[str, Any]:
    labels = {"app": f"client-{node}"}
    limits = {"nvidia.com/gpu": "1"}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "main", "image": "fixture.invalid/train:1", "resources": {"limits": limits}}],
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"client-{node}", "namespace": TEAM},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }  # fmt: skip


@pytest.fixture
def shared(kubeconfig: Path, tmp_path: Path) -> Shared:
    return Shared(kubeconfig, tmp_path)


def test_two_nodes_share_by_mps_and_their_daemons_say_so(shared: Shared) -> None:
    for each in lab_nodes.nodes(LAB):
        done = lab_nodes.run(each, UNPACK)
        assert done.returncode == 0, done.stdout + done.stderr
    # A person's, of test_mig_label.py.
    shared.told("label", "node", "gpu-2", "nvidia.com/mig.config-")
    # Of test_3_drain.py: pods whose budget allows no disruption.
    shared.told("delete", "namespace", "shop", "--ignore-not-found")
    run = converge(inventory=shared.inventory(4))
    assert run.code == 0, run.printed[-4000:]
    assert percentages() == {"25.0"}
    sets = shared.asked("get", "daemonsets", "--namespace", NAMESPACE)["items"]
    assert {found["spec"]["updateStrategy"]["type"] for found in sets} == {"OnDelete"}
    shared.told("delete", "namespace", TEAM, "--ignore-not-found")
    shared.told("create", "namespace", TEAM)
    for node in NODES:
        shared.told("create", "--filename", "-", sends=client(node))
    shared.clients_run()


def test_one_release_comes_to_both_node_by_node_each_client_evicted_before_its_daemon_ends(shared: Shared) -> None:
    before, since = shared.pods(), len(_log())
    run = shared.alone(4, **CHANGED)
    assert run.code == 0, run.printed[-4000:]
    after = shared.pods()
    assert all(after[name] and not after[name] & before[name] for name in NODES)
    order = ended(since)
    # All of one node, and then all of the other; nobody's client is on a node when its daemon ends.
    assert [what for _, what in order] == ["client", "daemon"] * 2, order
    assert order[0][0] == order[1][0] != order[2][0] == order[3][0]
    assert shared.cordoned() == set() and percentages() == {"25.0"}
    shared.clients_run()


def test_the_second_run_of_it_changes_nothing(shared: Shared) -> None:
    before = shared.pods()
    run = shared.alone(4, **CHANGED)
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert shared.pods() == before


def test_a_node_that_fails_leaves_the_other_untouched_and_the_next_run_goes_on_there(shared: Shared) -> None:
    before = shared.pods()
    run = shared.alone(4, 10, **CHANGED, **BROKEN)
    assert run.code != 0 and "not back on" in run.printed, run.printed[-3000:]
    (broken,) = shared.cordoned()
    (other,) = {*NODES} - {broken}
    after = shared.pods()
    assert after[other] == before[other] and not after[broken] & before[broken]
    run = shared.alone(4, **CHANGED)
    assert run.code == 0, run.printed[-4000:]
    assert shared.cordoned() == set() and percentages() == {"25.0"}
    # The template is the former one again: the other node had nothing to begin anew for.
    assert shared.pods()[other] == before[other]
    shared.clients_run()


def test_what_it_takes_goes_away_with_it(shared: Shared) -> None:
    shared.told("delete", "namespace", TEAM, "--wait=false")
    data: dict[str, object] = {
        "kubernetes": by(shared.kubeconfig, programs(4), 60),
        "device_plugin": {"chart": str(CHART)},
        "driver": {"source": "present"},
    }
    run = command("pyinfra", "-y", "--json", inventory_with(shared.folder, dict.fromkeys(NODES, data)), ALONE)
    assert run.code == 0, run.printed[-3000:]
    kinds = {each["spec"]["updateStrategy"]["type"] for each in shared.asked(
        "get", "daemonsets", "--namespace", NAMESPACE)["items"]}  # fmt: skip
    assert kinds == {"RollingUpdate"}
