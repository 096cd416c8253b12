"""The methods without NVIDIA's chart in a run: pyinfra itself on its @fake hosts, helm and kubectl SIMULATED."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpunode.cli.cluster import cluster as command
from tests.support.device_plugin_deploy import CONFIG, PRESENT, cluster, data, run
from tests.support.messages import unnamed
from tests.support.other_methods import NVIDIA, OF_HELM, _daemon_set
from tests.support.simulated_cluster import SimulatedCluster

__all__ = ["cluster"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]
THEIRS = {"scheduler": "theirs"}


def hosts(cluster: SimulatedCluster, *methods: str, **more: Any) -> dict[str, dict[str, Any]]:
    """Return a host for each method."""
    every = ((f"gpu-{number}", {"method": method}) for number, method in enumerate(methods, 1))
    return {name: data(cluster, name, device_plugin=plugin, gpushare=THEIRS, **more) for name, plugin in every}


def own(cluster: SimulatedCluster) -> set[str]:
    """Return the kinds and names of gpunode's objects."""
    return set(cluster.state()["own"])


@pytest.mark.parametrize("method", ["gpushare", "manifest"])
def test_a_method_is_brought_about_once(cluster: SimulatedCluster, tmp_path: Path, method: str) -> None:
    asked = hosts(cluster, method, method)
    assert run(tmp_path, asked).code == 0
    expected = {"gpushare": "true"} if method == "gpushare" else {CONFIG: "none", "gpunode/way": "manifest"}
    assert cluster.labels("gpu-1") == cluster.labels("gpu-2") == expected
    plugin = "gpushare-device-plugin" if method == "gpushare" else "gpunode-device-plugin-none"
    assert f"daemonset/{plugin}" in own(cluster) and cluster.called("kubectl apply") == 1
    assert not cluster.state()["revisions"]
    second = run(tmp_path, asked)
    assert second.code == 0 and "Success" not in second.said and cluster.called("kubectl apply") == 1
    assert run(tmp_path, asked, "--dry").changes == []


def test_nvidia_s_plugin_goes_before_gpushare_comes(cluster: SimulatedCluster, tmp_path: Path) -> None:
    chart, shared = hosts(cluster, "helm", "helm"), hosts(cluster, "gpushare", "gpushare")
    assert run(tmp_path, chart).code == 0 and len(cluster.state()["revisions"]) == 1
    assert run(tmp_path, shared).code == 0
    calls = [" ".join(each[:2]) for each in cluster.state()["calls"]]
    assert calls.index("helm uninstall") < calls.index("kubectl apply") and not cluster.state()["revisions"]
    assert cluster.labels("gpu-1") == {"gpushare": "true"} and "daemonset/gpushare-device-plugin" in own(cluster)
    assert run(tmp_path, chart).code == 0
    assert len(cluster.state()["revisions"]) == 1 and own(cluster) == set()
    assert cluster.labels("gpu-1") == {CONFIG: "none", PRESENT: "true"}


@pytest.mark.parametrize("before", ["helm", "manifest"])
def test_a_method_stays_with_a_node_until_its_own_run(cluster: SimulatedCluster, tmp_path: Path, before: str) -> None:
    after = "gpushare" if before == "helm" else "helm"
    run(tmp_path, hosts(cluster, before, before))
    asked, there, labels = hosts(cluster, after, after), own(cluster), cluster.labels("gpu-2")
    assert run(tmp_path, asked, "--limit", "@fake/gpu-1", "-y").code == 0
    assert cluster.called("helm uninstall") == 0 and cluster.state()["revisions"]
    assert there <= own(cluster) and cluster.labels("gpu-2") == labels != cluster.labels("gpu-1")
    assert run(tmp_path, asked, "--limit", "@fake/gpu-2", "-y").code == 0
    assert cluster.labels("gpu-2") == cluster.labels("gpu-1")
    assert not (cluster.state()["revisions"] if before == "helm" else own(cluster) - {"namespace/nvidia-device-plugin"})


def test_a_node_that_failed_keeps_the_plugin_of_its_former_way(cluster: SimulatedCluster, tmp_path: Path) -> None:
    run(tmp_path, hosts(cluster, "helm", "helm"))
    asked = hosts(cluster, "gpushare", "gpushare")
    asked["gpu-2"]["x_fails"] = True
    assert run(tmp_path, asked).failed == ["gpu-2"]
    assert cluster.state()["revisions"] and PRESENT in cluster.labels("gpu-2")
    assert cluster.labels("gpu-1") == {"gpushare": "true"}


def test_a_node_that_a_remaining_release_takes_is_refused(cluster: SimulatedCluster, tmp_path: Path) -> None:
    run(tmp_path, hosts(cluster, "helm", "helm"))
    terms = [{"matchExpressions": [{"key": "nfd", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    chart = _daemon_set("nvdp", NVIDIA, {"affinity": {"nodeAffinity": required}}, **OF_HELM)
    chart["metadata"]["namespace"] = "nvidia-device-plugin"
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["metadata"]["labels"]["nfd"] = "true"
    nodes["gpu-2"]["metadata"]["labels"]["team"] = "a"
    foreign = _daemon_set("foreign", NVIDIA, {"nodeSelector": {"team": "a"}})
    cluster.write(nodes=nodes, objects={"daemonsets.apps": [chart, foreign]})
    # gpu-2 is refused for the foreign one, so that the release stays, which would then take gpu-1 as well.
    done = run(tmp_path, hosts(cluster, "gpushare", "gpushare"))
    assert done.code == 1 and "gpu-1" in done.said
    assert cluster.state()["revisions"] and PRESENT in cluster.labels("gpu-1")


def test_a_sharing_stays_with_a_node_until_its_own_run(cluster: SimulatedCluster, tmp_path: Path) -> None:
    run(tmp_path, hosts(cluster, "manifest", "manifest"))
    shared = {"strategy": "time-slicing", "replicas": 5}
    asked = hosts(cluster, "manifest", "manifest", sharing=shared)
    for _ in range(2):
        assert run(tmp_path, asked, "--limit", "@fake/gpu-1", "-y").code == 0
        assert "daemonset/gpunode-device-plugin-none" in own(cluster)
        assert set(cluster.state()["own"]["configmap/gpunode-device-plugin"]["data"]) == {"none", "time-slicing-5"}
        assert cluster.called("kubectl apply") == 2
    assert run(tmp_path, asked).code == 0
    assert "daemonset/gpunode-device-plugin-none" not in own(cluster)
    assert set(cluster.state()["own"]["configmap/gpunode-device-plugin"]["data"]) == {"time-slicing-5"}


def test_the_objects_of_another_inventory_of_the_same_cluster_stay(cluster: SimulatedCluster, tmp_path: Path) -> None:
    run(tmp_path, hosts(cluster, "manifest"))
    there = own(cluster)
    done = run(tmp_path, {"gpu-2": data(cluster, "gpu-2", device_plugin={"method": "none"})})
    assert done.code == 0 and own(cluster) == there


def test_a_release_without_labelled_nodes_stays(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(revisions=["somebody's"])
    assert run(tmp_path, hosts(cluster, "gpushare", "gpushare")).code == 0
    assert cluster.state()["revisions"] == ["somebody's"] and cluster.called("helm") == 0


@pytest.mark.parametrize("method", ["gpushare", "manifest", "helm"])
def test_a_node_that_another_plugin_takes_is_refused(cluster: SimulatedCluster, tmp_path: Path, method: str) -> None:
    there = _daemon_set("nvidia-device-plugin-daemonset", NVIDIA, {"nodeSelector": {"team": "a"}})
    state = cluster.state()
    state["nodes"]["gpu-1"]["metadata"]["labels"]["team"] = "a"
    cluster.write(nodes=state["nodes"], objects={"daemonsets.apps": [there]})
    done = run(tmp_path, hosts(cluster, method, method))
    assert done.code == 1 and done.failed == ["gpu-1"]
    assert unnamed(done.said, "nvidia-device-plugin-daemonset") == []
    assert "team" in cluster.labels("gpu-1") and len(cluster.labels("gpu-1")) == 1
    assert len(cluster.labels("gpu-2")) >= 1


def test_an_object_of_somebody_else_s_stays(cluster: SimulatedCluster, tmp_path: Path) -> None:
    metadata = {"name": "gpushare-schd-extender", "namespace": "kube-system"}
    foreign = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    cluster.write(own={"serviceaccount/gpushare-schd-extender": foreign})
    done = run(tmp_path, hosts(cluster, "gpushare"))
    assert done.code == 1 and cluster.called("kubectl apply") == 0
    assert unnamed(done.said, "kube-system/gpushare-schd-extender") == []
    assert cluster.labels("gpu-1") == {}


def test_a_workload_that_does_not_run_in_time(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(failures={"kubectl rollout": "timed out waiting for the condition"})
    done = run(tmp_path, hosts(cluster, "gpushare"))
    assert done.code == 1 and unnamed(done.said, "kubernetes.timeout") == []


def test_a_node_that_is_down_fails_no_run_that_has_nothing_to_change(cluster: SimulatedCluster, tmp_path: Path) -> None:
    asked = hosts(cluster, "manifest", "manifest")
    run(tmp_path, asked)
    state = cluster.state()
    counts = {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}
    state["own"]["daemonset/gpunode-device-plugin-none"]["status"] = counts
    cluster.write(own=state["own"], failures={"kubectl rollout": "timed out waiting for the condition"})
    assert run(tmp_path, asked, "--dry").changes == []
    assert run(tmp_path, asked).code == 0


def test_a_runtime_class_is_made_for_the_other_ways_too(cluster: SimulatedCluster, tmp_path: Path) -> None:
    assert run(tmp_path, hosts(cluster, "manifest", containerd={"default_runtime": "runc"})).code == 0
    assert cluster.state()["runtime_class"]["handler"] == "nvidia"
    plugin = cluster.state()["own"]["daemonset/gpunode-device-plugin-none"]
    assert plugin["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"


def test_the_command_line_prints_what_the_other_ways_bring(tmp_path: Path) -> None:
    shared = {"device_plugin": {"method": "gpushare"}, "gpushare": {"schedulers": ["cp-1"]}}
    file = tmp_path / "inventory.py"
    file.write_text(f"nodes = {[('gpu-1', {'kubernetes': {'enabled': True}, **shared}), ('cp-1', {})]!r}\n")
    done = CliRunner().invoke(command, [str(file)])
    assert done.exit_code == 0, done.output
    found = yaml.safe_load(done.output)
    assert found["scheduler"] == {"hosts": ["cp-1"], "asks": "http://127.0.0.1:32766/gpushare-scheduler"}
    assert found["labels"] == {"gpu-1": {"gpushare": "true"}} and "values" not in found
    assert "DaemonSet" in {each["kind"] for each in found["objects"]}
    as_json = CliRunner().invoke(command, [str(file), "--json"])
    document = json.loads(as_json.output)
    assert {name: document[name] for name in found} == found
    values = CliRunner().invoke(command, [str(file), "--values"])
    assert values.exit_code == 2 and "'helm'" in values.output
