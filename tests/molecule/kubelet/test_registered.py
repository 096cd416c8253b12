"""A real kubelet in a real cluster: allocatable, devices, drains, evictions and cgroup drivers are the kubelet's own.

Real: control plane, scheduler, kubelet, containerd, pods with their cgroups and network, the registration socket of
device plugins. SIMULATED: the GPUs and the device plugin, which is the lab's own in place of NVIDIA's.

Its life goes on from test_kubelet.py; this file may run alone, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cluster import cluster
from gpunode.lab.cluster.kubectl import asked, program, told
from gpunode.lab.cluster.real_kubelet import DEVICES, IMAGE, TAG
from gpunode.lab.nodes import Node
from tests.molecule.conftest import LAB, Run, command, inventory_with, out, third_tier
from tests.molecule.kubelet.kubelet_nodes import FILE

pytestmark = [pytest.mark.real, pytest.mark.simulated, pytest.mark.life]

GPU, SPACE, RACK = "nvidia.com/gpu", "shop", "example.com/rack"
PLUGIN, VERDICT, KUBELET = "deploys/device_plugin.py", "deploys/verify_cluster.py", "deploys/kubelet.py"
PAUSE = "registry.k8s.io/pause:3.6"
# Above a minute: some sandboxes are removed by the kubelet's garbage collection alone, which comes once a minute, and
# until then their pods are there. Of 65 pods 7 took 45 to 66 s to end so, on a quiet machine, the others 5 to 13.
_PATIENCE_S = 180


@pytest.fixture(scope="module")
def kubeconfig() -> Path:
    """Return the kubeconfig of the lab's cluster, whose one node has a real kubelet."""
    return cluster.kubeconfig_of(LAB) or cluster.up(LAB, print, real_kubelets=True)


@pytest.fixture
def node(nodes: tuple[Node, ...]) -> Node:
    """Return the one node."""
    (found,) = nodes
    return found


def _until(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"within {_PATIENCE_S} s it did not come to this: {what}"
        time.sleep(0.3)


def _inventory(folder: Path, kubeconfig: Path, node: Node, plugin: str = "manifest", **more: Any) -> str:
    kubernetes = {
        "enabled": True, "kubeconfig": str(kubeconfig), "kubectl": str(program()), "timeout": 10,
        "node_labels": {RACK: "b7"},
        "drain": {"timeout": _PATIENCE_S, "ready_timeout": 60, "force": True}, **more.pop("kubernetes", {}),
    }  # fmt: skip
    return inventory_with(
        folder,
        {
            node.name: {
                "kubernetes": kubernetes,
                "device_plugin": {"method": plugin, "image": IMAGE, "image_tag": TAG},
                "disruption": {"allow": "restart"},
                **more,
            }
        },
    )


def _run(inventory: str, deploy: str, code: int = 0) -> Run:
    run = command("pyinfra", "-y", "--json", inventory, deploy)
    assert run.code == code, run.printed
    return run


def _allocatable(kubeconfig: Path, node: Node) -> str | None:
    found: dict[str, str] = asked(kubeconfig, "get", "node", node.name)["status"]["allocatable"]
    return found.get(GPU)


def _rack(kubeconfig: Path, node: Node) -> str | None:
    found: dict[str, str] = asked(kubeconfig, "get", "node", node.name)["metadata"]["labels"]
    return found.get(RACK)


def _is_ready(kubeconfig: Path, node: Node) -> bool:
    conditions = asked(kubeconfig, "get", "node", node.name)["status"]["conditions"]
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _offers(kubeconfig: Path, node: Node, count: int) -> None:
    _until(f"{count} × {GPU} allocatable", lambda: _allocatable(kubeconfig, node) == str(count))


def _pods(kubeconfig: Path) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in asked(kubeconfig, "get", "pods", "-n", SPACE)["items"]}


def _phase(kubeconfig: Path, name: str) -> str:
    found = _pods(kubeconfig).get(name, {})
    return str(found.get("status", {}).get("phase", "gone"))


def _running(kubeconfig: Path) -> set[str]:
    """Return the names of the pods that run, and are not about to end."""
    every = _pods(kubeconfig).items()
    return {
        name
        for name, each in every
        if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
    }


def _is_evicted(kubeconfig: Path) -> bool:
    return any(each["status"].get("reason") == "Evicted" for each in _pods(kubeconfig).values())


def _create(kubeconfig: Path, sends: dict[str, Any]) -> None:
    told(kubeconfig, "create", "-n", SPACE, "--filename", "-", sends=sends)


def _container(**resources: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "main", "image": PAUSE, "imagePullPolicy": "Never"}
    return {**found, "resources": {"limits": resources}} if resources else found


def _pod(name: str, **resources: str) -> dict[str, Any]:
    spec = {"terminationGracePeriodSeconds": 1, "containers": [_container(**resources)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _process(kubeconfig: Path, node: Node, name: str) -> str:
    """Return the process of a pod's container, as the node knows it; empty where it has ended."""
    status = _pods(kubeconfig)[name]["status"]["containerStatuses"][0]
    identity = status["containerID"].removeprefix("containerd://")
    return out(node, f"ctr -n k8s.io tasks ls | awk '$1 == \"{identity}\" {{ print $2 }}'")


def _wrong(inventory: str, node: Node) -> dict[str, dict[str, Any]]:
    every = command("gpunode", "drift", "--json", inventory).findings[node.name]
    return {item["what"]: item for item in every if item["class"] != "ok"}


def test_the_kubelet_registers_its_node_which_becomes_ready_by_itself(kubeconfig: Path, node: Node) -> None:
    found = asked(kubeconfig, "get", "node", node.name)
    (ready,) = [each for each in found["status"]["conditions"] if each["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
    assert found["status"]["nodeInfo"]["kubeletVersion"] == "v1.20.2"
    assert found["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    told(kubeconfig, "create", "namespace", SPACE)


def test_allocatable_is_what_the_kubelet_counts_once_gpunode_has_rolled_the_plugin_out(
    kubeconfig: Path, node: Node, tmp_path: Path
) -> None:
    inventory = _inventory(tmp_path, kubeconfig, node)
    assert _allocatable(kubeconfig, node) is None
    _run(inventory, PLUGIN)
    _run(inventory, VERDICT)
    assert _allocatable(kubeconfig, node) == "2"
    assert _run(inventory, PLUGIN).operations("success") == {}
    assert "allocatable nvidia.com/gpu" not in _wrong(inventory, node)


def test_a_label_of_a_person_s_is_set_kept_by_a_kubelet_that_starts_again_and_healed(
    kubeconfig: Path, node: Node, tmp_path: Path
) -> None:
    inventory = _inventory(tmp_path, kubeconfig, node)
    assert _rack(kubeconfig, node) == "b7" and f"label {RACK}" not in _wrong(inventory, node)
    out(node, "systemctl restart kubelet")
    _until("the node is Ready", lambda: _is_ready(kubeconfig, node))
    assert _rack(kubeconfig, node) == "b7"
    told(kubeconfig, "label", "node", node.name, f"{RACK}=b8", "--overwrite")
    found = _wrong(inventory, node)[f"label {RACK}"]
    assert (found["actual"], found["desired"]) == ("b8", "b7")
    _run(inventory, PLUGIN)
    assert _rack(kubeconfig, node) == "b7"
    _run(_inventory(tmp_path, kubeconfig, node, kubernetes={"node_labels": {}}), PLUGIN)
    assert _rack(kubeconfig, node) is None
    _run(_inventory(tmp_path, kubeconfig, node), PLUGIN)


def test_a_pod_that_asks_for_a_gpu_gets_its_device_and_one_too_many_waits(kubeconfig: Path, node: Node) -> None:
    _create(kubeconfig, _pod("one", **{GPU: "1"}))
    _create(kubeconfig, _pod("too-many", **{GPU: "2"}))
    _until("the pod runs", lambda: _phase(kubeconfig, "one") == "Running")
    process = _process(kubeconfig, node, "one")
    seen = out(node, f"ls /proc/{process}/root/dev | grep -c '^nvidia[0-9]'; tr '\\0' '\\n' < /proc/{process}/environ")
    assert seen.startswith("1\n") and "GPUNODE_LAB_DEVICES=SIMULATED" in seen
    waits = _pods(kubeconfig)["too-many"]["status"]
    assert waits["phase"] == "Pending" and "Insufficient nvidia.com/gpu" in waits["conditions"][0]["message"]
    told(kubeconfig, "delete", "pod", "-n", SPACE, "one", "too-many", "--wait=false")


def test_a_device_that_is_not_healthy_is_missing_from_allocatable_and_from_the_verdict(
    kubeconfig: Path, node: Node, tmp_path: Path
) -> None:
    inventory = _inventory(tmp_path, kubeconfig, node)
    out(node, f"sed -i '2s/ healthy/ unhealthy/' {DEVICES}")
    _offers(kubeconfig, node, 1)
    assert asked(kubeconfig, "get", "node", node.name)["status"]["capacity"][GPU] == "2"
    failed = _run(inventory, VERDICT, code=1)
    assert "allocatable nvidia.com/gpu is 1, desired 2" in failed.printed, failed.printed
    out(node, f"sed -i '2s/ unhealthy/ healthy/' {DEVICES}")
    _offers(kubeconfig, node, 2)
    _run(inventory, VERDICT)


def test_a_plugin_that_ends_takes_its_devices_along_until_it_registers_again(kubeconfig: Path, node: Node) -> None:
    runs = "pgrep -f ^/gpunode-lab-device-plugin"
    # A kubelet starts it anew at once, and waits for ten seconds the next time.
    before = out(node, runs)
    out(node, f"kill -KILL {before}")
    _until("it runs again", lambda: lab_nodes.run(node, runs).stdout.strip() not in ("", before))
    out(node, f"kill -KILL $({runs})")
    _offers(kubeconfig, node, 0)
    _offers(kubeconfig, node, 2)


def test_a_change_of_the_kubelet_drains_real_pods_and_the_plugin_registers_anew(
    kubeconfig: Path, node: Node, tmp_path: Path
) -> None:
    labels = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": _pod("")["spec"]}
    _create(
        kubeconfig,
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": labels, "template": template},
        },
    )  # fmt: skip
    _until("one pod runs, and no other", lambda: _running(kubeconfig) == set(_pods(kubeconfig)) != set())
    (before,) = _running(kubeconfig)
    process, kubelet = _process(kubeconfig, node, before), out(node, "pgrep -x kubelet")
    inventory = _inventory(tmp_path, kubeconfig, node, kubernetes={"kubelet": {"max_pods": 30}})
    run = _run(inventory, KUBELET)
    assert "Configure the kubelet" in str(run.operations("success"))
    assert out(node, "pgrep -x kubelet") != kubelet
    assert out(node, f"[ -e /proc/{process} ] || echo has ended") == "has ended"
    found = asked(kubeconfig, "get", "node", node.name)
    assert found["status"]["allocatable"]["pods"] == "30" and not found["spec"].get("unschedulable", False)
    _until("another pod runs", lambda: bool(_running(kubeconfig) - {before}))
    _offers(kubeconfig, node, 2)
    assert _run(inventory, KUBELET).operations("success") == {}


@third_tier
def test_a_pod_of_the_class_guaranteed_gets_a_cpu_alone_by_the_static_policy(
    kubeconfig: Path, node: Node, tmp_path: Path
) -> None:
    asked_for = {"cpu_manager_policy": "static", "system_reserved": {"cpu": "100m"}}
    inventory = _inventory(tmp_path, kubeconfig, node, kubernetes={"kubelet": asked_for})
    _run(inventory, KUBELET)
    _create(kubeconfig, _pod("alone", cpu="1", memory="64Mi"))
    _until("the pod runs", lambda: _phase(kubeconfig, "alone") == "Running")
    process = _process(kubeconfig, node, "alone")
    assert out(node, f"grep Cpus_allowed_list /proc/{process}/status").split()[1].isdigit()
    told(kubeconfig, "delete", "pod", "-n", SPACE, "alone", "--wait=false")


@third_tier
def test_the_kubelet_evicts_what_its_thresholds_say(kubeconfig: Path, node: Node, tmp_path: Path) -> None:
    # Whatever a node has is too little. With what is reserved, it may not be more than the machine's: the kubelet ends.
    pressed = {"eviction_hard": {"memory.available": "99.999%"}, "system_reserved": {"memory": "1"}}
    # gpunode's own drain would leave the kubelet nothing to evict.
    alone: dict[str, Any] = {"drain": {"enabled": False}}
    _until("the pod runs", lambda: _running(kubeconfig) != set())
    _run(_inventory(tmp_path, kubeconfig, node, kubernetes={**alone, "kubelet": pressed}), KUBELET)
    _until("a pod is evicted", lambda: _is_evicted(kubeconfig))
    _run(_inventory(tmp_path, kubeconfig, node, kubernetes=alone), KUBELET)
    told(kubeconfig, "delete", "deployment", "-n", SPACE, "web", "--wait=false")


def test_another_cgroup_driver_than_the_kubelets_is_refused_and_so_the_kubelet_starts_no_pod(
    kubeconfig: Path, node: Node, tmp_path: Path
) -> None:
    inventory = _inventory(tmp_path, kubeconfig, node, containerd={"systemd_cgroup": False})
    refused = command("pyinfra", "-y", "--json", inventory, "deploys/containerd.py")
    assert refused.code == 1 and "cgroup" in refused.printed, refused.printed
    out(node, f"sed -i 's/^cgroupDriver: systemd/cgroupDriver: cgroupfs/' {FILE}; systemctl restart kubelet")
    _create(kubeconfig, _pod("stuck"))
    _until("no sandbox is made", lambda: "expected cgroupsPath" in told(kubeconfig, "get", "events", "-n", SPACE))
    assert _phase(kubeconfig, "stuck") == "Pending"
    out(node, f"sed -i 's/^cgroupDriver: cgroupfs/cgroupDriver: systemd/' {FILE}; systemctl restart kubelet")
    _until("the pod runs", lambda: _phase(kubeconfig, "stuck") == "Running")


def test_without_the_plugin_the_kubelet_offers_nothing(kubeconfig: Path, node: Node, tmp_path: Path) -> None:
    _run(_inventory(tmp_path, kubeconfig, node, plugin="none"), PLUGIN)
    _offers(kubeconfig, node, 0)
