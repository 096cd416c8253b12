"""Nodes that are drained for a new driver: real API server, kubectl and evictions; kubelets and GPUs are SIMULATED."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpunode.agent.files import PLACES
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cluster import kubectl as lab_kubectl
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, Run, command, converge, inventory_with

pytestmark = [pytest.mark.real, pytest.mark.life]

OLD, NEW = "580.95.05", "590.48.01"
BLOCKED, ADMINS = "gpu-1", "gpu-2"
NOTE = "gpunode/drain"
Start = Callable[[Node], str]


@pytest.fixture(scope="module")
def cluster(kubeconfig: Path) -> Path:
    """Return the kubeconfig of a cluster with two workloads, one on each node; the first may not be evicted."""
    _kubectl(kubeconfig, "delete", "namespace", "shop", "--ignore-not-found")
    _kubectl(kubeconfig, "create", "namespace", "shop")
    for node in (BLOCKED, ADMINS):
        _create(kubeconfig, _workload("Deployment", f"web-{node}", {"kubernetes.io/hostname": node}))
    _create(kubeconfig, _workload("DaemonSet", "agent", {}))
    _create(
        kubeconfig,
        {
            "apiVersion": "policy/v1beta1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "no-disruption", "namespace": "shop"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": f"web-{BLOCKED}"}}},
        },
    )
    return kubeconfig


def _workload(kind: str, name: str, selector: dict[str, str]) -> dict[str, Any]:
    labels = {"app": name}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": selector,
            "containers": [{"name": "main", "image": "fixture.invalid/web:1"}],
            "tolerations": [{"operator": "Exists"}] if kind == "DaemonSet" else [],
        },
    }
    return {
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }  # fmt: skip


def _kubectl(kubeconfig: Path, *words: str) -> str:
    return lab_kubectl.told(kubeconfig, *words)


def _create(kubeconfig: Path, sends: dict[str, Any]) -> None:
    lab_kubectl.told(kubeconfig, "create", "--filename", "-", sends=sends)


def _node(kubeconfig: Path, name: str) -> tuple[bool, dict[str, str] | None]:
    """Return whether a node is cordoned, and what gpunode noted."""
    found = lab_kubectl.asked(kubeconfig, "get", "node", name)
    note = (found["metadata"].get("annotations") or {}).get(NOTE)
    return found["spec"].get("unschedulable", False), None if note is None else json.loads(note)


def _pods(kubeconfig: Path, node: str, running: int) -> dict[str, str]:
    """Return name -> uid of the pods of `shop` on a node, once so many of them run there."""
    for _ in range(60):
        words = ("get", "pods", "--namespace", "shop", "--field-selector", f"spec.nodeName={node}")
        items = lab_kubectl.asked(kubeconfig, *words)["items"]
        if len(items) == running and all(item["status"]["phase"] == "Running" for item in items):
            break
        time.sleep(0.5)
    else:
        pytest.fail(f"{len(items)} pods on {node}, and {running} should run there")
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def _inventory(folder: Path, kubeconfig: Path, version: str, timeout: int = 10, cordoned: str = "drain") -> str:
    asked: dict[str, object] = {
        "driver": {"version": version, "allow_branch_change": True},
        "disruption": {"allow": "reboot", "max_parallel": 2, "reboot_timeout": 120},
        "kubernetes": {
            "enabled": True, "kubeconfig": str(kubeconfig), "kubectl": str(lab_kubectl.program()),
            # What other tests left without a controller goes; budgets are respected all the same.
            "drain": {"timeout": timeout, "ready_timeout": 60, "force": True, "foreign_cordon": cordoned},
        },
        "device_plugin": {"method": "none"},
    }  # fmt: skip
    return inventory_with(folder, {BLOCKED: asked, ADMINS: asked})


def _by_name(nodes: tuple[Node, ...], name: str) -> Node:
    return next(node for node in nodes if node.name == name)


def _state(node: Node, start_times: Start) -> dict[str, str]:
    """Return what a drain that is blocked must leave alone: packages, files, boot, services, the loaded driver."""
    asked = {
        "packages": "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'; apt-mark showhold",
        # The node's lock names the run that took it.
        "files": f"find /etc /usr/local /usr/lib/modules /var/lib/gpunode -type f ! -path {PLACES.lock} "
        "-exec sha256sum {} + | sort -k2",
        "boot": "systemctl show -p UserspaceTimestampMonotonic --value",
        "driver": "cat /sys/module/nvidia/version",
    }
    found = {what: _out(node, text) for what, text in asked.items()}
    return {**found, "services": start_times(node)}


def _out(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _drift(path: str) -> dict[str, dict[str, Any]]:
    """Return node -> the finding about its cordon."""
    found = command("gpunode", "drift", "--json", path).findings
    return {name: item for name, items in found.items() for item in items if item["what"] == "cordon"}


def _settled(run: Run) -> None:
    assert run.code == 0, run.printed


def test_nodes_take_pods_at_the_end_of_the_run_that_makes_them_gpu_nodes(cluster: Path, tmp_path: Path) -> None:
    # What runs on one of them may not be evicted, and so not be disturbed: it is let go for this.
    _kubectl(cluster, "scale", "deployment", f"web-{BLOCKED}", "--replicas", "0", "--namespace", "shop")
    _pods(cluster, BLOCKED, 1)
    _settled(converge(inventory=_inventory(tmp_path, cluster, OLD)))
    assert _node(cluster, BLOCKED) == _node(cluster, ADMINS) == (False, None)
    _kubectl(cluster, "scale", "deployment", f"web-{BLOCKED}", "--replicas", "1", "--namespace", "shop")
    _pods(cluster, BLOCKED, 2)
    _pods(cluster, ADMINS, 2)


def test_a_second_run_drains_nothing(cluster: Path, tmp_path: Path) -> None:
    before = _pods(cluster, BLOCKED, 2), _pods(cluster, ADMINS, 2)
    version = lab_kubectl.asked(cluster, "get", "node", BLOCKED)["metadata"]["resourceVersion"]
    again = converge(inventory=_inventory(tmp_path, cluster, OLD))
    _settled(again)
    assert again.operations("success") == {} and "drains node" not in again.printed
    assert (_pods(cluster, BLOCKED, 2), _pods(cluster, ADMINS, 2)) == before
    assert lab_kubectl.asked(cluster, "get", "node", BLOCKED)["metadata"]["resourceVersion"] == version


def test_a_dry_run_and_a_plan_say_that_the_nodes_would_be_drained(cluster: Path, tmp_path: Path) -> None:
    path = _inventory(tmp_path, cluster, NEW)
    dry = command("pyinfra", "--dry", path, "deploys/gpu_node.py")
    assert dry.code == 0 and re.search(rf"drains node {BLOCKED}, \d+ pods: driver {NEW} is .* {OLD}", dry.printed)
    assert "drains the node" in command("gpunode", "plan", path).stdout
    assert _node(cluster, BLOCKED) == (False, None)


def test_a_budget_of_zero_blocks_the_drain_and_the_node_is_not_touched_beside_a_full_upgrade_under_an_admins_cordon(
    cluster: Path, tmp_path: Path, nodes: tuple[Node, ...], start_times: Start
) -> None:
    blocked, admins = _by_name(nodes, BLOCKED), _by_name(nodes, ADMINS)
    _kubectl(cluster, "cordon", ADMINS)
    agents = [_pods(cluster, name, 2) for name in (BLOCKED, ADMINS)]
    before, boot = _state(blocked, start_times), _state(admins, start_times)["boot"]
    path = _inventory(tmp_path, cluster, NEW)
    run = converge(inventory=path)
    assert run.code != 0 and "drain blocked" in run.printed
    assert f"shop/web-{BLOCKED}" in run.printed and "no-disruption" in run.printed

    assert _state(blocked, start_times) == before
    assert _pods(cluster, BLOCKED, 2) == agents[0]
    cordoned, note = _node(cluster, BLOCKED)
    assert cordoned and note is not None and note["state"] == "drain blocked" and note["cordon"] == "gpunode"
    assert "no-disruption" in note["message"]

    after = _state(admins, start_times)
    assert after["driver"] == NEW and after["boot"] != boot
    assert _node(cluster, ADMINS) == (True, None)
    # The DaemonSet's pod stayed, the other one was evicted and finds no place.
    assert _pods(cluster, ADMINS, 1).items() <= agents[1].items()

    found = _drift(path)
    assert found[BLOCKED]["class"] == "drift" and found[BLOCKED]["actual"].startswith("drain blocked since")
    assert "no-disruption" in found[BLOCKED]["cause"] and found[ADMINS]["class"] == "ok"


def test_once_the_budget_gives_way_the_run_goes_on_and_lifts_its_cordon_and_no_other(
    cluster: Path, tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    _, note = _node(cluster, BLOCKED)
    assert note is not None
    _kubectl(cluster, "delete", "poddisruptionbudget", "no-disruption", "--namespace", "shop")
    _settled(converge(inventory=_inventory(tmp_path, cluster, NEW)))
    assert _out(_by_name(nodes, BLOCKED), "cat /sys/module/nvidia/version") == NEW
    assert _node(cluster, BLOCKED) == (False, None)
    assert _node(cluster, ADMINS) == (True, None)
    _pods(cluster, BLOCKED, 2)


def test_a_node_under_an_admins_cordon_is_left_alone_where_the_settings_say_so(
    cluster: Path, tmp_path: Path, nodes: tuple[Node, ...], start_times: Start
) -> None:
    admins = _by_name(nodes, ADMINS)
    before = _state(admins, start_times)
    path = _inventory(tmp_path, cluster, OLD, cordoned="skip")
    run = command("pyinfra", "-y", "--limit", ADMINS, path, "deploys/gpu_node.py")
    assert run.code == 0 and f"kubectl uncordon {ADMINS}" in run.printed, run.printed
    assert _state(admins, start_times) == before and _node(cluster, ADMINS) == (True, None)
    found = {item["what"]: item for item in command("gpunode", "drift", "--json", path).findings[ADMINS]}
    assert {"preflight", "cordon", "loaded module"} <= set(found) and found["preflight"]["class"] == "unsupported"
    assert f"kubectl uncordon {ADMINS}" in found["preflight"]["remedy"]
    assert f"kubectl uncordon {ADMINS}" in command("gpunode", "plan", path).stdout


def test_a_controller_killed_in_a_drain_leaves_a_cordon_that_the_next_run_lifts_with_nothing_else_to_do(
    cluster: Path, tmp_path: Path
) -> None:
    _kubectl(cluster, "uncordon", ADMINS)
    labels = {"matchLabels": {"app": f"web-{BLOCKED}"}}
    _create(
        cluster,
        {
            "apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "again", "namespace": "shop"}, "spec": {"maxUnavailable": 0, "selector": labels},
        },
    )  # fmt: skip
    path = _inventory(tmp_path, cluster, OLD, timeout=300)
    words = [str(Path(sys.executable).parent / "pyinfra"), "-y", "--limit", BLOCKED, path, "deploys/gpu_node.py"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=CHECKOUT, stdout=log, stderr=log, start_new_session=True)
        try:
            for _ in range(240):
                if (_node(cluster, BLOCKED)[1] or {}).get("state") == "draining" or process.poll() is not None:
                    break
                time.sleep(0.5)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    cordoned, note = _node(cluster, BLOCKED)
    assert cordoned and note is not None and note["state"] == "draining", (tmp_path / "log").read_text()
    assert _drift(_inventory(tmp_path, cluster, NEW))[BLOCKED]["class"] == "drift"

    again = converge(inventory=_inventory(tmp_path, cluster, NEW))
    _settled(again)
    assert again.operations("success") == {"Give the node back to its cluster": [BLOCKED]}
    assert _node(cluster, BLOCKED) == (False, None)
    assert _drift(_inventory(tmp_path, cluster, NEW))[BLOCKED]["class"] == "ok"
