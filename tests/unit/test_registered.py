"""A plugin's pod that is well while the kubelet does not count the GPUs: found, and it begins anew once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import Mig
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.kubernetes.device_plugin.decide_pods import decide_registered
from gpunode.kubernetes.device_plugin.view import Pod, View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, wanted_labels
from gpunode.operations import device_plugin
from gpunode.settings import Settings, settings_from
from tests.support.messages import unnamed
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host
from tests.support.verify_cluster import DAEMON_SET, SHARED, SLICED, TWO, _pod, _set

pytestmark = pytest.mark.pure

POD = f"{DAEMON_SET}-x"
GPU, SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def _settings(**more: Any) -> Settings:
    kubernetes = {"enabled": True, **more.pop("kubernetes", {})}
    return settings_from({"kubernetes": kubernetes, **more})


def _anew(
    allocatable: dict[str, str], capacity: dict[str, str] | None = None, mig: Mig = TWO, **more: Any
) -> tuple[str, ...]:
    """Return the pods that are to begin anew, after a look at the decision."""
    settings = _settings(**more.pop("settings", {}))
    pod = Pod(POD, {}, DAEMON_SET, "gpu-1", more.pop("ready", True), "Running", None)
    counted = allocatable if capacity is None else capacity
    labels = more.pop("labels", {name: each for name, each in wanted_labels(settings).items() if name == CONFIG})
    node = ClusterNode("gpu-1", labels, None, allocatable, False, more.pop("node_ready", True), capacity=counted)
    sets = (DAEMON_SET, f"{DAEMON_SET}-mps-control-daemon", f"{DAEMON_SET}-gpu-feature-discovery")
    decision = decide_registered(settings, node, more.pop("sets", sets), View({}, (), (pod,)), mig)
    different = bad(*decision.findings)
    settled = [item for step in decision.steps for item in step.settles]
    assert all(item in different for item in settled) and bool(settled) == bool(decision.steps)
    assert all(item.remedy for item in different)
    return tuple(name for step in decision.steps for name in step.change or ())


_MIG, _SLICED = "nvidia.com/mig-1g.10gb", {"mig": SLICED, "settings": {"sharing": {"mig_strategy": "mixed"}}}
_OWN = {"settings": {"device_plugin": {"config_name": "mine"}, "sharing": {"config": "small"}}}
_GPUSHARE = {"device_plugin": {"method": "gpushare"}, "gpushare": {"scheduler": "theirs"}}
TABLE: dict[str, tuple[dict[str, str], dict[str, Any], bool]] = {
    "as after a kubelet's start": ({GPU: "0"}, {}, True),
    "never counted": ({}, {}, True),
    "fewer": ({GPU: "1"}, {}, True),
    # A plugin that begins anew would offer them again.
    "the plugin holds one for sick": ({GPU: "1"}, {"capacity": {GPU: "2"}}, False),
    "the plugin holds all for sick": ({GPU: "0"}, {"capacity": {GPU: "2"}}, False),
    "as promised": ({GPU: "2"}, {}, False),
    "more beside it": ({GPU: "2", SHARED_GPU: "4"}, {}, False),
    "MIG devices": ({GPU: "1", _MIG: "0"}, _SLICED, True),
    "MIG devices as promised": ({GPU: "1", _MIG: "2"}, _SLICED, False),
    "shares": ({SHARED_GPU: "0", GPU: "0"}, {"settings": {"sharing": SHARED}}, True),
    "nothing by one's own ConfigMap": ({"cpu": "64"}, _OWN, True),
    "something by one's own ConfigMap": ({SHARED_GPU: "3"}, _OWN, False),
    "pod not ready": ({}, {"ready": False}, False),
    "node not Ready": ({}, {"node_ready": False}, False),
    "GPUs do not answer": ({}, {"mig": Mig("no driver")}, False),
    "no GPU": ({}, {"mig": Mig("ok", None, ())}, False),
    "no plugin": ({}, {"sets": ()}, False),
    "another entry": ({}, {"labels": {CONFIG: "time-slicing-5"}}, False),
    "no label": ({}, {"labels": {}}, False),
    "gpushare": ({}, {"settings": _GPUSHARE}, False),
    "method none": ({}, {"settings": {"device_plugin": {"method": "none"}}}, False),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_pod_begins_anew_only_where_nothing_else_is_wrong(name: str) -> None:
    allocatable, more, anew = TABLE[name]
    assert _anew(allocatable, **more) == ((POD,) if anew else ())


_COUNT = st.sampled_from([None, "0", "1", "2", "9", "2k"])


@given(allocatable=_COUNT, capacity=_COUNT, ready=st.booleans())
def test_a_ready_pod_begins_anew_without_gpus(allocatable: str | None, capacity: str | None, ready: bool) -> None:
    def of(count: str | None) -> dict[str, str]:
        return {} if count is None else {GPU: count}

    names = _anew(of(allocatable), of(capacity), ready=ready)
    missing = allocatable != "2" and capacity in (None, "0", "1")
    assert names == ((POD,) if ready and missing else ())


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster whose node's plugin is ready, and counted for nothing."""
    made = SimulatedCluster.of(tmp_path, "gpu-1")
    made.write(objects={"daemonsets.apps,pods": [_set(), _pod()]})
    _offer(made, "0")
    return made


def _offer(cluster: SimulatedCluster, count: str, entry: str = "none") -> None:
    nodes = cluster.state()["nodes"]
    nodes["gpu-1"]["metadata"]["labels"][CONFIG] = entry
    nodes["gpu-1"]["status"]["allocatable"] = nodes["gpu-1"]["status"]["capacity"] = {GPU: count}
    cluster.write(nodes=nodes)


@pytest.fixture
def node(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return the host that operations see, with two GPUs, and let no time pass."""
    host.readings[MigFact] = TWO
    clock = iter(range(0, 100_000, 5))
    monkeypatch.setattr(device_plugin, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(device_plugin, "sleep", lambda _: None)
    yield host


def _carried_out(node: Host, cluster: SimulatedCluster, **more: Any) -> list[bool]:
    settings = _settings(kubernetes=cluster.settings(timeout=60), **more)
    return [
        command.function(node.state, node, *command.args)
        for command in device_plugin.registered._inner(settings=settings)
    ]


def test_the_pod_is_removed_once(cluster: SimulatedCluster, node: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def registers(_: float) -> None:
        if cluster.called("kubectl delete pods"):
            _offer(cluster, "2")

    monkeypatch.setattr(device_plugin, "sleep", registers)
    assert _carried_out(node, cluster) == [True, True]
    assert cluster.called(f"kubectl delete pods {POD}") == 1 and not node.refusals


def test_a_pod_that_registers_stays(cluster: SimulatedCluster, node: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_plugin, "sleep", lambda _: _offer(cluster, "2"))
    assert _carried_out(node, cluster) == [] and len(node.noops) == 1
    assert cluster.called("kubectl delete pods") == 0


def test_where_it_does_not_help_the_run_fails(cluster: SimulatedCluster, node: Host) -> None:
    assert _carried_out(node, cluster) == [True, False]
    assert unnamed("\n".join(node.refusals), GPU, "gpu-1", "0", "2", "kubelet") == []
    cluster.write(objects={"daemonsets.apps,pods": [_set(), _pod()]})
    assert _carried_out(node, cluster) == [] and node.noops
    assert cluster.called("kubectl delete pods") == 1


def test_a_plugin_does_not_begin_anew_twice(cluster: SimulatedCluster, node: Host) -> None:
    node.readings[MigBootFact] = MigBoot(recorded_at=1_000)
    _offer(cluster, "0", "mig-mixed")
    objects = [_set(), _pod(startTime="1970-01-01T00:00:01Z")]
    cluster.write(objects={"daemonsets.apps,pods": objects})
    settings = _settings(
        kubernetes=cluster.settings(), mig={"config": "all-balanced"}, sharing={"mig_strategy": "mixed"}
    )
    for command in device_plugin.current._inner(settings=settings):
        assert command.function(node.state, node, *command.args) is True
    cluster.write(objects={"daemonsets.apps,pods": objects})
    assert _carried_out(node, cluster, sharing={"mig_strategy": "mixed"}) == [] and node.noops
    assert cluster.called("kubectl delete pods") == 1


def test_a_node_that_the_cluster_lacks_is_left_alone(cluster: SimulatedCluster, node: Host) -> None:
    cluster.write(nodes={})
    assert _carried_out(node, cluster) == [] and len(node.noops) == 1
