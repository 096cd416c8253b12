"""The lab's charts have what NVIDIA's have and a reading of a release may trip over; the real helm renders them.

What the real ones have is in their own files: k8s-device-plugin 0.20.0 and gpu-operator v25.3.4. With these at hand,
tests/real/test_charts.py compares all of it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.kubernetes.nodes.labels import PRESENT
from gpunode.lab.errors import LabError
from gpunode.lab.kubernetes_programs import programs

# Fetches helm where nobody has before.
pytestmark = [pytest.mark.real, pytest.mark.tier2]

CHARTS = Path(__file__).resolve().parents[2] / "lab" / "charts"
CONFIGURED = {"config": {"map": {"none": "version: v1", "mig-mixed": "version: v1"}, "default": "none"}}
DAEMONS = ("nvidia-device-plugin", "gpu-feature-discovery", "mps-control-daemon")
# The pod's own account, the namespaces that are all of them, no signal: each is an empty text.
EMPTY = {"KUBECONFIG", "SIGNAL", "PROCESS_TO_SIGNAL"}


@pytest.fixture(scope="module")
def helm() -> str:
    try:
        return str(programs(3) / "helm")
    except LabError as error:
        pytest.skip(f"helm is not to be had here: {error}")


def _rendered(helm: str, chart: str, values: Mapping[str, Any], name: str = "nvdp") -> list[dict[str, Any]]:
    words = [helm, "template", name, str(CHARTS / chart), "--namespace", "gpu", "--values", "-"]
    done = subprocess.run(words, input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def _kinds(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == kind]


def _plugin(helm: str, **values: Any) -> list[dict[str, Any]]:
    return _rendered(helm, "nvidia-device-plugin", {**CONFIGURED, "gfd": {"enabled": True}, **values})


def _empty_variables(pod: Mapping[str, Any]) -> Iterator[str]:
    for each in (*pod.get("initContainers", ()), *pod["containers"]):
        yield from (variable["name"] for variable in each.get("env", ()) if variable.get("value") == "")


def test_the_plugin_s_pods_copy_their_configuration_before_they_start_and_beside_it(helm: str) -> None:
    pods = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in _kinds(_plugin(helm), "DaemonSet")}
    assert len(pods) == len(DAEMONS)
    for daemon, pod in zip(DAEMONS, (pods[name] for name in _names("nvdp-nvidia-device-plugin")), strict=True):
        assert [each["name"] for each in pod["containers"]] == [f"{daemon}-sidecar", f"{daemon}-ctr"]
        assert f"{daemon}-init" in [each["name"] for each in pod["initContainers"]]
        # An API server drops each of them: a release that has them is as desired all the same.
        assert set(_empty_variables(pod)) == EMPTY
    # Without configurations nothing is copied.
    alone = _rendered(helm, "nvidia-device-plugin", {})
    first = next(each["spec"]["template"]["spec"] for each in _kinds(alone, "DaemonSet"))
    assert not first["initContainers"]
    assert [each["name"] for each in first["containers"]] == ["nvidia-device-plugin-ctr"]


def _names(whole: str) -> tuple[str, ...]:
    return whole, f"{whole}-gpu-feature-discovery", f"{whole}-mps-control-daemon"


def test_the_plugin_may_read_nodes_goes_by_three_labels_and_bears_taints(helm: str) -> None:
    found = _plugin(helm)
    (account,), (role,), (binding,) = (
        _kinds(found, kind) for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    )
    assert ([""], ["nodes"]) in [(rule["apiGroups"], rule["resources"]) for rule in role["rules"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account["metadata"]["name"]]
    pods = [each["spec"]["template"]["spec"] for each in _kinds(found, "DaemonSet")]
    assert {pod["serviceAccountName"] for pod in pods} == {account["metadata"]["name"]}
    required = pods[0]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = [expression["key"] for term in required["nodeSelectorTerms"] for expression in term["matchExpressions"]]
    feature = "feature.node.kubernetes.io"
    assert labels == [f"{feature}/pci-10de.present", f"{feature}/cpu-model.vendor_id", PRESENT]
    assert {each["key"] for each in pods[0]["tolerations"]} == {"CriticalAddonsOnly", "nvidia.com/gpu"}


def test_the_plugin_s_names_are_cut_at_63_characters(helm: str) -> None:
    # 42 and the longest suffix are 64: gpunode refuses such a name, by which discovery's would lose its last letter.
    name = "a" * 42
    names = [each["metadata"]["name"] for each in _kinds(_plugin(helm, fullnameOverride=name), "DaemonSet")]
    assert max(map(len, names)) == 63 and f"{name}-gpu-feature-discover" in names
    whole = _kinds(_plugin(helm, fullnameOverride="b" * 80, gfd={}, devicePlugin={"enabled": False}), "ServiceAccount")
    assert whole[0]["metadata"]["name"] == f"{'b' * 63}-service-account"


def _variables(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in pod["spec"]["template"]["spec"]["containers"][-1]["env"]}


def test_values_become_variables(helm: str) -> None:
    values = {
        "migStrategy": "single", "deviceListStrategy": "cdi-cri", "deviceIDStrategy": "index", "failOnInitError": False,
        "compatWithCPUManager": True, "nvidiaDriverRoot": "/run/nvidia/driver", "gdrcopyEnabled": True,
        "cdi": {"nvidiaHookPath": "/usr/bin/nvidia-ctk"}, "mps": {"root": "/run/mps"},
        # Templates read these, and the chart's own values do not list them: discovery's stand above gfd.
        "nvidiaDevRoot": "/run", "sleepInterval": "30s", "noTimestamp": True,
    }  # fmt: skip
    pods = {each["metadata"]["name"]: each for each in _kinds(_plugin(helm, **values), "DaemonSet")}
    plugin, discovery, _ = (pods[name] for name in _names("nvdp-nvidia-device-plugin"))
    assert _variables(plugin).items() >= {
        "MIG_STRATEGY": "single", "DEVICE_LIST_STRATEGY": "cdi-cri", "DEVICE_ID_STRATEGY": "index",
        "FAIL_ON_INIT_ERROR": "false", "PASS_DEVICE_SPECS": "true", "NVIDIA_DRIVER_ROOT": "/run/nvidia/driver",
        "NVIDIA_DEV_ROOT": "/run", "NVIDIA_CDI_HOOK_PATH": "/usr/bin/nvidia-ctk", "GDRCOPY_ENABLED": "true",
        "MPS_ROOT": "/run/mps",
    }.items()  # fmt: skip
    assert _variables(discovery).items() >= {"GFD_SLEEP_INTERVAL": "30s", "GFD_NO_TIMESTAMP": "true"}.items()


def test_the_operator_has_an_empty_variable_an_empty_toleration_and_a_job_before_each_upgrade(helm: str) -> None:
    found = _rendered(helm, "gpu-operator", {}, "gpu-operator")
    (operator,) = (each["spec"]["template"]["spec"] for each in _kinds(found, "Deployment"))
    assert set(_empty_variables(operator)) == {"WATCH_NAMESPACE"}
    assert "" in [each.get("value") for each in operator["tolerations"]] and operator["affinity"]["nodeAffinity"]
    (container,) = operator["containers"]
    assert container["livenessProbe"] and container["readinessProbe"] and container["resources"]["limits"]
    (job,) = _kinds(found, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    bound = {each["kind"]: each["roleRef"]["name"] for each in found if each["kind"].endswith("Binding")}
    assert bound == {"ClusterRoleBinding": "gpu-operator", "RoleBinding": "gpu-operator"}
    assert operator["serviceAccountName"] in [each["metadata"]["name"] for each in _kinds(found, "ServiceAccount")]


def test_the_charts_list_the_values_that_people_may_set_and_gpunode_sets() -> None:
    plugin = yaml.safe_load((CHARTS / "nvidia-device-plugin" / "values.yaml").read_text())
    assert {"config", "cdi", "mps", "updateStrategy", "priorityClassName", "deviceDiscoveryStrategy"} <= plugin.keys()
    operator = yaml.safe_load((CHARTS / "gpu-operator" / "values.yaml").read_text())
    assert {"daemonsets", "validator", "sandboxWorkloads", "node-feature-discovery", "vgpuManager"} <= operator.keys()
