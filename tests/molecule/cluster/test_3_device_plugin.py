"""The plugin's labels, the verdict on the cluster and drift, on the cluster that test_2_sharing.py leaves behind.

API server, helm and kubectl are real; GPUs, kubelets and the device plugin are SIMULATED.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import CLUSTER
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import CHART
from tests.molecule.cluster.sharing_life import ALONE, NAMESPACE, NODES, OFFERED, Life
from tests.molecule.conftest import LAB, Run, command, inventory_with

pytestmark = [pytest.mark.real, pytest.mark.simulated, pytest.mark.life("test_2_sharing.py")]

CONFIG, PRESENT = "nvidia.com/device-plugin.config", "nvidia.com/gpu.present"
LOG = "tail -n 30 /var/log/gpunode-lab.log"
VERDICT = "deploys/verify_cluster.py"
VECTOR_ADD: dict[str, Any] = {"verify": {"vector_add": "registry.invalid/samples:vectoradd"}}


@pytest.fixture
def life(kubeconfig: Path, tmp_path: Path) -> Life:
    """Return the life of the cluster so far, which begins here where this file runs alone."""
    found = Life(kubeconfig, tmp_path)
    assert found.offered("gpu-1") == OFFERED["gpu-1"], "run test_2_sharing.py first"
    return found


def _labels(life: Life, name: str) -> dict[str, str]:
    found = life.node(name)["metadata"]["labels"]
    return {label: value for label, value in found.items() if label.startswith("nvidia.com/")}


def _wrong(run: Run) -> set[tuple[str, str]]:
    """Return node and what drift says is not as desired."""
    return {(name, each["what"]) for name, every in run.findings.items() for each in every if each["class"] != "ok"}


def _inventory(life: Life, timeout: int = 120, everyone: dict[str, Any] | None = None, **gpu_2: Any) -> str:
    """Return the inventory of the life so far, where both nodes, or one, may have other settings."""
    found = programs(3)
    kubernetes = {
        "enabled": True, "kubeconfig": str(life.kubeconfig), "helm": str(found / "helm"),
        "kubectl": str(found / "kubectl"), "timeout": timeout,
    }  # fmt: skip
    both: dict[str, object] = {"kubernetes": kubernetes, "device_plugin": {"chart": str(CHART)}, **(everyone or {})}
    return inventory_with(
        life.folder, {"gpu-1": {**both, **NODES["gpu-1"]}, "gpu-2": {**both, **NODES["gpu-2"], **gpu_2}}
    )


def _run(inventory: str, deploy: str, *options: str) -> Run:
    return command("pyinfra", "-y", "--json", *options, inventory, deploy)


def _drift(inventory: str) -> Run:
    return command("gpunode", "drift", "--json", inventory)


def test_drift_finds_nodes_and_cluster_as_desired(life: Life) -> None:
    run = _drift(_inventory(life))
    assert (run.code, _wrong(run)) == (0, set()), run.printed[-2000:]
    what = {each["what"] for name in ("gpu-1", CLUSTER) for each in run.findings[name]}
    assert {"allocatable nvidia.com/gpu.shared", f"label {CONFIG}", f"helm release {NAMESPACE}/nvdp"} <= what


def test_vectors_are_added_on_each_node_and_no_pod_stays(life: Life) -> None:
    run = _run(_inventory(life, **VECTOR_ADD), VERDICT)
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-2000:]
    assert "gpunode-vector-add" not in life.release().kubectl("get", "pods", "--namespace", NAMESPACE)


def test_three_pods_at_once_share_gpus_and_the_run_says_which_of_them_had_the_same_one(life: Life) -> None:
    """SIMULATED: the pods' processes and what containerd keeps of them, on the node; nvidia-smi's list of processes."""
    three = {"verify": {**VECTOR_ADD["verify"], "vector_add_pods": 3}}
    run = _run(_inventory(life, everyone=three), VERDICT, "-v")
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-2000:]
    shared, sliced = (re.search(f"taken: {re.escape(name)} 0 of [^\n]*", run.printed) for name in (
        "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
    ))  # fmt: skip
    assert shared is not None and sliced is not None, run.printed[-3000:]
    assert "0 of 10, and 3 pods" in shared[0]
    assert re.search(r"2 on GPU-\S+ \(2 of them", shared[0]), shared[0]
    assert "1 on GPU-" in shared[0]
    assert sliced[0].count("1 on MIG-") == 3 and "no two" in sliced[0]
    assert "gpunode-vector-add" not in life.release().kubectl("get", "pods", "--namespace", NAMESPACE)


def test_more_pods_at_once_than_a_node_has_parts_of_gpus_are_refused_before_anything_is_touched(life: Life) -> None:
    before = life.state()
    many = {"verify": {**VECTOR_ADD["verify"], "vector_add_pods": 11}}
    run = _run(_inventory(life, everyone=many), "deploys/gpu_node.py")
    # Where every host is refused pyinfra ends without a document.
    assert run.code == 1 and "] Success" not in run.printed, run.printed[-2000:]
    assert "nvidia.com/gpu.shared: 10" in run.printed
    assert "set verify.vector_add_pods = 10 or less" in run.printed and life.state() == before


def test_drift_tells_what_is_taken_and_a_container_sees_the_mig_devices(life: Life) -> None:
    """A container by ctr, with SIMULATED nvidia-smi, runtime and GPUs, lists what the node's nvidia-smi lists."""
    run = _drift(_inventory(life))
    taken = {each["what"]: each["actual"] for each in run.findings["gpu-2"] if each["what"].startswith("taken of")}
    assert taken["taken of nvidia.com/mig-1g.10gb"] == "0 of 4" and run.code == 0
    smoke = _run(_inventory(life), "deploys/smoke.py", "-v", "--limit", "gpu-2")
    # The log of the simulated runtime tells whether it was asked at all.
    assert smoke.code == 0, smoke.printed[-2000:] + lab_nodes.run(lab_nodes.node(LAB, "gpu-2"), LOG).stdout
    assert "nvidia-smi lists 2 GPUs, MIG " in smoke.printed, smoke.printed[-2000:]


def test_a_label_changed_by_hand_fails_the_verdict_with_the_plugins_log_and_is_healed(life: Life) -> None:
    life.release().kubectl("label", "node", "gpu-2", f"{CONFIG}=no-such-entry", "--overwrite")
    life.wait_for({"gpu-2": {}})
    run = _drift(_inventory(life))
    assert run.code == 2
    assert {("gpu-2", f"label {CONFIG}"), ("gpu-2", "allocatable nvidia.com/mig-1g.10gb")} <= _wrong(run)
    run = _run(_inventory(life, timeout=10), VERDICT)
    assert run.code == 1 and run.payload["results"]["failed_hosts"] == ["gpu-2"]
    assert f"label {CONFIG} is no-such-entry, desired mig-mixed" in run.printed and " said: " in run.printed
    assert _run(_inventory(life), ALONE).operations("success") == {"Label the node in the cluster": ["gpu-2"]}
    life.wait_for(OFFERED)


def test_hosts_that_limit_leaves_out_keep_their_configuration_and_labels(life: Life) -> None:
    before = life.state()
    run = _run(_inventory(life), ALONE, "--limit", "gpu-2")
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-2000:]
    assert life.state() == before


def test_a_node_that_is_not_the_plugins_any_more_loses_its_labels_and_gets_them_again(life: Life) -> None:
    run = _run(_inventory(life, device_plugin={"chart": str(CHART), "method": "none"}), ALONE)
    assert run.code == 0, run.printed[-2000:]
    assert _labels(life, "gpu-2") == {} and PRESENT in _labels(life, "gpu-1")
    run = _run(_inventory(life), ALONE)
    assert run.code == 0, run.printed[-2000:]
    assert _labels(life, "gpu-2")[CONFIG] == "mig-mixed"
    life.wait_for(OFFERED)


def test_a_cluster_that_does_not_answer_is_an_error_of_run_and_drift(life: Life, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    # On port 1 nobody listens.
    nowhere.write_text(re.sub(r"(server: \S+):\d+", r"\g<1>:1", life.kubeconfig.read_text()))
    life = Life(nowhere, tmp_path)
    run = _run(_inventory(life), ALONE)
    assert run.code == 1 and "look at kubernetes.kubeconfig" in run.printed and "Traceback" not in run.printed
    run = _drift(_inventory(life))
    assert (run.code, _wrong(run)) == (1, {(CLUSTER, "cluster")})
