"""Pods that add vectors at once, what is seen of them, and what of a node's GPUs is taken. SIMULATED: kubectl, node."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import FindingClass
from gpunode.base.reading import ParseError, Unknown
from gpunode.facts.gpu_users import GpuUsers as GpuUsersFact
from gpunode.fleet import drift_cluster
from gpunode.kubernetes.device_plugin import vector_add
from gpunode.kubernetes.device_plugin.proof import Proof
from gpunode.kubernetes.device_plugin.taken import Taken, asking_taken, judge_taken, parse_taken
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.node.preflight import refusals
from gpunode.node.preflight.verify import verify_refusals
from gpunode.operations import vectors, verify_cluster
from gpunode.settings import Settings, SettingsError, settings_from
from gpunode.system.gpu_users import GpuContainer, GpuProcess, GpuUsers
from gpunode.system.pci import PciGpu
from tests.support.messages import unnamed
from tests.support.preflight import machine
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host
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


@pytest.fixture
def made(cluster: SimulatedCluster, node: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return the node, whose containers are those of the pods that were made; they are over at the third look."""
    looks = {"count": 0}

    def names() -> list[str]:
        pods = cluster.state()["objects"]["daemonsets.apps,pods"]
        return [each["metadata"]["name"] for each in pods if each["metadata"]["name"].startswith("gpunode-")]

    def passes(_: float) -> None:
        looks["count"] += 1
        if looks["count"] == 2:
            pods = cluster.state()["objects"]["daemonsets.apps,pods"]
            for each in pods:
                if each["metadata"]["name"] in names() and each["status"] == {"phase": "Running"}:
                    each["status"] = PASSED
            cluster.write(objects={"daemonsets.apps,pods": pods})

    node.readings[list] = names
    node.__class__ = Looking
    cluster.write(becomes={"all": {"phase": "Running"}}, log="Test PASSED\nDone\n")
    monkeypatch.setattr(vectors, "sleep", passes)
    yield node


def _left(cluster: SimulatedCluster) -> list[str]:
    pods = cluster.state()["objects"]["daemonsets.apps,pods"]
    return [each["metadata"]["name"] for each in pods if each["metadata"]["name"].startswith("gpunode-")]


def test_several_pods_are_made_by_one_request_seen_on_their_gpus_and_removed(
    cluster: SimulatedCluster, made: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(made, "log", logged.append)
    said = _verified(made, _add(cluster, 3))
    assert not made.refusals, said
    assert unnamed(said, "3 pods", "nvidia.com/gpu.shared", f"2 on {A} (2 of them", f"1 on {B}") == []
    assert cluster.called("kubectl create") == cluster.called("kubectl delete pods") == 1
    assert _left(cluster) == []
    assert any(line.startswith("gpu-1, and 3 pods added vectors") for line in logged)


def test_pods_are_removed_where_one_of_them_fails_and_its_words_are_told(cluster: SimulatedCluster, made: Host) -> None:
    cluster.write(becomes={"all": PASSED, "1": {"phase": "Failed"}}, log="Failed to allocate device vector A\n")
    said = _verified(made, _add(cluster, 2))
    assert unnamed(said, "did not pass", "Failed to allocate device") == []
    assert _left(cluster) == []


def test_pods_are_removed_where_the_run_itself_breaks_meanwhile(
    cluster: SimulatedCluster, made: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(self: object, users: object) -> None:
        raise RuntimeError("a mistake of the code's own")

    monkeypatch.setattr(Proof, "look", breaks)
    assert "mistake of the code" in _verified(made, _add(cluster, 2))
    assert _left(cluster) == [] and cluster.called("kubectl delete pods") == 1


def test_pods_for_which_no_gpu_is_free_are_told_and_no_failure(cluster: SimulatedCluster, made: Host) -> None:
    cluster.write(becomes={"all": PASSED, "1": FULL})
    pods = cluster.state()["objects"]["daemonsets.apps,pods"]
    said = _verified(made, _add(cluster, 2))
    assert not made.refusals and "and 1 pods added vectors" in said
    assert "(for 1 no nvidia.com/gpu.shared was free)" in said, pods


def test_a_node_that_does_not_tell_its_containers_fails_nothing(cluster: SimulatedCluster, node: Host) -> None:
    cluster.write(becomes={"all": PASSED}, log="Test PASSED\n")
    node.readings[GpuUsersFact] = Unknown("silence")
    said = _verified(node, _add(cluster, 2))
    assert not node.refusals and "not seen" in said and A not in said and B not in said


def test_more_pods_than_the_node_offers_are_refused_by_the_verdict_before_one_is_started(
    cluster: SimulatedCluster, node: Host
) -> None:
    said = _verified(node, _add(cluster, 11))
    assert unnamed(said, "verify.vector_add_pods is 11", "nvidia.com/gpu.shared: 10") == []
    assert "set it to 10 or less" in said and cluster.called("kubectl create") == 0


# --- before anything is touched


GPUS = tuple(PciGpu(f"0000:0{number}:00.0", "2330", "10de", "H100 80GB HBM3") for number in range(2))


def _refused(pods: int, count: int = 2, **more: Any) -> list[str]:
    verify = {"vector_add": IMAGE, "vector_add_pods": pods}
    settings = settings_from({"kubernetes": {"enabled": True}, "verify": verify, **more})
    return [each.reason for each in verify_refusals(settings, GPUS[:count])]


SLICED = {"mig": {"config": "all-1g.10gb"}, "sharing": {"mig_strategy": "mixed"}}


@pytest.mark.parametrize(
    ("pods", "more", "offered"),
    [
        (2, {}, None),
        (3, {}, "nvidia.com/gpu: 2"),
        (10, {"sharing": {"strategy": "time-slicing", "replicas": 5}}, None),
        (11, {"sharing": {"strategy": "time-slicing", "replicas": 5, "rename": True}}, "nvidia.com/gpu.shared: 10"),
        (14, SLICED, None),
        (15, SLICED, "nvidia.com/mig-1g.10gb: 14"),
        (5, {"mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"}},
         "nvidia.com/mig-1g.10gb: 4, nvidia.com/mig-2g.20gb: 2, nvidia.com/mig-3g.40gb: 2"),
        # Nobody knows yet: by hand divided, memory of GPUs, a ConfigMap of the user's own, no GPU at all.
        (60, {"sharing": {"mig_strategy": "mixed"}}, None),
        (60, {"device_plugin": {"method": "gpushare"}, "gpushare": {"scheduler": "theirs"}}, None),
        (60, {"device_plugin": {"config_name": "own"}}, None),
        (60, {"device_plugin": {"method": "none"}}, None),
        (60, {"count": 0}, None),
    ],
)  # fmt: skip
def test_more_pods_than_the_settings_promise_are_refused_by_preflight(
    pods: int, more: dict[str, Any], offered: str | None
) -> None:
    said = _refused(pods, **more)
    if offered is None:
        assert said == []
    else:
        (reason,) = said
        assert unnamed(reason, f"verify.vector_add_pods is {pods}", f"offers {offered}") == []


def test_preflight_tells_it_with_the_key_before_anything_is_touched() -> None:
    verify = {"vector_add": IMAGE, "vector_add_pods": 4}
    shared = {"kubernetes": {"enabled": True}, "sharing": {"strategy": "time-slicing", "replicas": 3}, "verify": verify}
    found = {each.reason: each.remedy for each in refusals(settings_from(shared), machine())}
    (remedy,) = (remedy for reason, remedy in found.items() if "verify.vector_add_pods is 4" in reason)
    assert "set verify.vector_add_pods = 3 or less" in remedy


@pytest.mark.parametrize(
    ("verify", "key"),
    [
        ({"vector_add_pods": 2}, "verify.vector_add_pods"),
        ({"vector_add": IMAGE, "vector_add_pods": 0}, "verify.vector_add_pods"),
        ({"vector_add": IMAGE, "vector_add_pods": 65}, "verify.vector_add_pods"),
    ],
)
def test_a_count_of_pods_that_says_nothing_is_refused_by_its_key(verify: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_from({"verify": verify})
    assert key in str(refused.value)


# --- what was seen


def test_pods_on_different_gpus_prove_nothing_and_that_is_said() -> None:
    proof = Proof(SPACE, ["a", "b", "c"])
    proof.look(GpuUsers("ok", None, (A, B), (), (_container("a", A), _container("b", B), _container("other", A))))
    first, second, unseen, apart = proof.said().split("; ")
    assert (first, second) == (f"1 on {A}", f"1 on {B}")
    assert unnamed(unseen, "1", "not seen") == unnamed(apart, "one GPU") == []


def test_two_pods_one_after_the_other_on_a_gpu_are_not_told_as_at_once() -> None:
    proof = Proof(SPACE, ["a", "b"])
    for name in ("a", "b"):
        container = _container(name, A, ("MIG-1",))
        proof.look(GpuUsers("ok", None, (A,), (GpuProcess(A, 7, "x", None, container.id),), (container,)))
    assert re.fullmatch(r"2 on MIG-1 \(never two [a-z ]+, 1 of [a-z ]+ nvidia-smi\)", proof.said())


# --- what is taken


def _pod(name: str, node: str = "gpu-1", index: str | None = None, **spec: Any) -> dict[str, Any]:
    annotations = {} if index is None else {"ALIYUN_COM_GPU_MEM_IDX": index}
    return {
        "metadata": {"name": name, "namespace": "team", "annotations": annotations},
        "spec": {"nodeName": node, **spec},
    }


def _has(**limits: int) -> dict[str, Any]:
    names = {"gpu": "nvidia.com/gpu", "memory": "aliyun.com/gpu-mem", "cpu": "cpu"}
    return {"resources": {"limits": {names[key]: str(count) for key, count in limits.items()}}}


def _taken(*pods: dict[str, Any]) -> dict[str, Taken]:
    return parse_taken(json.dumps({"items": list(pods)}))


def test_what_pods_have_is_counted_with_those_that_run_before_and_beside() -> None:
    before = [_has(gpu=3), {**_has(gpu=1), "restartPolicy": "Always"}]
    found = _taken(
        _pod("one", containers=[_has(gpu=1, cpu=4), _has(gpu=1)]),
        _pod("before", containers=[_has(gpu=1)], initContainers=before),
        _pod("none", containers=[_has(cpu=1), {}]),
        _pod("elsewhere", node="gpu-2", containers=[_has(gpu=8)]),
    )
    assert found == {"gpu-1": Taken({"nvidia.com/gpu": 5}), "gpu-2": Taken({"nvidia.com/gpu": 8})}


def test_a_count_of_thousands_is_read_as_the_api_server_writes_it() -> None:
    """`2000` comes back as `2k`: one such pod, of anybody's, hides what all the others have."""
    memory = {"resources": {"limits": {"aliyun.com/gpu-mem": "2k", "nvidia.com/gpumem": "1500"}}}
    found = _taken(_pod("a", index="0", containers=[memory]), _pod("b", containers=[_has(gpu=1)]))
    assert found == {
        "gpu-1": Taken({"aliyun.com/gpu-mem": 2000, "nvidia.com/gpu": 1, "nvidia.com/gpumem": 1500}, {0: 2000})
    }


def test_gpushare_s_memory_is_told_by_gpu_as_its_scheduler_noted_it() -> None:
    taken = _taken(
        _pod("a", index="0", containers=[_has(memory=3)]),
        _pod("b", index="0", containers=[_has(memory=5)]),
        _pod("c", index="-1", containers=[_has(memory=2)]),
    )
    node = ClusterNode("gpu-1", {}, None, {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}, False, True)
    (finding,) = judge_taken(node, taken)
    assert finding.actual == "10 of 32 (GPU 0: 8 of 16, GPU 1: 0 of 16)"
    assert (finding.what, finding.finding_class) == ("taken of aliyun.com/gpu-mem", FindingClass.OK)
    assert not finding.is_caution
    (empty,) = judge_taken(node, {})
    assert empty.actual == "0 of 32 (GPU 0: 0 of 16, GPU 1: 0 of 16)"


@given(st.lists(st.integers(0, 64), max_size=5), st.lists(st.integers(0, 64), max_size=5))
def test_a_pod_holds_at_least_what_its_containers_have_and_at_most_what_all_have(
    containers: list[int], before: list[int]
) -> None:
    pod = _pod("x", containers=[_has(gpu=n) for n in containers], initContainers=[_has(gpu=n) for n in before])
    found = _taken(pod)["gpu-1"].resources.get("nvidia.com/gpu", 0)
    assert found == max([sum(containers), *before])


@pytest.mark.parametrize("text", ["", "[]", '{"items": [1]}', '{"items": [{"metadata": {}}]}'])
def test_an_answer_that_is_no_list_of_pods_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_taken(text)


def test_the_verdict_tells_what_is_taken_and_so_does_drift_which_judges_nothing_by_it(
    cluster: SimulatedCluster, node: Host
) -> None:
    shared = {"resources": {"limits": {"nvidia.com/gpu.shared": "3"}}}
    cluster.write(objects={**cluster.state()["objects"], "pods": [_pod("a", containers=[shared])]})
    assert "; taken: nvidia.com/gpu.shared 3 of 10" in _verified(node, _settings(cluster))
    settings = _settings(cluster)
    assert "spec.nodeName=gpu-1" in asking_taken(settings.kubernetes, "gpu-1")[-3]
    found = list(drift_cluster._taken(_cluster(settings), {"gpu-1": settings}, _cluster(settings).nodes()))
    assert [(host, item.actual, item.finding_class) for host, item in found] == [("gpu-1", "3 of 10", FindingClass.OK)]
    cluster.write(failures={"kubectl get pods": "Error from server (Forbidden): pods is forbidden"})
    assert list(drift_cluster._taken(_cluster(settings), {"gpu-1": settings}, _cluster(settings).nodes())) == []
    verify_cluster._watched.clear()
    node.noops.clear()
    assert "not known" in _verified(node, settings) and not node.refusals


def _cluster(settings: Settings) -> Any:
    from gpunode.kubernetes.device_plugin.cluster import Cluster
    from gpunode.kubernetes.run_on import here

    return Cluster(settings.kubernetes, settings.proxy, here)


def test_one_pod_is_made_as_a_pod_and_several_as_a_list() -> None:
    pod = vector_add.pod("x", "gpu-1", IMAGE, "nvidia.com/gpu", None)
    assert json.loads(vector_add.text(pod))["kind"] == "Pod"
    assert [each["kind"] for each in json.loads(vector_add.text(pod, pod))["items"]] == ["Pod", "Pod"]
