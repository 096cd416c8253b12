"""Device plugins other than NVIDIA's: one for RDMA, one of a manifest, one of a chart, from nothing and back to it.

Real: API server, controllers, scheduler, kubectl, helm, the node's shell. SIMULATED: the kubelets and the pods, the
node's RDMA device (a folder that is bound over /sys/class), and what the plugins would offer, which the tests write
into the node's capacity.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import CLUSTER
from gpunode.kubernetes.objects.own_objects import KINDS, METHOD
from gpunode.kubernetes.other_plugins.desired import NAME
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import KeptRelease, by
from tests.molecule.conftest import LAB, Run, command, inventory_with, third_tier

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life]

VERDICT = "deploys/verify_cluster.py"
SPACE = "kube-system"
RDMA, FPGA, USB = (f"gpunode/device-plugin.{name}" for name in ("rdma-shared", "fpga", "usb"))
OFFERED = {"rdma/hca_a": "64", "example.com/fpga": "2"}
_PATIENCE_S = 30
_PLUGIN = """apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: {name}, namespace: {space}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      nodeSelector: {{{selector}}}
      containers:
      - {{name: {name}, image: "registry.invalid/{name}:1.0"}}
"""
_ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: fpga, namespace: kube-system}\n---\n"
# As the kernel shows a ConnectX-5; it is bound over /sys/class, whose links lead where they led before.
_SIMULATED = """set -e
mkdir -p /run/simulated-class /dev/infiniband
# The links alone: a file there may do something where it is read (zram-control/hot_add).
for each in /sys/class/*/; do
  mkdir -p "/run/simulated-class/$(basename "$each")"
  find "$each" -mindepth 1 -maxdepth 1 -type l -exec cp -P -t "/run/simulated-class/$(basename "$each")" {} +
done
cd /run/simulated-class
mkdir -p infiniband/mlx5_0/ports/1 infiniband/mlx5_0/device/net/ib0 infiniband_mad/umad0 infiniband_verbs/uverbs0
echo mlx5_0 | tee infiniband_mad/umad0/ibdev > infiniband_verbs/uverbs0/ibdev
printf 'DRIVER=mlx5_core\\nPCI_SLOT_NAME=0000:3b:00.0\\n' > infiniband/mlx5_0/device/uevent
echo 0x15b3 > infiniband/mlx5_0/device/vendor
echo 0x1017 > infiniband/mlx5_0/device/device
echo 0x020700 > infiniband/mlx5_0/device/class
echo 32 > infiniband/mlx5_0/device/net/ib0/type
echo '4: ACTIVE' > infiniband/mlx5_0/ports/1/state
echo InfiniBand > infiniband/mlx5_0/ports/1/link_layer
touch /dev/infiniband/rdma_cm
mount --bind /run/simulated-class /sys/class
"""


class Plugins:
    """Run the deploy of the cluster with plugins on the first node, and none on the others."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.folder, self.cluster = folder, KeptRelease(kubeconfig, programs(3), SPACE)
        self.names = [node.name for node in lab_nodes.nodes(LAB)]
        self.first = self.names[0]

    def inventory(self, of_first: dict[str, Any], of_others: dict[str, Any] | None = None) -> str:
        found: dict[str, dict[str, object]] = {}
        for name in self.names:
            own = of_first if name == self.first else of_others or {}
            more = {"device_plugins": own.get("device_plugins", {})}
            found[name] = {
                "kubernetes": by(self.cluster.kubeconfig, programs(3), 45, **more),
                "device_plugin": {"method": "none"},
                # What the tests before left there of the node's own is no matter.
                **{name: {"enabled": False} for name in ("driver", "cuda", "toolkit", "containerd")},
                **({"rdma_shared_device_plugin": own["rdma"]} if "rdma" in own else {}),
            }
        return inventory_with(self.folder, found)

    def run(self, of_first: dict[str, Any], deploy: str = "deploys/device_plugin.py", **others: Any) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(of_first, others), deploy)

    def drift(self, of_first: dict[str, Any]) -> dict[str, str]:
        """Return what drift says of the first node and the cluster that is not as desired, with its cause."""
        run = command("gpunode", "drift", self.inventory(of_first), "--json")
        ours = ("device_plugin", "rdma_shared_device_plugin")
        every = run.findings[self.first] + run.findings[CLUSTER]
        return {each["what"]: each["cause"] for each in every if each["class"] != "ok" and each["component"] in ours}

    def desired(self, vendor: str = "15b3") -> dict[str, Any]:
        """Return the plugins that the first node is to have."""
        manifest = self.folder / "fpga.yaml"
        manifest.write_text(_ACCOUNT + _PLUGIN.format(name="fpga", space=SPACE, selector=""))
        chart = self.folder / "usb"
        (chart / "templates").mkdir(parents=True, exist_ok=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: usb-plugin\nversion: 1.2.3\n")
        selector = f'{USB}: "true"'
        (chart / "templates" / "plugin.yaml").write_text(_PLUGIN.format(name="usb", space="usb", selector=selector))
        resource = {"vendors": [vendor], "link_types": ["infiniband"], "count": 64}
        return {
            "rdma": {
                "enabled": True,
                "image": "registry.invalid/rdma-plugin:v1.5.3",
                "resources": {"rdma/hca_a": resource},
            },
            "device_plugins": {
                "fpga": {"manifest": str(manifest), "resources": {"example.com/fpga": 2}},
                "usb": {"chart": str(chart), "version": "1.2.3", "namespace": "usb"},
            },
        }

    def labels(self, name: str) -> set[str]:
        found = self.cluster.live("node", name)["metadata"]["labels"]
        return {each for each in found if each.startswith("gpunode/device-plugin.")}

    def own(self) -> list[str]:
        """Return the objects of these plugins, of any kind that gpunode makes."""
        words = ("get", ",".join(KINDS), "--all-namespaces", "--selector", METHOD, "--output", "json")
        items = json.loads(self.cluster.kubectl(*words))["items"]
        return sorted(
            f"{each['kind']} {each['metadata']['name']}"
            for each in items
            if each["metadata"]["labels"][METHOD].startswith("plugin.")
        )

    def pods(self, label: str, space: str = SPACE) -> set[str]:
        """Return the nodes on which a plugin's pods are."""
        words = ("get", "pods", "--namespace", space, "--selector", label, "--output", "json")
        return {each["spec"].get("nodeName") for each in json.loads(self.cluster.kubectl(*words))["items"]}

    def releases(self) -> list[str]:
        done = self.cluster.helm("list", "--all-namespaces", "--output", "json")
        return [each["name"] for each in json.loads(done.stdout) if each["name"] == "usb"]


@pytest.fixture(scope="module")
def node() -> Iterator[lab_nodes.Node]:
    """Return the node that has an RDMA device, SIMULATED."""
    found = lab_nodes.nodes(LAB)[0]
    done = lab_nodes.run(found, _SIMULATED)
    assert done.returncode == 0, done.stdout + done.stderr
    yield found
    lab_nodes.run(found, "umount /sys/class; rm -rf /run/simulated-class /dev/infiniband/rdma_cm")


@pytest.fixture
def plugins(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory, node: lab_nodes.Node) -> Plugins:
    return Plugins(kubeconfig, tmp_path_factory.getbasetemp())


def test_three_plugins_come_to_the_node_that_is_to_have_them_and_to_no_other(plugins: Plugins) -> None:
    run = plugins.run(plugins.desired())
    assert run.code == 0, run.printed[-3000:]
    assert plugins.labels(plugins.first) == {RDMA, FPGA, USB} and plugins.labels(plugins.names[1]) == set()
    assert plugins.own() == [
        "ConfigMap gpunode-rdma-shared-device-plugin",
        "ConfigMap gpunode-release-usb",
        "DaemonSet fpga",
        "DaemonSet gpunode-rdma-shared-device-plugin",
        "ServiceAccount fpga",
    ]
    assert plugins.releases() == ["usb"]
    configuration = json.loads(plugins.cluster.live("configmap", NAME)["data"]["config.json"])
    assert configuration["configList"] == [
        {
            "resourcePrefix": "rdma",
            "resourceName": "hca_a",
            "rdmaHcaMax": 64,
            "selectors": {"vendors": ["15b3"], "linkTypes": ["infiniband"]},
        }
    ]
    deadline = time.monotonic() + _PATIENCE_S
    every = (("app=fpga", SPACE), (f"app.kubernetes.io/name={NAME}", SPACE), ("app=usb", "usb"))
    while any(plugins.pods(*each) != {plugins.first} for each in every) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [plugins.pods(*each) for each in every] == [{plugins.first}] * 3


def test_the_second_run_changes_nothing_of_them(plugins: Plugins) -> None:
    run = plugins.run(plugins.desired())
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]


def test_the_verdict_waits_for_what_they_offer(plugins: Plugins) -> None:
    found = plugins.drift(plugins.desired())
    assert set(found) == {f"allocatable {name}" for name in OFFERED}, found
    # SIMULATED: what the plugins would have the kubelet report.
    text = json.dumps({"status": {"capacity": OFFERED}})
    plugins.cluster.kubectl("patch", "node", plugins.first, "--subresource=status", "--type", "merge", "--patch", text)
    run = plugins.run(plugins.desired(), VERDICT)
    assert run.code == 0, run.printed[-3000:]
    assert plugins.drift(plugins.desired()) == {}


def test_what_was_edited_by_hand_is_found_and_healed(plugins: Plugins) -> None:
    cluster = plugins.cluster
    cluster.kubectl("set", "image", "daemonset/fpga", "fpga=by/hand:2")
    cluster.kubectl("delete", "configmap", NAME)
    paused = json.dumps({"spec": {"template": {"spec": {"containers": [{"name": "usb", "image": "by/hand:2"}]}}}})
    cluster.kubectl("patch", "daemonset", "usb", "--namespace", "usb", "--patch", paused)
    found = plugins.drift(plugins.desired())
    assert set(found) == {"gpunode's objects", "helm release usb/usb"}, found
    assert "by/hand:2" in found["gpunode's objects"] and NAME in found["gpunode's objects"]
    assert "changed by hand" in found["helm release usb/usb"]
    run = plugins.run(plugins.desired())
    assert run.code == 0, run.printed[-3000:]
    assert plugins.drift(plugins.desired()) == {}
    assert plugins.run(plugins.desired()).operations("success") == {}


def test_a_selector_that_fits_no_device_of_the_node_is_refused_by_name(plugins: Plugins) -> None:
    before = plugins.own(), plugins.cluster.live("configmap", NAME)["metadata"]["resourceVersion"]
    # Alone: another node of the run would bring the cluster what all of them ask.
    inventory = plugins.inventory(plugins.desired(vendor="8086"))
    run = command("pyinfra", "-y", "--json", "--limit", plugins.first, inventory, "deploys/device_plugin.py")
    assert run.code != 0 and "vendors 8086" in run.printed
    assert "mlx5_0 (15b3:1017, mlx5_core, ib0 infiniband, port 1 ACTIVE)" in run.printed
    assert (plugins.own(), plugins.cluster.live("configmap", NAME)["metadata"]["resourceVersion"]) == before
    (plugins.folder / "bad.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
    bad = {"device_plugins": {"fpga": {"manifest": str(plugins.folder / "bad.yaml")}}}
    run = plugins.run(bad)
    assert run.code != 0 and "bad.yaml:1: Namespace is refused" in run.printed, run.printed[-3000:]


def test_what_is_no_longer_asked_for_leaves_nothing_behind(plugins: Plugins) -> None:
    run = plugins.run({})
    assert run.code == 0, run.printed[-3000:]
    assert plugins.own() == [] and plugins.releases() == [] and plugins.labels(plugins.first) == set()
    assert plugins.drift({}) == {}
    again = plugins.run({})
    assert (again.code, again.operations("success")) == (0, {}), again.printed[-3000:]
    gone = json.dumps([{"op": "remove", "path": f"/status/capacity/{name.replace('/', '~1')}"} for name in OFFERED])
    plugins.cluster.kubectl("patch", "node", plugins.first, "--subresource=status", "--type", "json", "--patch", gone)
    plugins.cluster.kubectl("delete", "namespace", "usb")
