"""DCGM's exporter by its chart, from nothing and back to it, on one node of two.

    GPUNODE_REAL_CHARTS=/folder/with/charts   has NVIDIA's own chart dcgm-exporter tried in place of the lab's

Real: API server, controllers, scheduler, kubectl, helm. SIMULATED: kubelets, pods and GPUs; the chart is a fixture of
the lab's where nobody gives NVIDIA's. The lab's Kubernetes is 1.20: what the real chart writes for 1.22 is left out by
its own values, and a ServiceMonitor is no kind there.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import KeptRelease, by
from tests.molecule.conftest import CHECKOUT, LAB, Run, command, inventory_with, third_tier
from tests.real.charts import charts

pytestmark = [pytest.mark.real, pytest.mark.simulated, third_tier, pytest.mark.life]

SPACE, NAME, LABEL = "dcgm-exporter", "dcgm-exporter", "gpunode/dcgm-exporter"
RELEASE, LABELLED, POD = f"helm release {SPACE}/{NAME}", f"label {LABEL}", f"pod of {NAME}"
KEPT = "Keep the releases of other device plugins and of DCGM's exporter"
OURS = ("device_plugin", "dcgm", "dcgm_exporter_chart")
_PATIENCE_S = 30
_THEIRS = """apiVersion: apps/v1
kind: DaemonSet
metadata: {name: theirs, namespace: default}
spec:
  selector: {matchLabels: {app: theirs}}
  template:
    metadata: {labels: {app: theirs}}
    spec:
      containers:
      - {name: exporter, image: "registry.invalid/mirror/dcgm-exporter:4.5.3-4.8.2-distroless"}
"""


def _chart() -> dict[str, Any]:
    """Return where the chart is, and its version: NVIDIA's newest where a person gave it, else the lab's."""
    given = charts(NAME)
    fixture = CHECKOUT / "lab" / "charts" / NAME
    version = yaml.safe_load((fixture / "Chart.yaml").read_text())["version"]
    found = {"chart": str(given[-1].path), "version": given[-1].version} if given else {"chart": str(fixture)}
    return {"version": version, **found, "values": {"service": {"enable": False}, "rollingUpdate": None}}


class Exported:
    """Run the deploy of the cluster with the exporter on the first node, and none on the other."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.folder, self.cluster = folder, KeptRelease(kubeconfig, programs(3), SPACE)
        self.names = [node.name for node in lab_nodes.nodes(LAB)]
        self.first = self.names[0]

    def inventory(self, wanted: bool, more: dict[str, Any], **chart: Any) -> str:
        found: dict[str, dict[str, object]] = {}
        for name in self.names:
            found[name] = {
                "kubernetes": by(self.cluster.kubeconfig, programs(3), 45),
                "device_plugin": {"method": "none"},
                # What the tests before left there of the node's own is no matter.
                **{each: {"enabled": False} for each in ("driver", "cuda", "toolkit", "containerd")},
                "dcgm_exporter_chart": {"enabled": wanted and name == self.first, **_chart(), **chart},
                **(more if name == self.first else {}),
            }
        return inventory_with(self.folder, found)

    def run(self, wanted: bool = True, deploy: str = "deploys/device_plugin.py", **chart: Any) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(wanted, {}, **chart), deploy)

    def drift(self, wanted: bool = True) -> dict[str, str]:
        """Return what drift says of the nodes and the cluster that is not as desired, with its cause."""
        run = command("gpunode", "drift", self.inventory(wanted, {}), "--json")
        every = [each for found in run.findings.values() for each in found if each["component"] in OURS]
        return {each["what"]: each["cause"] or "" for each in every if each["class"] != "ok"}

    def pods(self) -> dict[str, bool]:
        """Return the nodes on which the exporter's pods are, and whether each is ready."""
        words = ("get", "pods", "--selector", f"app.kubernetes.io/name={NAME}", "--output", "json")
        return {
            each["spec"].get("nodeName"): any(
                (one["type"], one["status"]) == ("Ready", "True") for one in each["status"].get("conditions", ())
            )
            for each in json.loads(self.cluster.kubectl(*words))["items"]
        }

    def revisions(self) -> int:
        done = self.cluster.helm("history", NAME, "--output", "json")
        return len(json.loads(done.stdout)) if done.returncode == 0 else 0

    def labelled(self) -> list[str]:
        return [name for name in self.names if LABEL in self.cluster.live("node", name)["metadata"]["labels"]]

    def spaces(self) -> str:
        return self.cluster.kubectl("get", "namespaces", "--output", "name")


@pytest.fixture
def exported(kubeconfig: Path, tmp_path: Path) -> Exported:
    return Exported(kubeconfig, tmp_path)


def test_a_service_monitor_that_the_cluster_cannot_have_is_told_before_helm_runs(exported: Exported) -> None:
    run = exported.run(service_monitor=True)
    assert run.code != 0 and "ServiceMonitor" in run.printed, run.printed[-3000:]
    assert "set dcgm_exporter_chart.service_monitor = False" in run.printed
    assert exported.revisions() == 0 and exported.labelled() == [] and SPACE not in exported.spaces()


def test_the_exporter_comes_to_the_node_that_is_to_have_it_and_the_verdict_sees_its_pod(exported: Exported) -> None:
    run = exported.run()
    assert run.code == 0 and KEPT in run.operations("success"), run.printed[-3000:]
    assert exported.labelled() == [exported.first]
    verdict = exported.run(deploy="deploys/verify_cluster.py")
    assert verdict.code == 0, verdict.printed[-3000:]
    assert exported.pods() == {exported.first: True}
    pod = exported.cluster.live("daemonset", NAME)["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {LABEL: "true"}
    assert {"name": "DCGM_EXPORTER_INTERVAL", "value": "30000"} in pod["containers"][0]["env"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_the_second_run_of_the_exporter_changes_nothing_and_drift_finds_nothing(exported: Exported) -> None:
    run = exported.run()
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
    assert exported.revisions() == 1 and exported.drift() == {}


def test_an_exporter_edited_by_hand_and_a_label_that_was_taken_off_are_found_and_healed(exported: Exported) -> None:
    exported.cluster.kubectl("set", "image", f"daemonset/{NAME}", "exporter=by/hand:1")
    exported.cluster.kubectl("label", "node", exported.first, f"{LABEL}-")
    deadline = time.monotonic() + _PATIENCE_S
    while exported.pods() and time.monotonic() < deadline:
        time.sleep(0.5)
    found = exported.drift()
    assert found.keys() == {RELEASE, LABELLED, POD}, found
    assert "changed by hand" in found[RELEASE] and "by/hand:1" in found[RELEASE]
    run = exported.run()
    assert run.code == 0, run.printed[-3000:]
    assert exported.run(deploy="deploys/verify_cluster.py").code == 0
    assert exported.drift() == {} and exported.run().operations("success") == {}


def test_a_second_exporter_of_whoever_is_refused_with_its_key_and_reason(exported: Exported) -> None:
    before = exported.revisions()
    both = {"dcgm": {"enabled": True, "exporter": {"enabled": True}}}
    checked = command("gpunode", "check", exported.inventory(True, both))
    assert checked.code != 0 and "dcgm_exporter_chart.enabled" in checked.printed, checked.printed
    assert "dcgm.exporter.enabled = True" in " ".join(checked.printed.split())
    manifest = exported.folder / "theirs.yaml"
    manifest.write_text(_THEIRS)
    exported.cluster.kubectl("create", "--namespace", "default", "--filename", str(manifest))
    try:
        found = exported.drift()
        assert found.keys() == {"second exporter"} and "DaemonSet default/theirs takes" in found["second exporter"]
        run = exported.run()
        assert run.code != 0 and "kubectl -n default delete daemonset theirs" in run.printed, run.printed[-3000:]
    finally:
        exported.cluster.kubectl("delete", "daemonset", "theirs", "--namespace", "default")
    assert exported.revisions() == before and exported.drift() == {}


def test_an_exporter_that_is_no_longer_asked_for_leaves_nothing_behind(exported: Exported) -> None:
    run = exported.run(wanted=False)
    assert run.code == 0 and "dcgm-exporter" in run.printed, run.printed[-3000:]
    assert exported.revisions() == 0 and exported.labelled() == []
    kinds = "daemonsets.apps,configmaps,roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io"
    left = exported.cluster.kubectl("get", kinds, "--output", "name").split()
    assert [each for each in left if "kube-root-ca" not in each] == []
    records = exported.cluster.kubectl("get", "configmaps", "--namespace", "kube-system", "--output", "name")
    assert "gpunode-release-dcgm-exporter" not in records
    assert exported.drift(wanted=False) == {}
    again = exported.run(wanted=False)
    assert (again.code, again.operations("success")) == (0, {}), again.printed[-3000:]
    exported.cluster.kubectl("delete", "namespace", SPACE)
