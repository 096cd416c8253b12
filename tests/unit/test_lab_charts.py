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


def test_the_plugin_s_pods_have_an_account_that_may_read_nodes(helm: str) -> None:
    found = _plugin(helm)
    (account,), (role,), (binding,) = (
        _kinds(found, kind) for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    )
    assert ([""], ["nodes"]) in [(rule["apiGroups"], rule["resources"]) for rule in role["rules"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account["metadata"]["name"]]
    accounts = {each["spec"]["template"]["spec"]["serviceAccountName"] for each in _kinds(found, "DaemonSet")}
    assert accounts == {account["metadata"]["name"]}


def test_the_plugin_goes_by_three_labels_and_bears_taints(helm: str) -> None:
    pod = _kinds(_plugin(helm), "DaemonSet")[0]["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = [expression["key"] for term in required["nodeSelectorTerms"] for expression in term["matchExpressions"]]
    feature = "feature.node.kubernetes.io"
    assert labels == [f"{feature}/pci-10de.present", f"{feature}/cpu-model.vendor_id", PRESENT]
    assert {each["key"] for each in pod["tolerations"]} == {"CriticalAddonsOnly", "nvidia.com/gpu"}


def test_the_plugin_s_names_are_cut_at_63_characters(helm: str) -> None:
    # 42 and the longest suffix are 64: gpunode refuses such a name, by which discovery's would lose its last letter.
    name = "a" * 42
    names = [each["metadata"]["name"] for each in _kinds(_plugin(helm, fullnameOverride=name), "DaemonSet")]
    assert max(map(len, names)) == 63 and f"{name}-gpu-feature-discover" in names
    whole = _kinds(_plugin(helm, fullnameOverride="b" * 80, gfd={}, devicePlugin={"enabled": False}), "ServiceAccount")
    assert whole[0]["metadata"]["name"] == f"{'b' * 63}-service-account"


@pytest.mark.parametrize(
    ("values", "variable"),
    [
        ({"migStrategy": "single"}, ("MIG_STRATEGY", "single")),
        ({"deviceListStrategy": "cdi-cri"}, ("DEVICE_LIST_STRATEGY", "cdi-cri")),
        ({"deviceIDStrategy": "index"}, ("DEVICE_ID_STRATEGY", "index")),
        ({"failOnInitError": False}, ("FAIL_ON_INIT_ERROR", "false")),
        ({"compatWithCPUManager": True}, ("PASS_DEVICE_SPECS", "true")),
        ({"nvidiaDriverRoot": "/run/nvidia/driver"}, ("NVIDIA_DRIVER_ROOT", "/run/nvidia/driver")),
        # Its templates read it, and its own values do not list it.
        ({"nvidiaDevRoot": "/run"}, ("NVIDIA_DEV_ROOT", "/run")),
        ({"cdi": {"nvidiaHookPath": "/usr/bin/nvidia-ctk"}}, ("NVIDIA_CDI_HOOK_PATH", "/usr/bin/nvidia-ctk")),
        ({"gdrcopyEnabled": True}, ("GDRCOPY_ENABLED", "true")),
        ({"mps": {"root": "/run/mps"}}, ("MPS_ROOT", "/run/mps")),
    ],
)
def test_a_value_becomes_a_variable(helm: str, values: dict[str, Any], variable: tuple[str, str]) -> None:
    pod = _kinds(_plugin(helm, **values), "DaemonSet")[0]["spec"]["template"]["spec"]
    program = next(each for each in pod["containers"] if each["name"] == "nvidia-device-plugin-ctr")
    assert variable in [(each["name"], each.get("value")) for each in program["env"]]


def test_discovery_reads_its_times_above_gfd(helm: str) -> None:
    found = _plugin(helm, sleepInterval="30s", noTimestamp=True)
    pod = next(each for each in _kinds(found, "DaemonSet") if each["metadata"]["name"].endswith("discovery"))
    variables = {each["name"]: each.get("value") for each in pod["spec"]["template"]["spec"]["containers"][-1]["env"]}
    assert (variables["GFD_SLEEP_INTERVAL"], variables["GFD_NO_TIMESTAMP"]) == ("30s", "true")


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
