"""Pods that add vectors at once, what is seen of them, and what of a node's GPUs is taken. SIMULATED: kubectl, node."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import FindingClass
from gpunode.base.reading import Unknown
from gpunode.facts.gpu import GpuUsers as GpuUsersFact
from gpunode.fleet import cluster as fleet_cluster
from gpunode.kubernetes.device_plugin import vector_add
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.device_plugin.promise import parse_taken
from gpunode.kubernetes.device_plugin.vector_add import Proof
from gpunode.kubernetes.run_on import here
from gpunode.node.preflight import refusals
from gpunode.operations import vectors
from gpunode.settings import Settings, SettingsError, settings_from
from gpunode.system.gpu_users import GpuContainer, GpuProcess, GpuUsers
from tests.support.messages import unnamed
from tests.support.preflight import machine
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host, State
from tests.support.verify_cluster import _settings, _verified, cluster, node

__all__ = ["cluster", "node"]
pytestmark = pytest.mark.pure

A, B = "GPU-aaaa", "GPU-bbbb"
SPACE = "nvidia-device-plugin"
IMAGE = "registry.invalid/samples:vectoradd"
PASSED = {"phase": "Succeeded"}
FULL = {
    "phase": "Pending",
    "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.shared.",
    }],
}  # fmt: skip


def _add(cluster: SimulatedCluster, pods: int, **more: Any) -> Settings:
    return _settings(cluster, verify={"vector_add": IMAGE, "vector_add_pods": pods}, **more)


def _container(pod: str, gpu: str, mig: tuple[str, ...] = ()) -> GpuContainer:
    return GpuContainer(f"id-{pod}", "containerd", "vector-add", f"{SPACE}/{pod}", 1, (gpu,), (gpu,), mig)


class Looking(Host):
    """Show the pods that were made: the first two on GPU A at the second look alone, a third on GPU B."""

    def get_fact(self, fact: Any, *args: Any, **kwargs: Any) -> Any:
        if fact is not GpuUsersFact:
            return super().get_fact(fact, *args, **kwargs)
        if kwargs["look"] == 1:
            return GpuUsers("ok", None)
        names = self.readings[list]()
        containers = tuple(_container(name, A if number < 2 else B) for number, name in enumerate(names))
        processes = tuple(GpuProcess(each.gpus[0], 1, "vectorAdd", 8, each.id) for each in containers)
        return GpuUsers("ok", None, (A, B), processes, containers)


def _objects(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.state()["objects"]["daemonsets.apps,pods"]
    return found


def _made(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    """Return the pods that were made and are there."""
    return [each for each in _objects(cluster) if each["metadata"]["name"].startswith("gpunode-")]


@pytest.fixture
def made(cluster: SimulatedCluster, node: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return the node, whose containers are those of the pods that were made; they are over at the third look."""
    looks = itertools.count(1)

    def passes(_: float) -> None:
        if next(looks) == 2:
            pods = _objects(cluster)
            for each in pods:
                if each["metadata"]["name"].startswith("gpunode-") and each["status"] == {"phase": "Running"}:
                    each["status"] = PASSED
            cluster.write(objects={"daemonsets.apps,pods": pods})

    node.readings[list] = lambda: [each["metadata"]["name"] for each in _made(cluster)]
    node.__class__ = Looking
    cluster.write(becomes={"all": {"phase": "Running"}}, log="Test PASSED\nDone\n")
    monkeypatch.setattr(vectors, "sleep", passes)
    yield node


def test_several_pods_are_made_by_one_request_seen_on_their_gpus_and_removed(
    cluster: SimulatedCluster, made: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(made, "log", logged.append)
    said = _verified(made, _add(cluster, 3))
    assert not made.refusals, said
    assert unnamed(said, "3 pods", "nvidia.com/gpu.shared", f"2 on {A} (2 of them", f"1 on {B}") == []
    assert cluster.called("kubectl create") == cluster.called("kubectl delete pods") == 1
    assert _made(cluster) == [] and any(not unnamed(line, "gpu-1", "3 pods") for line in logged)


@pytest.mark.parametrize("breaks", [False, True], ids=["a pod fails", "the run itself breaks"])
def test_pods_are_removed_where_one_fails_or_the_run_breaks_and_the_reason_is_told(
    cluster: SimulatedCluster, made: Host, monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    def look(self: object, users: object) -> None:
        raise RuntimeError("a mistake of the code's own")

    if breaks:
        monkeypatch.setattr(Proof, "look", look)
    else:
        cluster.write(becomes={"all": PASSED, "1": {"phase": "Failed"}}, log="Failed to allocate device vector A\n")
    said = _verified(made, _add(cluster, 2))
    assert made.refusals and unnamed(said, "mistake" if breaks else "Failed to allocate") == []
    assert _made(cluster) == [] and cluster.called("kubectl delete pods") == 1


def test_pods_for_which_no_gpu_is_free_are_told_and_no_failure(cluster: SimulatedCluster, made: Host) -> None:
    cluster.write(becomes={"all": PASSED, "1": FULL})
    said = _verified(made, _add(cluster, 2))
    assert not made.refusals and unnamed(said, "1 pods", "for 1 no nvidia.com/gpu.shared") == []


def test_a_node_that_does_not_tell_its_containers_fails_nothing(cluster: SimulatedCluster, node: Host) -> None:
    cluster.write(becomes={"all": PASSED}, log="Test PASSED\n")
    node.readings[GpuUsersFact] = Unknown("silence")
    said = _verified(node, _add(cluster, 2))
    assert not node.refusals and unnamed(said, "2 pods") == [] and unnamed(said, A, B) == [A, B]


def test_more_pods_than_the_node_offers_are_refused_by_the_verdict_before_one_is_started(
    cluster: SimulatedCluster, node: Host
) -> None:
    said = _verified(node, _add(cluster, 11))
    assert unnamed(said, "verify.vector_add_pods is 11", "nvidia.com/gpu.shared: 10", "10 or less") == []
    assert node.refusals and cluster.called("kubectl create") == 0


def test_preflight_tells_it_before_anything_is_touched() -> None:
    verify = {"vector_add": IMAGE, "vector_add_pods": 4}
    shared = {"kubernetes": {"enabled": True}, "sharing": {"strategy": "time-slicing", "replicas": 3}, "verify": verify}
    codes = [each.code for each in refusals(settings_from(shared), machine())]
    assert "preflight.verify-too-many-pods" in codes


@pytest.mark.parametrize("verify", [{}, *({"vector_add": IMAGE, "vector_add_pods": count} for count in (0, 65))])
def test_a_count_of_pods_that_says_nothing_is_refused_by_its_key(verify: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_from({"verify": {"vector_add_pods": 2, **verify}})
    assert "verify.vector_add_pods" in [problem.key for problem in refused.value.problems]


def test_what_was_seen_of_pods_is_counted_by_look_and_place() -> None:
    apart = Proof(SPACE, ["a", "b", "c"])
    apart.look(GpuUsers("ok", None, (A, B), (), (_container("a", A), _container("b", B), _container("other", A))))
    assert (apart.places, apart.together, apart.processes) == ({"a": A, "b": B}, {A: 1, B: 1}, {})
    first, second, unseen, alone = apart.said().split("; ")
    assert (first, second) == (f"1 on {A}", f"1 on {B}") and unnamed(unseen, 1) == unnamed(alone, "one GPU") == []
    after = Proof(SPACE, ["a", "b"])
    for name in ("a", "b"):
        container = _container(name, A, ("MIG-1",))
        after.look(GpuUsers("ok", None, (A,), (GpuProcess(A, 7, "x", None, container.id),), (container,)))
    assert (after.together, after.processes) == ({"MIG-1": 1}, {"MIG-1": 1})
    assert after.said().startswith("2 on MIG-1 (never two ")


def _pod(**containers: list[int]) -> dict[str, Any]:
    """Return a pod whose containers have so many GPUs."""
    spec = {
        name: [{"resources": {"limits": {"nvidia.com/gpu.shared": str(count)}}} for count in counts]
        for name, counts in containers.items()
    }
    return {"metadata": {"name": "a", "namespace": "team"}, "spec": {"nodeName": "gpu-1", **spec}}


@given(st.lists(st.integers(0, 64), max_size=5), st.lists(st.integers(0, 64), max_size=5))
def test_a_pod_holds_at_least_what_its_containers_have_and_at_most_what_all_have(
    containers: list[int], before: list[int]
) -> None:
    found = parse_taken(json.dumps({"items": [_pod(containers=containers, initContainers=before)]}))["gpu-1"]
    assert found.resources.get("nvidia.com/gpu.shared", 0) == max([sum(containers), *before])


def test_the_verdict_tells_what_is_taken_and_so_does_drift_which_judges_nothing_by_it(
    cluster: SimulatedCluster, node: Host
) -> None:
    cluster.write(objects={**cluster.state()["objects"], "pods": [_pod(containers=[3])]})
    settings = _settings(cluster)
    assert "; taken: nvidia.com/gpu.shared 3 of 10" in _verified(node, settings)
    assert any(each.endswith(",spec.nodeName=gpu-1") for call in cluster.state()["calls"] for each in call)
    asked = Cluster(settings.kubernetes, settings.proxy, here)
    found = list(fleet_cluster._taken(asked, {"gpu-1": settings}, asked.nodes()))
    assert [(host, item.actual, item.finding_class) for host, item in found] == [("gpu-1", "3 of 10", FindingClass.OK)]
    cluster.write(failures={"kubectl get pods": "Error from server (Forbidden): pods is forbidden"})
    asked = Cluster(settings.kubernetes, settings.proxy, here)
    found = list(fleet_cluster._taken(asked, {"gpu-1": settings}, asked.nodes()))
    assert [(item.finding_class, item.is_negative) for _, item in found] == [(FindingClass.NOT_KNOWN, False)]
    node.state = State()
    node.noops.clear()
    assert "3 of 10" not in _verified(node, settings) and not node.refusals


def test_one_pod_is_made_as_a_pod_and_several_as_a_list() -> None:
    pod = vector_add.pod("x", "gpu-1", IMAGE, "nvidia.com/gpu", None)
    assert json.loads(vector_add.text(pod))["kind"] == "Pod"
    assert [each["kind"] for each in json.loads(vector_add.text(pod, pod))["items"]] == ["Pod", "Pod"]
