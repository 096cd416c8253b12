"""The method `gpu-operator`: the operator's release beside the plugin's own; helm and kubectl are SIMULATED in runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpunode.cli.cluster import cluster as command
from gpunode.kubernetes.device_plugin.others import parse_plugins
from gpunode.kubernetes.nodes.labels import CONFIG, SERVED_BY, wanted_labels
from gpunode.settings import settings_from
from tests.support.device_plugin_deploy import cluster, data, run
from tests.support.messages import unnamed
from tests.support.other_methods import NODE, NVIDIA, OF_HELM, _daemon_set, _listed, in_the_way
from tests.support.simulated_cluster import SimulatedCluster

__all__ = ["cluster"]
pytestmark = pytest.mark.pure
PLUGIN: dict[str, Any] = {"method": "gpu-operator", "nfd": "chart"}
OPERATED: dict[str, Any] = {**NODE, "device_plugin": PLUGIN}
OF_POLICY = {"ownerReferences": [{"kind": "ClusterPolicy"}], "namespace": "gpu-operator"}
ON_POLICY = {"namespace": "theirs", "ownerReferences": [{"kind": "ClusterPolicy"}]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia-device-plugin-daemonset", "devicePlugin.enabled"),
        ("nvidia-driver-daemonset", "driver.enabled"),
        ("nvidia-container-toolkit-daemonset", "toolkit.enabled"),
    ],
)
@pytest.mark.parametrize("method", ["helm", "gpu-operator"])
def test_another_operator_that_does_gpunode_s_work_is_refused(method: str, name: str, value: str) -> None:
    settings = settings_from({**NODE, "device_plugin": {"method": method, "nfd": "present"}})
    image = NVIDIA if "plugin" in name else "nvcr.io/x/y:1"
    (told,) = in_the_way(settings, {}, parse_plugins(_listed(_daemon_set(name, image, None, **ON_POLICY))))
    assert unnamed(told, f"theirs/{name}", value) == []


def test_a_driver_that_an_operator_brings_by_an_nvidiadriver_is_refused_with_its_name_in_the_remedy() -> None:
    name, owner = "nvidia-gpu-driver-ubuntu22.04-7c6d7bd86b", {"kind": "NVIDIADriver", "name": "demo-gold"}
    driver = {"namespace": "theirs", "ownerReferences": [owner]}
    plugins = parse_plugins(_listed(_daemon_set(name, "nvcr.io/nvidia/driver:525.85.03-ubuntu22.04", None, **driver)))
    (told,) = in_the_way(settings_from(NODE), {}, plugins)
    assert unnamed(told, f"theirs/{name}", "driver.enabled") == []
    assert unnamed(told, "nvidiadriver", "demo-gold") == []
    # A DaemonSet of that name that no operator made is none of its driver.
    assert not parse_plugins(_listed(_daemon_set(name, "own/x:1", None, namespace="theirs")))


def test_the_mig_manager_of_an_operator_is_in_the_way_where_gpunode_applies_layouts_alone() -> None:
    manager = parse_plugins(_listed(_daemon_set("nvidia-mig-manager", "nvcr.io/x/y:1", None, **ON_POLICY)))
    sliced = {"mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"}}
    assert not list(in_the_way(settings_from(NODE), {}, manager))
    assert list(in_the_way(settings_from({**NODE, **sliced}), {}, manager))


def test_what_gpunode_s_own_releases_run_is_in_nobody_s_way() -> None:
    settings = settings_from(OPERATED)
    chart = _daemon_set("nvdp", NVIDIA, None, **{**OF_HELM, "namespace": "nvidia-device-plugin"})
    # Switched on by hand: the release is put right in the same run.
    by_hand = _daemon_set("nvidia-device-plugin-daemonset", NVIDIA, None, **OF_POLICY)
    plugins = parse_plugins(_listed(chart, by_hand))
    assert not list(in_the_way(settings, wanted_labels(settings), plugins))
    (told,) = in_the_way(settings_from(NODE), {}, plugins)
    assert unnamed(told, "gpu-operator") == []


def _hosts(cluster: SimulatedCluster, *methods: str) -> dict[str, dict[str, Any]]:
    every = ((f"gpu-{number}", {**PLUGIN, "method": method}) for number, method in enumerate(methods, 1))
    return {name: data(cluster, name, device_plugin=plugin) for name, plugin in every}


@pytest.mark.tier2
def test_both_releases_come_once_and_the_operator_goes(cluster: SimulatedCluster, tmp_path: Path) -> None:
    both = _hosts(cluster, "gpu-operator", "gpu-operator")
    done = run(tmp_path, both)
    assert done.code == 0, done.said
    assert [len(cluster.state()[each]) for each in ("operator", "revisions")] == [1, 1]
    assert cluster.labels("gpu-1") == {CONFIG: "none", SERVED_BY: "gpu-operator"}
    second = run(tmp_path, both)
    assert second.code == 0 and "Success" not in second.said and cluster.called("helm upgrade") == 2
    # One of two nodes goes: the other one needs it.
    half = _hosts(cluster, "helm", "gpu-operator")
    assert run(tmp_path, half).code == 0 and cluster.state()["operator"]
    assert SERVED_BY not in cluster.labels("gpu-1")
    chart = _hosts(cluster, "helm", "helm")
    assert run(tmp_path, chart).code == 0
    assert not cluster.state()["operator"] and cluster.state()["revisions"]
    assert run(tmp_path, chart, "--dry").changes == []


@pytest.mark.tier2
@pytest.mark.parametrize("device", ["pci-0302_10de_2330", "pci-0302_10de"])
def test_a_node_without_the_operator_s_label_is_refused(cluster: SimulatedCluster, tmp_path: Path, device: str) -> None:
    found = f"feature.node.kubernetes.io/{device}.present"
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["metadata"]["labels"][found] = "true"
    cluster.write(nodes=nodes)
    asked = _hosts(cluster, "gpu-operator")
    asked["gpu-1"]["device_plugin"]["nfd"] = "present"
    done = run(tmp_path, asked)
    if device == "pci-0302_10de":
        assert done.code == 0 and cluster.state()["operator"]
    else:
        assert done.code == 1 and unnamed(done.said, found) == [] and "deviceLabelFields" in done.said
        assert not cluster.state()["operator"] and cluster.labels("gpu-1") == {found: "true"}


@pytest.mark.tier2
def test_a_release_that_fails_names_the_operator_s_own_settings(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(failures={"helm show chart gpu-operator": "chart gpu-operator not found"})
    done = run(tmp_path, _hosts(cluster, "gpu-operator"))
    assert done.code == 1 and unnamed(done.said, "gpu_operator.chart") == []
    assert cluster.labels("gpu-1") == {}


def test_the_command_line_prints_the_operator_s_release(tmp_path: Path) -> None:
    file = tmp_path / "inventory.py"
    file.write_text(f"nodes = {[('gpu-1', OPERATED)]!r}\n")
    found = yaml.safe_load(CliRunner().invoke(command, [str(file)]).output)
    assert found["release"] == "nvdp" and found["gpu_operator"]["chart"] == "gpu-operator"
    assert found["gpu_operator"]["values"]["driver"] == {"enabled": False}
