"""Extended resources that are counted by hand, on the cluster that test_2_sharing.py leaves behind.

API server, scheduler, kubectl and the patch of the node's status are real. SIMULATED: the kubelet, which takes a
node's capacity over into what is allocatable, and forgets it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpunode.kubernetes.nodes.labels import RESOURCES
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import CHART, by
from tests.molecule.cluster.sharing_life import ALONE, NODES, OFFERED, Life
from tests.molecule.conftest import Run, command, inventory_with, third_tier

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life("test_2_sharing.py")]

DONGLE, LICENSE = "example.com/dongle", "example.com/license"
COUNT = "Count the node's extended resources in the cluster"
_PATIENCE_S = 30


@pytest.fixture
def life(kubeconfig: Path, tmp_path: Path) -> Life:
    return Life(kubeconfig, tmp_path)


def _inventory(life: Life, counted: dict[str, int]) -> str:
    """Return the inventory of test_2_sharing.py with counts on its first node."""

    def kubernetes(name: str) -> dict[str, object]:
        more = {"extended_resources": counted} if counted and name == "gpu-1" else {}
        return by(life.kubeconfig, programs(4), 120, **more)

    plugin = {"device_plugin": {"chart": str(CHART)}}
    return inventory_with(
        life.folder, {name: {"kubernetes": kubernetes(name), **plugin, **own} for name, own in NODES.items()}
    )


def _run(life: Life, counted: dict[str, int]) -> Run:
    return command("pyinfra", "-y", "--json", _inventory(life, counted), ALONE)


def _findings(life: Life, counted: dict[str, int]) -> dict[str, dict[str, Any]]:
    found = command("gpunode", "drift", "--json", _inventory(life, counted)).findings["gpu-1"]
    return {item["what"]: item for item in found if DONGLE in item["what"] or LICENSE in item["what"]}


def _wait_for(life: Life, desired: dict[str, str]) -> None:
    """Wait until the node's kubelet has reported: what is counted is allocatable, and no more."""

    def offered() -> dict[str, str]:
        allocatable = life.node("gpu-1")["status"]["allocatable"]
        return {name: count for name, count in allocatable.items() if name.startswith("example.com/")}

    deadline = time.monotonic() + _PATIENCE_S
    while offered() != desired and time.monotonic() < deadline:
        time.sleep(0.3)
    assert offered() == desired


def _status(life: Life, capacity: dict[str, str]) -> None:
    """Set a node's capacity as a kubelet or a person would."""
    text = json.dumps({"status": {"capacity": capacity, "allocatable": capacity}})
    life.release().kubectl("patch", "node", "gpu-1", "--subresource=status", "--type", "merge", "--patch", text)


def test_a_count_by_hand_is_allocatable_and_named_as_gpunode_s_by_one_request(life: Life) -> None:
    run = _run(life, {DONGLE: 4, LICENSE: 2})
    assert (run.code, list(run.operations("success"))) == (0, [COUNT]), run.printed[-3000:]
    assert DONGLE in run.printed
    _wait_for(life, {DONGLE: "4", LICENSE: "2"})
    node = life.node("gpu-1")
    assert json.loads(node["metadata"]["annotations"][RESOURCES]) == [DONGLE, LICENSE]
    # What the device plugin offers, and all else, is as it was; so is the other node.
    assert life.offered("gpu-1") == OFFERED["gpu-1"]
    assert RESOURCES not in life.node("gpu-2")["metadata"].get("annotations", {})


def test_the_second_run_leaves_the_counts_and_drift_tells_that_nobody_backs_them(life: Life) -> None:
    before = life.state()
    run = _run(life, {DONGLE: 4, LICENSE: 2})
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert life.state() == before
    found = _findings(life, {DONGLE: 4, LICENSE: 2})
    assert {item["class"] for item in found.values()} == {"ok"}
    assert "no device" in found[f"extended resource {DONGLE}"]["cause"]
    assert found[f"allocatable {DONGLE}"]["actual"] == "4"


def test_the_scheduler_counts_the_pods_that_ask_for_it(life: Life) -> None:
    release = life.release()
    for name, count in (("takes-four", "4"), ("wants-one-more", "1")):
        limits = {"spec": {"containers": [{"name": name, "resources": {"limits": {DONGLE: count}}}]}}
        words = ("run", name, "--image", "registry.invalid/samples:any", "--override-type", "strategic")
        release.kubectl(*words, "--overrides", json.dumps(limits))
        if count == "4":
            release.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout", f"{_PATIENCE_S}s")
    try:
        assert release.live("pod", "takes-four")["spec"]["nodeName"] == "gpu-1"
        release.kubectl(
            "wait", "--for=condition=PodScheduled=False", "pod/wants-one-more", "--timeout", f"{_PATIENCE_S}s"
        )
        conditions = release.live("pod", "wants-one-more")["status"]["conditions"]
        assert any(f"Insufficient {DONGLE}" in each.get("message", "") for each in conditions), conditions
    finally:
        release.kubectl("delete", "pod", "takes-four", "wants-one-more")


def test_a_count_that_a_kubelet_dropped_and_one_that_a_person_changed_are_found_and_healed(life: Life) -> None:
    _status(life, {DONGLE: "0", LICENSE: "7"})
    found = _findings(life, {DONGLE: 4, LICENSE: 2})
    bad = {what: (item["actual"], item["desired"]) for what, item in found.items() if item["class"] == "drift"}
    assert bad == {f"extended resource {DONGLE}": ("0", "4"), f"extended resource {LICENSE}": ("7", "2")}
    assert "checkpoint of device plugins" in found[f"extended resource {DONGLE}"]["cause"]
    run = _run(life, {DONGLE: 4, LICENSE: 2})
    assert (run.code, list(run.operations("success"))) == (0, [COUNT]), run.printed[-3000:]
    _wait_for(life, {DONGLE: "4", LICENSE: "2"})


def test_what_is_no_longer_asked_for_goes_and_somebody_else_s_count_stays(life: Life) -> None:
    _status(life, {"example.com/theirs": "3"})
    assert _run(life, {DONGLE: 4}).code == 0
    _wait_for(life, {DONGLE: "4", "example.com/theirs": "3"})
    run = _run(life, {})
    assert (run.code, list(run.operations("success"))) == (0, [COUNT]), run.printed[-3000:]
    _wait_for(life, {"example.com/theirs": "3"})
    node = life.node("gpu-1")
    assert RESOURCES not in node["metadata"].get("annotations", {}) and DONGLE not in node["status"]["capacity"]
    gone = json.dumps([{"op": "remove", "path": "/status/capacity/example.com~1theirs"}])
    life.release().kubectl("patch", "node", "gpu-1", "--subresource=status", "--type", "json", "--patch", gone)
    _wait_for(life, {})
    assert _run(life, {}).operations("success") == {}


def test_a_resource_of_a_device_plugin_s_is_refused_before_anything_is_contacted(life: Life) -> None:
    run = _run(life, {"nvidia.com/gpu": 4})
    assert run.code != 0 and "kubernetes.extended_resources" in run.printed and "is served by NVIDIA" in run.printed
    assert life.offered("gpu-1") == OFFERED["gpu-1"]
