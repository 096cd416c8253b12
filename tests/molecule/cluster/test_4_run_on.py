"""helm and kubectl on a control-plane host, over SSH: nothing of the cluster is reached from this machine.

Real: SSH, API server, kubectl, helm. A lab node plays the control-plane host; it reaches the API server, which listens
on this machine's loopback, by a tunnel. SIMULATED: kubelets, device plugin, GPUs.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gpunode.kubernetes.nodes.component import COMPONENT
from gpunode.kubernetes.nodes.labels import PRESENT
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.access import ssh_command
from gpunode.lab.kubernetes_programs import programs
from gpunode.lab.podman import podman
from gpunode.lab.state import lab_folder
from tests.molecule.cluster.releases import CHART, NAME, KeptRelease
from tests.molecule.conftest import LAB, Run, command, inventory_with, third_tier

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life]

NAMESPACE = "nvidia-device-plugin"
CONTROL_PLANE = "gpu-2"
# Where this machine has nothing: who looked here would find neither program nor cluster.
THERE = "/opt/control-plane"


@pytest.fixture(scope="module", autouse=True)
def control_plane(kubeconfig: Path) -> Iterator[None]:
    """Give a lab node helm, kubectl, the chart, a kubeconfig and the API server's port."""
    node = lab_nodes.node(LAB, CONTROL_PLANE)
    assert lab_nodes.run(node, f"mkdir -p {THERE}").returncode == 0
    found = programs(3)
    for source in (found / "helm", found / "kubectl", CHART, kubeconfig):
        target = f"{THERE}/kubeconfig" if source == kubeconfig else f"{THERE}/{source.name}"
        podman("cp", str(source.resolve()), f"{node.container}:{target}")
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    port = urlsplit(server).port
    forward = ("-N", "-o", "ExitOnForwardFailure=yes", "-R", f"127.0.0.1:{port}:127.0.0.1:{port}")
    tunnel = subprocess.Popen([*ssh_command(lab_folder(LAB), node.address), *forward], stdin=subprocess.DEVNULL)
    try:
        asked = f"{THERE}/kubectl --kubeconfig {THERE}/kubeconfig get node {CONTROL_PLANE} --output name"
        deadline = time.monotonic() + 30
        while (said := lab_nodes.run(node, asked)).returncode and time.monotonic() < deadline:
            time.sleep(0.5)
        assert said.stdout.strip() == f"node/{CONTROL_PLANE}", said.stderr
        yield
    finally:
        tunnel.terminate()
        tunnel.wait()
        lab_nodes.run(node, f"rm -rf {THERE}")


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    """Return an inventory whose nodes have their cluster told by the control-plane host."""
    data: dict[str, Any] = {
        "kubernetes": {
            "enabled": True, "run_on": CONTROL_PLANE, "kubeconfig": f"{THERE}/kubeconfig", "helm": f"{THERE}/helm",
            "kubectl": f"{THERE}/kubectl", "timeout": 120,
        },
        "device_plugin": {"chart": f"{THERE}/{CHART.name}"},
        # Whichever the tests before left there.
        "driver": {"source": "present"},
    }  # fmt: skip
    return inventory_with(tmp_path, {node.name: data for node in lab_nodes.nodes(LAB)})


@pytest.fixture
def release(kubeconfig: Path) -> KeptRelease:
    return KeptRelease(kubeconfig, programs(3), NAMESPACE)


def _run(inventory: str, *words: str) -> Run:
    return command("pyinfra", "-y", "--json", *words, inventory, "deploys/device_plugin.py")


def test_the_release_comes_back_by_the_helm_of_the_control_plane_host(inventory: str, release: KeptRelease) -> None:
    release.helm("uninstall", NAME, "--ignore-not-found", "--wait")
    run = _run(inventory)
    assert run.code == 0, run.printed[-3000:]
    assert "Keep the release of the device plugin" in run.operations("success")
    assert release.live("daemonset", f"{NAME}-nvidia-device-plugin")["metadata"]["namespace"] == NAMESPACE


def test_the_second_run_over_ssh_changes_nothing_and_drift_agrees(inventory: str, release: KeptRelease) -> None:
    before = release.history()
    run = _run(inventory)
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert release.history() == before
    drift = command("gpunode", "drift", "--json", inventory)
    of_cluster = {each["what"]: each["class"] for items in drift.findings.values() for each in items
                  if each["component"] == COMPONENT}  # fmt: skip
    assert of_cluster[f"helm release {NAMESPACE}/{NAME}"] == "ok", drift.printed[-3000:]


def test_a_run_limited_to_another_node_reaches_the_control_plane_host_all_the_same(
    inventory: str, release: KeptRelease
) -> None:
    release.kubectl("label", "node", "gpu-1", f"{PRESENT}-")
    run = _run(inventory, "--limit", "gpu-1")
    assert (run.code, list(run.operations("success"))) == (0, ["Label the node in the cluster"]), run.printed[-3000:]
    assert release.live("node", "gpu-1")["metadata"]["labels"][PRESENT] == "true"


def test_a_control_plane_host_without_kubectl_is_told_by_its_name(inventory: str, release: KeptRelease) -> None:
    node = lab_nodes.node(LAB, CONTROL_PLANE)
    before = release.history()
    assert lab_nodes.run(node, f"mv {THERE}/kubectl {THERE}/away").returncode == 0
    run = _run(inventory)
    assert lab_nodes.run(node, f"mv {THERE}/away {THERE}/kubectl").returncode == 0
    assert run.code == 1 and "Traceback" not in run.printed, run.printed[-3000:]
    assert f"{THERE}/kubectl" in run.printed
    assert release.history() == before
