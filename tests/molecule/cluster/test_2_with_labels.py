"""GPU feature discovery's labels, GPUs that a kubelet does not count, and a ConfigMap of one's own.

On the cluster that test_2_sharing.py leaves behind. API server, helm and kubectl are real. SIMULATED: GPUs, kubelets,
the device plugin, GPU feature discovery and node feature discovery.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.cluster.stand_in import FORGOTTEN
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import CHART, NAME, by
from tests.molecule.cluster.sharing_life import ALONE, NAMESPACE, NODES, OFFERED, Life
from tests.molecule.conftest import Run, command, inventory_with, third_tier

pytestmark = [pytest.mark.real, pytest.mark.simulated, pytest.mark.life("test_2_sharing.py")]

PLUGIN, DISCOVERY = f"{NAME}-nvidia-device-plugin", f"{NAME}-nvidia-device-plugin-gpu-feature-discovery"
PRODUCT, COUNT = "nvidia.com/gpu.product", "nvidia.com/mig-1g.10gb.count"
REGISTER = "Have the kubelet count what the plugin offers"
DISCOVERED: dict[str, Any] = {"gfd": True, "nfd": "present"}
_PATIENCE_S = 60


@pytest.fixture
def life(kubeconfig: Path, tmp_path: Path) -> Life:
    return Life(kubeconfig, tmp_path)


def _inventory(life: Life, plugin: dict[str, Any], **sharing: Any) -> str:
    """Return the inventory of test_2_sharing.py with more settings of the plugin, and `sharing` of all nodes."""
    both: dict[str, object] = {
        "kubernetes": by(life.kubeconfig, programs(4), 120),
        "device_plugin": {"chart": str(CHART), **plugin},
    }
    own = {name: {**each, **({"sharing": sharing} if sharing else {})} for name, each in NODES.items()}
    return inventory_with(life.folder, {name: {**both, **each} for name, each in own.items()})


def _run(life: Life, plugin: dict[str, Any], *options: str, **sharing: Any) -> Run:
    return command("pyinfra", "-y", "--json", *options, _inventory(life, plugin, **sharing), ALONE)


def _wrong(life: Life, plugin: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return (node, what) -> the finding, of all that drift says is not as desired."""
    found = command("gpunode", "drift", "--json", _inventory(life, plugin)).findings
    return {(name, each["what"]): each for name, every in found.items() for each in every if each["class"] != "ok"}


def _labels(life: Life, name: str) -> dict[str, str]:
    return dict(life.node(name)["metadata"]["labels"])


def _wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not what() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert what()


def _pod_of(life: Life, daemon_set: str, node: str) -> dict[str, Any]:
    words = ("get", "pods", "--namespace", NAMESPACE, "--field-selector", f"spec.nodeName={node}", "--output", "json")
    every = json.loads(life.release().kubectl(*words))["items"]
    (found,) = [each for each in every if each["metadata"]["ownerReferences"][0]["name"] == daemon_set]
    return dict(found["metadata"])


def test_discovery_comes_and_labels_each_node_with_its_own_facts(life: Life) -> None:
    run = _run(life, DISCOVERED)
    assert run.code == 0, run.printed[-3000:]
    _wait_for(lambda: all("nvidia.com/gpu.count" in _labels(life, name) for name in NODES))
    assert _labels(life, "gpu-1")["nvidia.com/gpu.replicas"] == "5" and _labels(life, "gpu-2")[COUNT] == "4"
    assert _wrong(life, DISCOVERED) == {}
    again = _run(life, DISCOVERED)
    assert (again.code, again.operations("success")) == (0, {}), again.printed[-2000:]


def test_labels_that_are_not_what_the_node_says_are_found_and_the_remedy_mends_them(life: Life) -> None:
    kubectl = life.release().kubectl
    kubectl("label", "node", "gpu-1", f"{PRODUCT}=NVIDIA-A100-SXM4-40GB", "--overwrite")
    kubectl("label", "node", "gpu-2", f"{COUNT}=7", "--overwrite")
    found = _wrong(life, DISCOVERED)
    assert set(found) == {("gpu-1", f"feature label {PRODUCT}"), ("gpu-2", f"feature label {COUNT}")}
    assert all("delete GPU feature discovery's pod" in each["remedy"] for each in found.values())
    counted = found["gpu-2", f"feature label {COUNT}"]
    assert (counted["actual"], counted["desired"]) == ("7", "4")
    for name in NODES:
        kubectl("delete", "pod", _pod_of(life, DISCOVERY, name)["name"], "--namespace", NAMESPACE)
    _wait_for(lambda: _labels(life, "gpu-2").get(COUNT) == "4" and "H100" in _labels(life, "gpu-1").get(PRODUCT, ""))
    assert _wrong(life, DISCOVERED) == {}


@third_tier
def test_gpus_that_the_kubelet_does_not_count_are_found_and_the_plugin_begins_anew_once(life: Life) -> None:
    before = {name: _pod_of(life, PLUGIN, name)["uid"] for name in NODES}
    life.release().kubectl("annotate", "node", "gpu-1", f"{FORGOTTEN}={before['gpu-1']}", "--overwrite")
    life.wait_for({"gpu-1": {}})
    item = _wrong(life, DISCOVERED)["gpu-1", "allocatable nvidia.com/gpu.shared"]
    assert (item["actual"], item["desired"]) == ("0", "10") and "did not register" in item["cause"]
    dry = _run(life, DISCOVERED, "--dry")
    assert dry.code == 0 and _pod_of(life, PLUGIN, "gpu-1")["uid"] == before["gpu-1"]
    run = _run(life, DISCOVERED)
    assert (run.code, run.operations("success")) == (0, {REGISTER: ["gpu-1"]}), run.printed[-3000:]
    assert _pod_of(life, PLUGIN, "gpu-1")["uid"] != before["gpu-1"]
    assert _pod_of(life, PLUGIN, "gpu-2")["uid"] == before["gpu-2"]
    life.wait_for(OFFERED)
    life.release().kubectl("annotate", "node", "gpu-1", f"{FORGOTTEN}-")
    assert _wrong(life, DISCOVERED) == {}


def test_an_entry_that_a_config_map_of_one_s_own_lacks_is_refused_and_nothing_is_changed(life: Life) -> None:
    kubectl, before = life.release().kubectl, life.release().history()
    own = {"config_name": "mine"}
    run = _run(life, own, config="medium")
    assert run.code == 1 and f"ConfigMap {NAMESPACE}/mine" in run.printed, run.printed[-2000:]
    words = ("--from-literal=small=version: v1", "--from-literal=large=version: v1")
    kubectl("create", "configmap", "mine", "--namespace", NAMESPACE, *words)
    run = _run(life, own, config="medium")
    assert run.code == 1 and "sharing.config 'medium'" in run.printed and "there are: large, small" in run.printed
    assert life.release().history() == before and "Traceback" not in run.printed
    kubectl("delete", "configmap", "mine", "--namespace", NAMESPACE)


def test_discovery_goes_again_and_its_labels_with_it(life: Life) -> None:
    run = _run(life, {})
    assert run.code == 0, run.printed[-3000:]
    _wait_for(lambda: not any(PRODUCT in _labels(life, name) for name in NODES))
    life.wait_for(OFFERED)
    assert _wrong(life, {}) == {}
