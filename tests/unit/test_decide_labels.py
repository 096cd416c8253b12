"""A node's labels are decided once: what drift finds is what the run changes, or somebody else's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import bad
from gpunode.base.findings import Finding
from gpunode.base.reading import Unknown
from gpunode.facts.gpu import Mig as MigFact
from gpunode.fleet import cluster as fleet_cluster
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.device_plugin.decide_labels import decide_labels, desired_labels
from gpunode.kubernetes.device_plugin.decide_restart import NONE
from gpunode.kubernetes.device_plugin.methods import to_json
from gpunode.kubernetes.device_plugin.others import Plugin
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import RUN_CLUSTER
from gpunode.kubernetes.nodes.labels import (
    CONFIG,
    GPUSHARE,
    MIG_CONFIG,
    MIG_STATE,
    MIG_STATES,
    MPS_CAPABLE,
    OURS,
    PRESENT,
    SERVED_BY,
    LabelChange,
)
from gpunode.operations import device_plugin, methods
from gpunode.settings import Settings, check_hosts, settings_from
from tests.support.cluster_fleet import of_both
from tests.support.messages import unnamed
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host
from tests.support.verify import GOOD
from tests.support.verify_cluster import TWO

pytestmark = pytest.mark.pure

RACK, OF_KUBELET = "example.com/rack", "kubernetes.io/os"
OURS_EVER = (CONFIG, PRESENT, MPS_CAPABLE, MIG_CONFIG, MIG_STATE, SERVED_BY, GPUSHARE, RACK)
_SHARED = {"strategy": "time-slicing", "replicas": 5}
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"device_plugin": {"method": "none"}},
    {"device_plugin": {"method": "manifest"}, "sharing": _SHARED},
    {"device_plugin": {"method": "gpushare"}},
    {"device_plugin": {"method": "gpu-operator", "nfd": "present"}},
    {"sharing": {"strategy": "mps", "replicas": 4}},
    {"mig": {"config": "all-1g.10gb"}, "sharing": {"mig_strategy": "mixed"}},
    {"mig": {"config_from_label": True}},
    {"kubernetes": {"enabled": True, "node_labels": {RACK: "other"}}},
    {"kubernetes": {"enabled": True, "node_labels": {RACK: ""}}, "device_plugin": {"method": "none"}},
    {},
)
_LABELS = st.dictionaries(
    st.sampled_from([*OURS_EVER, "team", OF_KUBELET]),
    st.sampled_from(["true", "manifest", "none", "all-1g.10gb", "other"]),
)
_ANNOTATIONS = st.one_of(
    st.sampled_from([None, "{", "[1]", f'["{OF_KUBELET}"]']),
    st.sets(st.sampled_from(OURS_EVER)).map(lambda names: json.dumps(sorted(names), separators=(",", ":"))),
)
_NODES = st.one_of(
    st.none(),
    st.builds(lambda labels, ours: ClusterNode("gpu-1", labels, ours, {}, False, True), _LABELS, _ANNOTATIONS),
)


def test_each_host_has_labels_of_its_own() -> None:
    data = {name: {"kubernetes": {"enabled": True, "node_labels": {RACK: name}}} for name in ("b7", "b8")}
    hosts = check_hosts(data)
    assert to_json(hosts)["node_labels"] == {name: {RACK: name} for name in ("b7", "b8")}


def _settings(data: dict[str, Any]) -> Settings:
    return settings_from({"kubernetes": {"enabled": True}, **data})


def _run(
    settings: Settings, node: ClusterNode | None, state: str | Unknown | None
) -> tuple[Host, list[LabelChange], bool]:
    """Return the host of a run, what it changed, and whether it was refused."""
    host, changes = Host({MigFact: TWO}), []
    with (
        ctx_host.use(host),
        patch.object(device_plugin, "_node", lambda *_: node),
        patch.object(device_plugin, "mig_state", lambda *_: state),
        # Whose pods feel it has its own tests.
        patch.object(device_plugin, "nodes", lambda _: {}),
        patch.object(device_plugin, "restart_of", lambda *_: NONE),
        patch.object(Cluster, "label", lambda _, name, change: changes.append(change)),
    ):
        given_commands = device_plugin.labels._inner(settings=settings, gpus=(), cluster_of=settings)
        done = [each.function(host.state, host, *each.args) for each in given_commands]
    return host, changes, not all(done)


@given(
    data=st.sampled_from(_SETTINGS),
    looked_up=st.booleans(),
    node=_NODES,
    state=st.sampled_from([*MIG_STATES, Unknown("hangs")]),
)
@hypothesis_settings(deadline=None)
def test_run_and_drift_agree_on_labels(
    data: dict[str, Any], looked_up: bool, node: ClusterNode | None, state: str | Unknown
) -> None:
    settings = _settings(data)
    if looked_up and settings.mig.config:
        settings = settings.model_copy(update={"mig": settings.mig.model_copy(update={"config_from_label": True})})
    desired = desired_labels("gpu-1", settings, state if settings.mig.config else None)
    decision = decide_labels(desired, node)
    different = bad(*decision.findings)
    settled = [item for step in decision.steps for item in step.settles]
    assert all(item in different for item in settled)
    assert all(item in settled or item.remedy not in (None, RUN_CLUSTER) for item in different)
    assert all(item.remedy == RUN_CLUSTER for item in settled)
    assert bool(decision.steps) == bool(settled)
    host, changes, refused = _run(settings, node, state)
    assert changes == [step.change for step in decision.steps] and refused == (decision.refusal is not None)
    assert bool(host.noops) == (not changes and not refused)
    if node is None:
        return
    (change,) = changes or [LabelChange({}, (), node.ours, {}, False)]
    after = replace(node, labels=change.applied_to(node.labels), ours=change.ours)
    again = decide_labels(desired, after)
    assert not again.steps and all(item.remedy != RUN_CLUSTER for item in bad(*again.findings))
    # What is somebody else's stays as it is.
    assert all(after.labels.get(name) == node.labels.get(name) for name in ("team", OF_KUBELET))
    assert bad(*again.findings) == tuple(item for item in different if item not in settled)


def _drift(tmp_path: Path, data: dict[str, Any], labels: dict[str, str], ours: list[str]) -> dict[str, Finding]:
    cluster = SimulatedCluster.of(tmp_path, "gpu-1")
    nodes = cluster.state()["nodes"]
    annotations = {OURS: json.dumps(ours, separators=(",", ":"))} if ours else {}
    nodes["gpu-1"]["metadata"] |= {"labels": labels, "annotations": annotations}
    cluster.write(nodes=nodes, objects={"daemonsets.apps,pods": []})
    more = dict(data)
    labels_of = {"node_labels": more.pop("node_labels", {})}
    settings = settings_from({"kubernetes": {**cluster.settings(), **labels_of}, **more})
    found = of_both(fleet_cluster.findings(Path("none.py"), {"gpu-1": settings}, {"gpu-1": GOOD}))
    return {item.what: item for item in bad(*found)}


def test_drift_tells_of_labels_that_the_run_takes_off_a_node_that_is_gpunode_s_no_more(tmp_path: Path) -> None:
    found = _drift(tmp_path, {"device_plugin": {"method": "none"}}, {PRESENT: "true", "team": "a"}, [PRESENT])
    assert {name: (item.actual, item.desired) for name, item in found.items()} == {f"label {PRESENT}": ("true", "none")}
    assert _drift(tmp_path, {"device_plugin": {"method": "none"}}, {PRESENT: "true"}, []) == {}


def test_drift_tells_of_labels_of_a_person_s_where_gpunode_brings_no_plugin(tmp_path: Path) -> None:
    data = {"device_plugin": {"method": "none"}, "node_labels": {RACK: "b7", "node-role.kubernetes.io/gpu": ""}}
    found = _drift(tmp_path, data, {RACK: "b6", "pool": "a"}, [RACK, "pool"])
    assert {name: (item.actual, item.desired, item.remedy) for name, item in found.items()} == {
        f"label {RACK}": ("b6", "b7", RUN_CLUSTER),
        "label node-role.kubernetes.io/gpu": ("none", '""', RUN_CLUSTER),
        "label pool": ("a", "none", RUN_CLUSTER),
    }
    (theirs,) = _drift(tmp_path, {**data, "node_labels": {RACK: "b7"}}, {RACK: "b6"}, []).values()
    assert theirs.remedy not in (None, RUN_CLUSTER) and f"gpu-1 {RACK}-" in str(theirs.remedy)


def test_drift_tells_of_an_annotation_that_the_run_writes_anew(tmp_path: Path) -> None:
    found = _drift(tmp_path, {}, {CONFIG: "none", PRESENT: "true"}, [CONFIG, PRESENT, MPS_CAPABLE])
    item = found[f"annotation {OURS}"]
    assert (item.desired, item.remedy) == (f'["{CONFIG}","{PRESENT}"]', RUN_CLUSTER) and item.remedy != BY_HAND


def test_a_plugin_that_takes_a_label_left_to_people_is_in_the_way(host: Host) -> None:
    settings = _settings({"mig": {"config_from_label": True}})
    node = ClusterNode("gpu-1", {MIG_CONFIG: "all-1g.10gb"}, f'["{MIG_CONFIG}"]', {}, False, True)
    other = Plugin("manifest", "theirs", "plugin", None, False, {"nodeSelector": {MIG_CONFIG: "all-1g.10gb"}})
    with (
        patch.object(methods, "nodes", lambda _: {"gpu-1": node}),
        patch.object(methods, "asked", lambda *_: (other,)),
        patch.object(methods, "relabelled", lambda _: frozenset()),
    ):
        (refusal,) = methods.alone._inner(settings=settings, everyone={"gpu-1": settings}, cluster_of=settings)
        assert refusal.function(None, host) is False
    assert unnamed(host.refusals[0], "theirs/plugin") == []
