"""A node's MIG layout by its label in the cluster, changed under the device plugin that holds the GPUs.

API server, controller manager, kubectl, helm and evictions are real. SIMULATED: GPUs, kubelets, and the plugin, which
holds the GPUs by a process on the node.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from gpunode.kubernetes.nodes.labels import MIG_CONFIG, MIG_STATE, OURS, PRESENT
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import CHART, by
from tests.molecule.cluster.sharing_life import NAMESPACE, Life
from tests.molecule.conftest import LAB, Run, command, converge, inventory_with, third_tier

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life]

NODE = "gpu-2"
# Of two H100.
BALANCED = {"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-2g.20gb": "2", "nvidia.com/mig-3g.40gb": "2"}
SMALL = {"nvidia.com/mig-1g.10gb": "14"}
HOLDER = "gpunode-lab-device-plugin-0"
TAKEN_OFF = f"takes off node {NODE} until the run ends: {NAMESPACE}/nvdp-nvidia-device-plugin"


class Labelled(Life):
    """Leave the node's MIG configuration to its label, and set that as a person does."""

    def inventory(self, major: int = 3) -> str:
        both: dict[str, object] = {
            "kubernetes": by(self.kubeconfig, programs(major), 120, drain={"timeout": 60, "force": True}),
            "device_plugin": {"chart": str(CHART)},
            # Whichever the tests before left there.
            "driver": {"source": "present"}, "cuda": {"enabled": False},
            "disruption": {"allow": "reset"},
        }  # fmt: skip
        mig: dict[str, object] = {"mig": {"config_from_label": True}, "sharing": {"mig_strategy": "mixed"}}
        return inventory_with(self.folder, {"gpu-1": both, NODE: {**both, **mig}})

    def says(self, configuration: str) -> None:
        self.release().kubectl("label", "node", NODE, f"{MIG_CONFIG}={configuration}", "--overwrite")

    def run(self) -> Run:
        return converge("--limit", NODE, inventory=self.inventory())

    def drift(self) -> dict[str, dict[str, str]]:
        """Return what -> finding, of what drift says is not as desired of the node."""
        found = command("gpunode", "drift", "--json", self.inventory()).findings[NODE]
        return {each["what"]: each for each in found if each["class"] != "ok"}

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.node(NODE)["metadata"]["labels"]
        return found

    @property
    def plugin(self) -> str:
        """Return the uid of the plugin's pod on the node, once there is one that runs there."""
        words = ("get", "pods", "--field-selector", f"spec.nodeName={NODE}", "--output", "json")
        for _ in range(120):
            items = json.loads(self.release().kubectl(*words))["items"]
            uids = [item["metadata"]["uid"] for item in items if item["status"].get("phase") == "Running"]
            if len(uids) == 1:
                return str(uids[0])
            time.sleep(0.5)
        raise AssertionError(f"{len(uids)} pods of the plugin run on {NODE}")


@pytest.fixture
def life(kubeconfig: Path, tmp_path: Path) -> Labelled:
    return Labelled(kubeconfig, tmp_path)


def _on_the_node(words: str) -> str:
    return lab_nodes.run(lab_nodes.node(LAB, NODE), words).stdout.strip()


def _held() -> None:
    """Wait until the plugin holds the GPUs: it lets them go and takes them again where its configuration changes."""
    for _ in range(50):
        if _on_the_node(f"systemctl is-active {HOLDER}") == "active":
            return
        time.sleep(0.2)
    raise AssertionError("the plugin does not hold the GPUs")


def _devices() -> list[str]:
    return sorted(line for line in _on_the_node("nvidia-smi -L").splitlines() if "MIG" in line)


def test_a_run_brings_the_layout_of_the_node_s_label_under_the_plugin_that_holds_its_gpus(life: Labelled) -> None:
    life.says("all-disabled")
    run = life.run()
    assert run.code == 0, run.printed[-3000:]
    life.wait_for({NODE: {"nvidia.com/gpu": "2"}})
    before = life.plugin
    _held()
    life.says("all-balanced")
    run = life.run()
    assert run.code == 0 and TAKEN_OFF in run.printed, run.printed[-3000:]
    life.wait_for({NODE: BALANCED})
    assert life.plugin != before and life.labels[PRESENT] == "true"
    # It is people's, and stays so.
    assert (life.labels[MIG_CONFIG], life.labels[MIG_STATE]) == ("all-balanced", "success")
    assert MIG_CONFIG not in json.loads(life.node(NODE)["metadata"]["annotations"][OURS])
    assert "unschedulable" not in life.node(NODE)["spec"]


def test_the_second_run_by_the_label_changes_nothing(life: Labelled) -> None:
    before, pod = life.node(NODE)["metadata"]["resourceVersion"], life.plugin
    run = life.run()
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert (life.node(NODE)["metadata"]["resourceVersion"], life.plugin) == (before, pod)


def test_drift_tells_that_the_label_moved_and_the_next_run_follows_it(life: Labelled) -> None:
    life.says("all-1g.10gb")
    assert {"MIG instances of GPU 0", "MIG instances of GPU 1"} <= life.drift().keys()
    run = life.run()
    assert run.code == 0 and TAKEN_OFF in run.printed, run.printed[-3000:]
    life.wait_for({NODE: SMALL})
    assert (life.labels[MIG_CONFIG], life.labels[MIG_STATE]) == ("all-1g.10gb", "success")
    assert life.drift() == {}


def test_a_label_that_names_no_layout_is_refused_by_name_and_nothing_is_touched(life: Labelled) -> None:
    life.says("no-such-layout")
    before, pod = _devices(), life.plugin
    run = life.run()
    assert run.code == 1 and f"node {NODE} has the label {MIG_CONFIG}='no-such-layout'" in run.printed
    (finding,) = life.drift().values()
    assert (finding["component"], finding["class"]) == ("mig", "unsupported") and "no-such-layout" in finding["cause"]
    assert (_devices(), life.plugin) == (before, pod) and life.labels[MIG_CONFIG] == "no-such-layout"


def test_where_somebody_else_holds_a_gpu_the_plugin_comes_back_and_the_label_says_that_the_run_failed(
    life: Labelled,
) -> None:
    before = _devices()
    life.says("all-balanced")
    _on_the_node("systemd-run --quiet --unit=trainer gpunode-lab-hold 0 --name trainer; sleep 1")
    run = life.run()
    # The one host of the run: pyinfra ended it there.
    assert run.code == 1 and "(trainer)" in run.printed and "nvidia-device-plugin" not in _holders(run)
    assert (life.labels[PRESENT], life.labels[MIG_STATE]) == ("true", "failed")
    life.wait_for({NODE: SMALL})
    assert _devices() == before
    _on_the_node("systemctl stop trainer")
    run = life.run()
    assert run.code == 0, run.printed[-3000:]
    life.wait_for({NODE: BALANCED})
    assert life.labels[MIG_STATE] == "success" and "unschedulable" not in life.node(NODE)["spec"]


def _holders(run: Run) -> str:
    return "\n".join(line for line in run.printed.splitlines() if "in use by" in line)
