"""An entry of a ConfigMap of the user's own: refused where it is not there, or none that the plugin takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.fleet import cluster as fleet_cluster
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.device_plugin.config_file import ignored_fields
from gpunode.kubernetes.device_plugin.own_config import decide_own_config
from gpunode.kubernetes.run_on import here
from gpunode.operations import device_plugin
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.own_config import settings
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

SPACE = "nvidia-device-plugin"


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    made = SimulatedCluster.of(tmp_path, "gpu-1")
    made.write(config_maps={"mine": {"small": "version: v1\n", "default": "flags: {migStrategy: mixed}\n"}})
    return made


def test_without_a_config_map_of_the_user_s_own_there_is_nothing_to_compare() -> None:
    assert decide_own_config(settings_from({"kubernetes": {"enabled": True}}), None).findings == ()


@given(st.text() | st.sampled_from(["sharing: [1]", "sharing: {mps: {resources: {a: 1}}}", "resources: 1", "? []"]))
def test_no_text_of_an_entry_breaks_the_decision(text: str) -> None:
    decision = decide_own_config(settings(), {"small": text})
    assert bool(decision.refusal) == bool(bad(*decision.findings))
    ignored_fields(text)


def test_a_run_refuses_the_node_before_anything_is_changed(cluster: SimulatedCluster, host: Host) -> None:
    assert commands(device_plugin.own_config, host, settings=settings("medium", **cluster.settings())) == []
    assert unnamed("\n".join(host.refusals), "medium", "default, small") == []
    asks = f"kubectl get configmaps mine --namespace {SPACE}"
    assert cluster.called(asks) == 1


def test_a_run_goes_on_where_the_entry_is_there(cluster: SimulatedCluster, host: Host) -> None:
    assert commands(device_plugin.own_config, host, settings=settings("small", **cluster.settings())) == []
    (noop,) = host.noops
    assert unnamed(noop, f"ConfigMap {SPACE}/mine", "small") == [] and host.refusals == []


def test_drift_reads_the_config_map_once_and_tells_each_node_of_its_own_entry(cluster: SimulatedCluster) -> None:
    small = settings(**cluster.settings())
    by = Cluster(small.kubernetes, small.proxy, here)
    both = {"gpu-1": small, "gpu-2": settings("medium", **cluster.settings())}
    found = dict(fleet_cluster.entries(by, both))
    assert bad(found["gpu-1"]) == () and bad(found["gpu-2"]) == (found["gpu-2"],)
    assert cluster.called("kubectl get configmaps") == 1
    cluster.write(failures={"kubectl get configmaps": "forbidden"})
    assert {each.actual for _, each in fleet_cluster.entries(by, both)} == {"not known"}
    plain = settings_from({"kubernetes": cluster.settings()})
    assert list(fleet_cluster.entries(by, {"gpu-1": plain})) == []
