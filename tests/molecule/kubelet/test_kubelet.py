"""One node with a real kubelet: 1.20, built of Debian's sources, by containerd's real CRI, in the lab's own cluster.

Real are the kubelet, its CPU manager with pods' own cgroups, and a static pod that runs. What a lab node needs for it,
since it is a container: docs/lab-cluster.md. The cluster and what comes of it there: test_registered.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.cluster import cluster
from gpunode.lab.nodes import Node
from tests.molecule.conftest import LAB, Run, command, inventory_with, out, run_to, third_tier, tried_before, write
from tests.molecule.kubelet.kubelet_nodes import FILE, STATE

pytestmark = pytest.mark.life

ASKED: dict[str, Any] = {
    "system_reserved": {"cpu": "100m", "memory": "128Mi"},
    "max_pods": 64,
    "cpu_manager_policy": "static",
}
OPERATION = "Configure the kubelet"
CONFIGURATION = """# as kubeadm has it
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: /etc/kubernetes/api-server.crt}
authorization: {mode: AlwaysAllow}
cgroupDriver: systemd  # as containerd's
staticPodPath: /etc/kubernetes/manifests
nodeStatusUpdateFrequency: 2s
evictionPressureTransitionPeriod: 5s
systemReserved:
  # for sshd
  memory: 64Mi
maxPods: 110
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: rest, namespace: default}
spec:
  hostNetwork: true
  containers:
  - {name: rest, image: 'registry.k8s.io/pause:3.6', imagePullPolicy: Never}
"""


def _inventory(folder: Path, node: Node, allow: str = "restart", **kubelet: Any) -> str:
    cluster = {"enabled": True, "drain": {"enabled": False}, "kubelet": kubelet}
    data: dict[str, object] = {"kubernetes": cluster, "device_plugin": {"method": "none"}}
    return inventory_with(folder, {node.name: {**data, "disruption": {"allow": allow}}})


def _run(folder: Path, node: Node, code: int = 0, allow: str = "restart", **kubelet: Any) -> Run:
    return run_to(code, _inventory(folder, node, allow, **kubelet), deploy="deploys/kubelet.py")


def _bad(folder: Path, node: Node, allow: str = "restart", **kubelet: Any) -> dict[str, dict[str, Any]]:
    run = command("gpunode", "drift", "--json", _inventory(folder, node, allow, **kubelet))
    every = run.findings[node.name]
    return {item["what"]: item for item in every if item["class"] != "ok" and item["component"] == "kubelet"}


def _process(node: Node) -> str:
    return out(node, "systemctl show kubelet -p MainPID --value")


def _policy(node: Node) -> str:
    return str(json.loads(out(node, f"cat {STATE}"))["policyName"])


def test_a_node_that_has_not_joined_yet_is_told_so_and_nothing_of_it_fails(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    every = command("gpunode", "drift", "--json", _inventory(tmp_path, node, **ASKED)).findings[node.name]
    (told,) = [item for item in every if item["what"] == "service kubelet.service"]
    assert (told["class"], told["desired"]) == ("not known", None) and "journalctl -u kubelet" in told["cause"]
    assert _run(tmp_path, node, **ASKED).operations("success") == {}


def test_settings_come_into_the_kubelet_s_file_and_a_second_run_changes_nothing(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    write(node, FILE, CONFIGURATION)
    cluster.up(LAB, print, real_kubelets=True)
    assert out(node, "curl -s http://127.0.0.1:10248/healthz") == "ok" and _policy(node) == "none"
    assert {"kubelet's maxPods", "kubelet's cpuManagerPolicy"} <= set(_bad(tmp_path, node, **ASKED))
    assert OPERATION in str(_run(tmp_path, node, **ASKED).operations("success"))
    assert _policy(node) == "static" and out(node, "curl -s http://127.0.0.1:10248/healthz") == "ok"
    text = out(node, f"cat {FILE}")
    assert "  # for sshd\n  cpu: 100m\n  memory: 128Mi\nmaxPods: 64\n" in text and "# as containerd's" in text
    process = _process(node)
    assert _run(tmp_path, node, **ASKED).operations("success") == {}
    assert _bad(tmp_path, node, **ASKED) == {} and _process(node) == process


def test_what_a_hand_breaks_is_found_and_healed(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, f"sed -i 's/^maxPods: 64/maxPods: 99/; s/  memory: 128Mi/  memory: 1Gi/' {FILE}")
    found = set(_bad(tmp_path, node, **ASKED))
    assert {"kubelet's maxPods", "kubelet's systemReserved/memory"} <= found
    _run(tmp_path, node, **ASKED)
    assert _bad(tmp_path, node, **ASKED) == {} and _policy(node) == "static"


@third_tier
def test_what_the_real_kubelet_does_not_start_by_is_put_back_with_its_state(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    before = out(node, f"cat {FILE} {STATE}")
    # More CPUs than any machine has that this runs on.
    refused = _run(tmp_path, node, code=1, **{**ASKED, "system_reserved": {"cpu": "4000"}})
    assert "is not well" in refused.printed and "runs again" in refused.printed
    assert out(node, f"cat {FILE} {STATE}") == before
    assert out(node, "curl -s http://127.0.0.1:10248/healthz") == "ok"
    again = _run(tmp_path, node, code=1, **{**ASKED, "system_reserved": {"cpu": "4000"}})
    assert tried_before(again, "kubelet")


def test_a_flag_that_counts_more_is_refused_and_a_restart_under_pods_waits(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    write(node, "/etc/kubernetes/manifests/rest.yaml", POD)
    out(node, "for _ in $(seq 60); do [ $(pgrep -cx pause) != 2 ] || exit 0; sleep 1; done; exit 1")
    waits = _bad(tmp_path, node, allow="nothing", **{**ASKED, "max_pods": 20})
    assert waits["kubelet's maxPods"]["class"] == "restart pending"
    assert _run(tmp_path, node, allow="nothing", **{**ASKED, "max_pods": 20}).operations("success") == {}
    write(node, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--max-pods=50\n")
    out(node, "systemctl restart kubelet; sleep 3")
    refused = _run(tmp_path, node, code=1, **ASKED)
    assert "--max-pods=50" in refused.printed
    out(node, "rm /etc/default/kubelet; systemctl restart kubelet; sleep 3")


def test_without_settings_nothing_of_gpunode_s_is_left(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, "rm /etc/kubernetes/manifests/rest.yaml")
    _run(tmp_path, node)
    assert out(node, f"cat {FILE}") == CONFIGURATION.strip() and _policy(node) == "none"
    assert _run(tmp_path, node).operations("success") == {} and _bad(tmp_path, node) == {}


@pytest.mark.parametrize(
    ("kubelet", "key"),
    [({"max_pods": 0}, "max_pods"), ({"system_reserved": {"cpu": "lots"}}, "system_reserved")],
)
def test_bad_input_is_refused_by_its_key(
    kubelet: dict[str, Any], key: str, nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    run = command("gpunode", "check", _inventory(tmp_path, node, **kubelet))
    assert run.code != 0 and f"kubernetes.kubelet.{key}" in run.printed
