"""An entry of a ConfigMap of the user's own: refused where it is not there, or none that the plugin takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad, marked
from gpunode.base.reading import ParseError
from gpunode.fleet import drift_cluster
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.device_plugin.own_config import (
    chosen_entry,
    decide_own_config,
    ignored_fields,
    parse_config_map,
)
from gpunode.kubernetes.run_on import here
from gpunode.operations import device_plugin
from gpunode.settings import Settings, settings_from
from tests.support.messages import unnamed
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host

pytestmark = pytest.mark.pure

ENTRIES = {"small": "version: v1\n", "large": "flags: {migStrategy: mixed}\n"}
SPACE = "nvidia-device-plugin"


def _settings(entry: str | None = "small", **more: Any) -> Settings:
    kubernetes = {"enabled": True, **more}
    return settings_from(
        {"kubernetes": kubernetes, "device_plugin": {"config_name": "mine"}, "sharing": {"config": entry}}
    )


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    made = SimulatedCluster.of(tmp_path, "gpu-1")
    made.write(config_maps={"mine": ENTRIES})
    return made


@pytest.mark.parametrize(
    ("entry", "entries", "actual", "said"),
    [
        ("medium", ENTRIES, "none", ("sharing.config 'medium'", "there are: large, small")),
        ("small", {}, "none", ("sharing.config 'small'", "there are: none")),
        ("small", None, "none", ("device_plugin.config_name 'mine'", "kubectl create configmap mine")),
        (None, ENTRIES, "none", ("sharing.config names no entry", "there are: large, small")),
        ("small", {"small": "a: [b"}, "not to be read by the plugin", ("is no YAML",)),
        ("small", {"small": "- a\n"}, "not to be read by the plugin", ("must be a mapping",)),
        ("small", {"small": "version: v2\n"}, "not to be read by the plugin", ("'v2'", "'v1' alone")),
    ],
    ids=["another", "empty map", "no map", "none named", "no YAML", "a list", "a version"],
)
def test_an_entry_that_the_plugin_would_not_start_with_is_refused_with_those_that_are_there(
    entry: str | None, entries: dict[str, str] | None, actual: str, said: tuple[str, ...]
) -> None:
    decision = marked(decide_own_config(_settings(entry), entries))
    (item,) = bad(*decision.findings)
    assert (item.what, item.actual, item.by_person) == (f"entry of ConfigMap {SPACE}/mine", actual, True)
    assert decision.refusal is not None and all(each in decision.refusal for each in said)
    assert item.cause == decision.refusal


@pytest.mark.parametrize(
    ("entry", "entries", "chosen"),
    [
        ("small", ENTRIES, "small"),
        (None, {"only": "version: v1"}, "only"),
        (None, {**ENTRIES, "default": ""}, "default"),
        ("small", {"small": "version:\n"}, "small"),
    ],
)
def test_an_entry_that_the_plugin_takes_is_as_desired(entry: str | None, entries: dict[str, str], chosen: str) -> None:
    settings = _settings(entry)
    decision = decide_own_config(settings, entries)
    assert decision.refusal is None and bad(*decision.findings) == ()
    assert chosen_entry(settings, entries) == chosen


def test_without_a_config_map_of_the_user_s_own_there_is_nothing_to_compare() -> None:
    assert decide_own_config(settings_from({"kubernetes": {"enabled": True}}), None).findings == ()


def test_what_the_plugin_ignores_is_named_by_its_key() -> None:
    text = """
version: v1
resources:
  gpus: [{pattern: "*H100*", name: nvidia.com/h100}]
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - {name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, devices: all, replicas: 2}
    - {name: nvidia.com/mig-1g.10gb, devices: [0], rename: nvidia.com/mine, replicas: 2}
"""
    assert ignored_fields(text) == (
        "resources",
        "sharing.timeSlicing.resources[nvidia.com/mig-1g.10gb].devices",
        "sharing.timeSlicing.resources[nvidia.com/mig-1g.10gb].rename",
    )
    by_mps = "sharing: {mps: {resources: [{name: nvidia.com/gpu, devices: 2, replicas: 2}]}}"
    assert ignored_fields(by_mps) == ("sharing.mps.resources[nvidia.com/gpu].devices",)
    assert ignored_fields("a: [") == ignored_fields("") == ignored_fields("version: v1") == ()


@given(st.text() | st.sampled_from(["sharing: [1]", "sharing: {mps: {resources: {a: 1}}}", "resources: 1", "? []"]))
def test_no_text_of_an_entry_breaks_the_decision(text: str) -> None:
    decision = decide_own_config(_settings(), {"small": text})
    assert bool(decision.refusal) == bool(bad(*decision.findings))
    ignored_fields(text)


@pytest.mark.parametrize("text", ["[]", "7", '{"data": [7]}', "{"])
def test_an_answer_that_is_no_config_map_is_an_error_and_no_empty_one(text: str) -> None:
    with pytest.raises(ParseError):
        parse_config_map(text)


def test_an_answer_without_data_is_a_config_map_without_entries_and_none_is_none() -> None:
    assert parse_config_map('{"kind": "ConfigMap"}') == {}
    assert parse_config_map("\n") is None
    assert parse_config_map('{"data": {"a": "b"}}') == {"a": "b"}


def _run(host: Host, cluster: SimulatedCluster, entry: str) -> str:
    for _ in device_plugin.own_config._inner(settings=_settings(entry, **cluster.settings())):
        pass
    return "\n".join(host.refusals or host.noops)


def test_a_run_refuses_the_node_before_anything_is_changed(cluster: SimulatedCluster, host: Host) -> None:
    calls = device_plugin.own_config._inner(settings=_settings("medium", **cluster.settings()))
    for command in calls:
        assert command.function(host.state, host) is False
    said = "\n".join(host.refusals)
    assert unnamed(said, "medium", "large, small") == []
    assert cluster.called("kubectl get configmaps mine --namespace nvidia-device-plugin") == 1


def test_a_run_goes_on_where_the_entry_is_there(cluster: SimulatedCluster, host: Host) -> None:
    assert unnamed(_run(host, cluster, "large"), f"ConfigMap {SPACE}/mine", "large") == []
    assert (len(host.noops), host.refusals) == (1, [])


def test_drift_reads_the_config_map_once_and_tells_each_node_of_its_own_entry(cluster: SimulatedCluster) -> None:
    settings = _settings(**cluster.settings())
    by = Cluster(settings.kubernetes, settings.proxy, here)
    both = {"gpu-1": settings, "gpu-2": _settings("medium", **cluster.settings())}
    found = dict(drift_cluster._entries(by, both))
    assert bad(found["gpu-1"]) == () and bad(found["gpu-2"]) == (found["gpu-2"],)
    assert cluster.called("kubectl get configmaps") == 1
    cluster.write(failures={"kubectl get configmaps": "forbidden"})
    assert {each.actual for _, each in drift_cluster._entries(by, both)} == {"unknown"}
    plain = settings_from({"kubernetes": cluster.settings()})
    assert list(drift_cluster._entries(by, {"gpu-1": plain})) == []
