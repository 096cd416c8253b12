"""gpushare: from NVIDIA's plugin to it and back, with a real kube-scheduler that is patched, and one that is put back.

Real: API server, kubectl, helm, the scheduler of 1.20 and its reading of the configuration file, systemd. SIMULATED:
the kubelet of the control-plane host (control_plane_node.py), the pods, the GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import CLUSTER
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster import control_plane_node
from tests.molecule.cluster.control_plane_node import MANIFEST, TEXT, command_lines, manifest
from tests.molecule.cluster.releases import CHART, KeptRelease, by
from tests.molecule.conftest import LAB, Run, command, inventory_with, third_tier, tried_before

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life]

NAMESPACE = "nvidia-device-plugin"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
VERDICT = "deploys/verify_cluster.py"
RELEASE, SCHEDULER = "Take the release of the device plugin away", "Have the scheduler ask the extender"


@pytest.fixture(scope="module")
def host() -> Iterator[lab_nodes.Node]:
    """Return the node that is the control-plane host, too."""
    node = lab_nodes.nodes(LAB)[0]
    control_plane_node.begin(node)
    yield node
    control_plane_node.end(node)


class Ways:
    """Run the deploy of the device plugin, with one method on all nodes."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.folder, self.cluster = folder, KeptRelease(kubeconfig, programs(3), NAMESPACE)
        self.names = [node.name for node in lab_nodes.nodes(LAB)]

    def run(self, method: str, deploy: str = "deploys/device_plugin.py", **gpushare: Any) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(method, **gpushare), deploy)

    def drift(self, method: str) -> dict[str, dict[str, str]]:
        """Return node, or CLUSTER -> what drift says of the cluster that is not as desired, with its cause."""
        run = command("gpunode", "drift", self.inventory(method), "--json")
        return {
            name: {
                each["what"]: each["cause"]
                for each in every
                if each["class"] != "ok" and each["component"] == "device_plugin"
            }
            for name, every in run.findings.items()
        }

    def inventory(self, method: str, **gpushare: Any) -> str:
        data: dict[str, object] = {
            "kubernetes": by(self.cluster.kubeconfig, programs(3), 45),
            "device_plugin": {"method": method, "chart": str(CHART)},
            "gpushare": {"schedulers": [self.names[0]], **gpushare},
            # Whichever the tests before left there.
            "driver": {"source": "present"},
        }  # fmt: skip
        return inventory_with(self.folder, {name: data for name in self.names})

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.cluster.live("node", name)["metadata"]["labels"]
        return found

    def listed(self, kind: str) -> str:
        return self.cluster.kubectl("get", kind, "--all-namespaces", "--output", "name")


@pytest.fixture
def methods(kubeconfig: Path, tmp_path: Path) -> Ways:
    return Ways(kubeconfig, tmp_path)


def test_gpushare_takes_the_place_of_nvidia_s_plugin_and_the_scheduler_asks_its_extender(
    methods: Ways, host: lab_nodes.Node
) -> None:
    assert methods.run("helm").code == 0
    # Where the extender's pod may go: no node of a lab is labelled as one of the control plane.
    methods.cluster.kubectl("label", "node", host.name, f"{CONTROL_PLANE}=", "--overwrite")
    run = methods.run("gpushare")
    assert run.code == 0, run.printed[-3000:]
    assert {RELEASE, SCHEDULER} <= set(run.operations("success"))
    for name in methods.names:
        assert methods.labels(name)["gpushare"] == "true" and "nvidia.com/gpu.present" not in methods.labels(name)
    assert "nvdp" not in methods.listed("daemonset") and "gpushare-device-plugin" in methods.listed("daemonset")
    (line,) = command_lines(host)
    path = line.partition("--config=")[2].split(" ")[0]
    configuration = lab_nodes.run(host, f"cat {path}").stdout
    assert "kubescheduler.config.k8s.io/v1beta1" in configuration and "aliyun.com/gpu-mem" in configuration
    assert "# asked for" in manifest(host)
    assert lab_nodes.run(host, f"stat -c %a {MANIFEST}").stdout.strip() == "600"


def test_the_second_run_of_gpushare_changes_nothing(methods: Ways, host: lab_nodes.Node) -> None:
    before = command_lines(host), manifest(host)
    run = methods.run("gpushare")
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert (command_lines(host), manifest(host)) == before


def test_verdict_and_drift_find_what_gpushare_promises_and_each_thing_that_is_otherwise(
    methods: Ways, host: lab_nodes.Node
) -> None:
    run = methods.run("gpushare", VERDICT)
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert methods.drift("gpushare") == {name: {} for name in (*methods.names, CLUSTER)}
    allocatable = methods.cluster.live("node", host.name)["status"]["allocatable"]
    # Two H100, of 79 GiB each.
    assert (allocatable["aliyun.com/gpu-count"], allocatable["aliyun.com/gpu-mem"]) == ("2", "158")
    methods.cluster.kubectl("label", "node", methods.names[1], "gpushare-")
    where = ("--namespace", "kube-system")
    methods.cluster.kubectl("scale", "deployment", "gpushare-schd-extender", "--replicas", "0", *where)
    found = methods.drift("gpushare")
    assert "label gpushare" in found[methods.names[1]] and "label gpushare" not in found[host.name]
    assert "gpushare-schd-extender" in found[CLUSTER]["gpunode's objects"]
    run = methods.run("gpushare")
    assert run.code == 0, run.printed[-3000:]
    assert methods.run("gpushare", VERDICT).code == 0


def test_a_scheduler_that_does_not_take_its_configuration_is_put_back_and_not_tried_again(
    methods: Ways, host: lab_nodes.Node
) -> None:
    before = manifest(host)
    # The image is said to be newer than the program is: the file is then written in a version that it has not.
    newer = before.replace("kube-scheduler:v1.20.2", "kube-scheduler:v1.31.4")
    control_plane_node.mended(host, newer)
    run = methods.run("gpushare")
    assert run.code == 1 and 'no kind "KubeSchedulerConfiguration" is registered' in run.printed, run.printed[-3000:]
    assert manifest(host) == newer
    (line,) = command_lines(host)
    assert "--config=" in line
    assert lab_nodes.run(host, "curl -ksf https://127.0.0.1:10259/healthz").stdout == "ok"
    again = methods.run("gpushare")
    assert tried_before(again, "scheduler") and manifest(host) == newer
    control_plane_node.mended(host, before)


def test_nvidia_s_plugin_comes_back_and_the_scheduler_is_as_it_was(methods: Ways, host: lab_nodes.Node) -> None:
    run = methods.run("helm")
    assert run.code == 0, run.printed[-3000:]
    assert manifest(host) == TEXT
    (line,) = command_lines(host)
    assert "--config=" not in line and lab_nodes.run(host, "ls /etc/kubernetes/gpunode").stdout == ""
    assert "gpushare" not in methods.listed("daemonset") + methods.listed("deployment")
    assert all("gpushare" not in methods.labels(name) for name in methods.names)
    assert "nvdp" in methods.listed("daemonset")


def test_a_static_manifest_takes_its_place_and_the_second_run_changes_nothing(
    methods: Ways, host: lab_nodes.Node
) -> None:
    run = methods.run("manifest")
    assert run.code == 0, run.printed[-3000:]
    assert "gpunode-device-plugin-none" in methods.listed("daemonset") and "nvdp" not in methods.listed("daemonset")
    run = methods.run("manifest")
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert methods.run("manifest", VERDICT).code == 0
    assert methods.drift("manifest") == {name: {} for name in (*methods.names, CLUSTER)}
    methods.cluster.kubectl("delete", "daemonset", "gpunode-device-plugin-none")
    found = methods.drift("manifest")[host.name]
    assert f"DaemonSet {NAMESPACE}/gpunode-device-plugin-none" in found and "gpunode's objects" in found
    assert methods.run("manifest").code == 0
    assert methods.run("helm").code == 0 and "gpunode-device-plugin" not in methods.listed("daemonset")


def test_a_plugin_of_somebody_else_s_on_a_node_is_refused_by_name(methods: Ways, host: lab_nodes.Node) -> None:
    name, image = "nvidia-device-plugin-daemonset", "registry.invalid/nvidia/k8s-device-plugin:v0.20.0"
    pods = {"name": name}
    foreign = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": pods}, "template": {
            "metadata": {"labels": pods}, "spec": {"containers": [{"name": "a", "image": image}]}}},
    }  # fmt: skip
    file = methods.folder / "foreign.json"
    file.write_text(json.dumps(foreign))
    methods.cluster.kubectl("apply", "--filename", str(file))
    run = methods.run("helm")
    assert run.code == 1 and f"kubectl -n {NAMESPACE} delete daemonset {name}" in run.printed, run.printed[-3000:]
    methods.cluster.kubectl("delete", "daemonset", name)
    assert methods.run("helm").code == 0
