"""Extended resources that a person counts: names, the JSON patch, and what drift finds is what the run changes."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch as patched

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import bad
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.device_plugin.promise import missing
from gpunode.kubernetes.device_plugin.verdict import comes_by_itself, judge_node
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, parse_nodes
from gpunode.kubernetes.nodes.extended_resources import (
    UNBACKED,
    decide_resources,
    owned,
    patch,
)
from gpunode.kubernetes.nodes.labels import RESOURCES
from gpunode.lab.cluster.pods import counted_by_others
from gpunode.operations import device_plugin
from gpunode.settings import Settings, settings_from
from gpunode.settings.other_plugins import by_hand
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

DONGLE, TILDE = "example.com/dongle", "a.b/c~d"
_NAMES = st.sampled_from([DONGLE, "example.com/license", "fpga.example.org/x.y_z"])
_COUNTS = st.dictionaries(_NAMES, st.integers(1, 9))
_ANNOTATIONS = st.one_of(
    st.sampled_from([None, "{", "[1]", '["nvidia.com/gpu"]', "[]"]),
    st.sets(_NAMES).map(lambda names: json.dumps(sorted(names), separators=(",", ":"))),
)


def test_a_count_of_thousands_is_as_desired_whatever_text_the_api_server_has_for_it() -> None:
    """It writes 3000 as 3k: read as a text, that is another count for ever, and each run sets it again."""
    status = {"capacity": {DONGLE: "3k"}, "allocatable": {DONGLE: "3k", "nvidia.com/gpu": "1k"}}
    item = {"metadata": {"name": "gpu-1", "annotations": {RESOURCES: json.dumps([DONGLE])}}, "status": status}
    (node,) = parse_nodes(json.dumps({"items": [item]})).values()
    decision = decide_resources("gpu-1", {DONGLE: 3000}, node)
    assert not decision.steps and not bad(*decision.findings)
    assert missing({"nvidia.com/gpu": 1000}, node.allocatable) == {}


def applied(node: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a Node after a JSON patch, by RFC 6902: what an API server does."""
    found = copy.deepcopy(node)
    for each in operations:
        *parents, last = (
            part.replace("~1", "/").replace("~0", "~") for part in each["path"].removeprefix("/").split("/")
        )
        place = found
        for part in parents:
            place = place[part]
        match each["op"]:
            case "test":
                assert place[last] == each["value"]
            case "add":
                place[last] = each["value"]
            case "remove":
                del place[last]
    return found


def as_kubelet(node: dict[str, Any]) -> dict[str, Any]:
    """Return the Node after the lab's kubelet has reported."""
    status = node["status"]
    change = counted_by_others(status)
    allocatable = {name: count for name, count in {**status["allocatable"], **change}.items() if count is not None}
    return {**node, "status": {**status, "allocatable": allocatable}}


def cluster_node(content: dict[str, Any]) -> ClusterNode:
    return parse_nodes(json.dumps({"items": [content]}))["gpu-1"]


def node(capacity: dict[str, str], ours: str | None = None, others: bool = True) -> dict[str, Any]:
    notes = {**({"team": "a"} if others else {}), **({RESOURCES: ours} if ours is not None else {})}
    metadata = {"name": "gpu-1", **({"annotations": notes} if notes else {})}
    both = {"cpu": "8", **capacity}
    return {"metadata": metadata, "status": {"capacity": both, "allocatable": dict(both)}}


def counted(data: dict[str, int]) -> Settings:
    kubernetes = {"enabled": True, "extended_resources": data}
    return settings_from({"kubernetes": kubernetes, "device_plugin": {"method": "none"}})


@given(desired=_COUNTS, actual=_COUNTS, ours=_ANNOTATIONS, others=st.booleans())
@hypothesis_settings(deadline=None)
def test_the_patch_leaves_somebody_else_s_alone(
    desired: dict[str, int], actual: dict[str, int], ours: str | None, others: bool
) -> None:
    before = node({name: str(count) for name, count in actual.items()}, ours, others)
    decision = decide_resources("gpu-1", desired, cluster_node(before))
    different = bad(*decision.findings)
    settled = [item for step in decision.steps for item in step.settles]
    assert all(item in different for item in settled) and bool(decision.steps) == bool(settled)
    changes = [step.change for step in decision.steps if step.change is not None]
    after = as_kubelet(applied(before, [each for change in changes for each in patch(change)]))
    again = decide_resources("gpu-1", desired, cluster_node(after))
    assert not again.steps and bad(*again.findings) == tuple(item for item in different if item not in settled)
    foreign = {name: str(count) for name, count in actual.items() if name not in owned(ours)}
    assert foreign.items() <= after["status"]["capacity"].items()
    assert not (owned(ours) - set(desired)) & set(after["status"]["capacity"])
    assert after["metadata"].get("annotations", {}).get("team") == ("a" if others else None)
    # Whatever is gone from the capacity is no longer allocatable.
    assert after["status"]["allocatable"] == after["status"]["capacity"]
    assert decide_resources("gpu-1", {}, None).findings == ()


@given(text=st.text())
@hypothesis_settings(deadline=None)
def test_an_annotation_of_any_text_names_none_that_gpunode_never_sets(text: str) -> None:
    assert all(by_hand(name) for name in owned(text))


def test_whoever_looks_is_told_that_nobody_backs_a_count_and_waits_for_the_kubelet_alone() -> None:
    content = node({DONGLE: "4"}, f'["{DONGLE}"]')
    content["status"]["allocatable"].pop(DONGLE)
    view = View({"gpu-1": cluster_node(content)}, (), ())
    found = {item.what: item for item in judge_node(counted({DONGLE: 4}), "gpu-1", None, GOOD.mig, view)}
    assert found[f"extended resource {DONGLE}"].cause == UNBACKED and found[f"extended resource {DONGLE}"].is_caution
    late = found[f"allocatable {DONGLE}"]
    assert late.actual == "none" and comes_by_itself(late)
    view = View({"gpu-1": cluster_node(as_kubelet(content))}, (), ())
    assert not bad(*judge_node(counted({DONGLE: 4}), "gpu-1", None, GOOD.mig, view))
    dropped = replace(cluster_node(content), capacity={DONGLE: "0"})
    (item,) = bad(*judge_node(counted({DONGLE: 4}), "gpu-1", None, GOOD.mig, View({"gpu-1": dropped}, (), ())))
    assert item.cause and not comes_by_itself(item)


@pytest.mark.parametrize(("actual", "good"), [({"rdma/hca_a": "64"}, True), ({"rdma/hca_a": "0"}, False), ({}, False)])
def test_what_a_device_plugin_of_others_is_to_offer_is_waited_for(actual: dict[str, str], good: bool) -> None:
    kubernetes = {"enabled": True, "expected_resources": {"rdma/hca_a": 64}}
    settings = settings_from({"kubernetes": kubernetes, "device_plugin": {"method": "none"}})
    view = View({"gpu-1": cluster_node(node(actual))}, (), ())
    found = bad(*judge_node(settings, "gpu-1", None, GOOD.mig, view))
    assert [(item.what, item.desired) for item in found] == ([] if good else [("allocatable rdma/hca_a", "64")])
    assert all(map(comes_by_itself, found)) and all(item.remedy for item in found)
    # Nothing is counted by hand for it.
    assert not decide_resources("gpu-1", settings.kubernetes.extended_resources, view.nodes["gpu-1"]).steps


@pytest.mark.parametrize(
    ("capacity", "ours", "desired"),
    [
        ({}, None, {DONGLE: 4}),
        ({DONGLE: "4"}, f'["{DONGLE}"]', {DONGLE: 4}),
        ({DONGLE: "4"}, f'["{DONGLE}"]', {}),
        ({DONGLE: "4"}, None, {}),
    ],
)
def test_the_operation_does_what_is_decided(
    capacity: dict[str, str], ours: str | None, desired: dict[str, int]
) -> None:
    host, changes, settings = Host({}), [], counted(desired)
    actual = cluster_node(node(capacity, ours))
    with (
        ctx_host.use(host),
        patched.object(device_plugin, "_node", lambda *_: actual),
        patched.object(Cluster, "count_resources", lambda _, name, change: changes.append((name, change))),
    ):
        for each in device_plugin.resources._inner(settings=settings, cluster_of=settings):
            assert each.function(host.state, host, *each.args)
    steps = decide_resources("gpu-1", desired, actual).steps
    assert changes == [("gpu-1", step.change) for step in steps]
    assert bool(host.noops) == (not steps)
