"""The GPU Operator beside the device plugin's own chart, from its coming to its going, on a real API server.

Real: API server, kubectl, helm. The operator's chart is a fixture of the lab's; its program, kubelets, device plugin
and GPUs are SIMULATED.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import CHART, KeptRelease, by
from tests.molecule.conftest import CHECKOUT, LAB, Run, command, inventory_with, third_tier

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life]

OPERATOR = CHECKOUT / "lab" / "charts" / "gpu-operator"
KEPT = "Keep the release of the GPU Operator"
METHOD = "gpunode/way"


class Operated:
    """Run the project's commands with one method on all nodes."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.folder, self.release = folder, KeptRelease(kubeconfig, programs(3), "gpu-operator")
        self.names = [node.name for node in lab_nodes.nodes(LAB)]

    def inventory(self, method: str, **gpu_operator: Any) -> str:
        data: dict[str, object] = {
            "kubernetes": by(self.release.kubeconfig, programs(3), 60),
            # There is no node feature discovery in a lab: a test's fixture labels the nodes as it does.
            "device_plugin": {"method": method, "nfd": "present", "chart": str(CHART)},
            "gpu_operator": {"chart": str(OPERATOR), **gpu_operator},
            # Whichever the tests before left there.
            "driver": {"source": "present"},
        }  # fmt: skip
        return inventory_with(self.folder, {name: data for name in self.names})

    def run(self, method: str, **gpu_operator: Any) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(method, **gpu_operator), "deploys/device_plugin.py")

    def policy(self) -> dict[str, bool]:
        """Return which of its parts the operator is to bring; NVIDIA's chart has a ClusterPolicy for it."""
        data: dict[str, str] = self.release.live("configmap", "cluster-policy")["data"]
        return {name.removesuffix(".enabled"): text == "true" for name, text in data.items()}

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.release.live("node", name)["metadata"]["labels"]
        return found


@pytest.fixture
def operated(kubeconfig: Path, tmp_path: Path) -> Iterator[Operated]:
    found, label = Operated(kubeconfig, tmp_path), "feature.node.kubernetes.io/pci-0302_10de.present"
    found.release.kubectl("label", "nodes", "--all", f"{label}=true", "--overwrite")
    yield found
    found.release.kubectl("label", "nodes", "--all", f"{label}-")


def test_the_operator_comes_with_its_driver_toolkit_and_plugin_off_beside_the_plugin_s_own_chart(
    operated: Operated,
) -> None:
    run = operated.run("gpu-operator")
    assert run.code == 0, run.printed[-3000:]
    assert KEPT in run.operations("success")
    assert operated.policy() == {
        "driver": False, "toolkit": False, "devicePlugin": False, "gfd": False, "migManager": False,
        "nfd": False, "dcgmExporter": True,
    }  # fmt: skip
    listed = operated.release.kubectl("get", "daemonset", "--all-namespaces", "--output", "name")
    assert "nvdp-nvidia-device-plugin" in listed
    for name in operated.names:
        assert operated.labels(name)[METHOD] == "gpu-operator"


def test_the_second_run_of_the_operator_changes_nothing_and_drift_finds_nothing(operated: Operated) -> None:
    run = operated.run("gpu-operator")
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    drift = command("gpunode", "drift", operated.inventory("gpu-operator"), "--json")
    of_release = {each["what"]: each["class"] for every in drift.findings.values() for each in every}
    assert of_release["helm release gpu-operator/gpu-operator"] == "ok"


def test_a_plugin_switched_on_by_hand_is_found_by_drift_and_switched_off_again(operated: Operated) -> None:
    patch = json.dumps({"data": {"devicePlugin.enabled": "true"}})
    operated.release.kubectl("patch", "configmap", "cluster-policy", "--type", "merge", "--patch", patch)
    drift = command("gpunode", "drift", operated.inventory("gpu-operator"), "--json")
    (found,) = (
        each for every in drift.findings.values() for each in every
        if each["what"] == "helm release gpu-operator/gpu-operator"
    )  # fmt: skip
    assert found["class"] == "drift" and "changed by hand" in found["cause"] and "devicePlugin" in found["cause"]
    run = operated.run("gpu-operator")
    assert run.code == 0 and list(run.operations("success")) == [KEPT], run.printed[-3000:]
    assert operated.policy()["devicePlugin"] is False


def test_an_operator_of_somebody_else_s_is_refused_by_helm_before_anything_is_changed(operated: Operated) -> None:
    before = operated.release.helm("list", "--all-namespaces", "--output", "json").stdout
    run = operated.run("gpu-operator", release="second")
    assert run.code == 1 and "object of that name" in run.printed, run.printed[-3000:]
    assert operated.release.helm("list", "--all-namespaces", "--output", "json").stdout == before


def test_the_operator_goes_with_the_way_and_the_plugin_s_release_stays(operated: Operated) -> None:
    run = operated.run("helm")
    assert run.code == 0, run.printed[-3000:]
    assert "Take the release of the GPU Operator away" in run.operations("success")
    assert "gpu-operator" not in operated.release.helm("list", "--all", "--output", "json").stdout
    assert "nvdp-nvidia-device-plugin" in operated.release.kubectl(
        "get", "daemonset", "--all-namespaces", "--output", "name"
    )
    assert all(METHOD not in operated.labels(name) for name in operated.names)
    again = operated.run("helm")
    assert (again.code, again.operations("success")) == (0, {}), again.printed[-3000:]
