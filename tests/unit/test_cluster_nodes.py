"""Nodes of a cluster: what they are to offer, what kubectl says of them, and the patch of their labels."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.promise import missing, promised
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, label_patch, listing, parse_nodes
from gpunode.kubernetes.nodes.labels import OURS, PRESENT, label_change
from gpunode.settings import settings_from
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.sharing import SharingSettings

pytestmark = pytest.mark.pure

# A busy machine takes longer, and is not what is tried.
unhurried = settings(deadline=None)


def _sharing(**values: object) -> SharingSettings:
    return settings_from({"kubernetes": {"enabled": True}, "sharing": values}).sharing


@pytest.mark.parametrize(
    ("sharing", "whole", "mig", "offered"),
    [
        ({}, 8, {}, {"nvidia.com/gpu": 8}),
        ({}, 0, {}, {}),
        ({"strategy": "time-slicing", "replicas": 5}, 2, {}, {"nvidia.com/gpu": 10}),
        ({"strategy": "time-slicing", "replicas": 5, "rename": True}, 2, {}, {"nvidia.com/gpu.shared": 10}),
        ({"strategy": "mps", "replicas": 4, "rename": True}, 1, {}, {"nvidia.com/gpu.shared": 4}),
        ({"mig_strategy": "single"}, 0, {"1g.10gb": 14}, {"nvidia.com/gpu": 14}),
        ({"mig_strategy": "single"}, 2, {}, {"nvidia.com/gpu": 2}),
        (
            {"mig_strategy": "single", "strategy": "time-slicing", "replicas": 2},
            0, {"1g.10gb": 7}, {"nvidia.com/gpu": 14},
        ),
        (
            {"mig_strategy": "mixed"}, 1, {"1g.10gb": 2, "3g.40gb": 1, "1g.10gb+me": 1},
            {
                "nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-3g.40gb": 1,
                "nvidia.com/mig-1g.10gb.me": 1,
            },
        ),
        (
            {
                "mig_strategy": "mixed", "strategy": "time-slicing", "resources": {"nvidia.com/mig-1g.10gb": 3},
                "rename": True,
            },
            1, {"1g.10gb": 2, "3g.40gb": 1},
            {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb.shared": 6, "nvidia.com/mig-3g.40gb": 1},
        ),
    ],
)  # fmt: skip
def test_a_node_offers_what_its_settings_promise(
    sharing: dict[str, object], whole: int, mig: dict[str, int], offered: dict[str, int]
) -> None:
    assert promised(_sharing(**sharing), whole, mig) == offered


def test_what_a_node_lacks_or_has_too_much_is_told() -> None:
    wanted = {"nvidia.com/gpu.shared": 10}
    assert missing(wanted, {"cpu": "64", "nvidia.com/gpu.shared": "10", "nvidia.com/gpu": "0"}) == {}
    assert missing(wanted, {"nvidia.com/gpu": "2"}) == {
        "nvidia.com/gpu": ("2", 0),
        "nvidia.com/gpu.shared": (None, 10),
    }


@pytest.mark.parametrize("name", ["nvidia.com/hostdev", "nvidia.com/GRID_T4-2Q", "nvidia.com/gpu_direct_rdma"])
def test_resources_of_nvidia_s_that_its_device_plugin_does_not_offer_are_no_matter(name: str) -> None:
    assert missing({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": "8", name: "8"}) == {}


@pytest.mark.parametrize("name", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.shared"])
def test_what_the_device_plugin_offers_and_nobody_promised_is_told(name: str) -> None:
    assert missing({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": "8", name: "7"}) == {name: ("7", 0)}


NODES = {
    "items": [
        {
            "metadata": {"name": "gpu-1", "labels": {PRESENT: "true"}, "annotations": {OURS: f'["{PRESENT}"]'}},
            "spec": {"unschedulable": True},
            "status": {"allocatable": {"nvidia.com/gpu": "2"}, "conditions": [{"type": "Ready", "status": "True"}]},
        },
        {"metadata": {"name": "gpu-2"}},
    ]
}


def test_nodes_are_read_with_what_may_be_missing() -> None:
    assert parse_nodes(json.dumps(NODES)) == {
        "gpu-1": ClusterNode("gpu-1", {PRESENT: "true"}, f'["{PRESENT}"]', {"nvidia.com/gpu": "2"}, True, True),
        "gpu-2": ClusterNode("gpu-2", {}, None, {}, False, False, is_annotated=False),
    }


@unhurried
@given(
    st.text(max_size=20) | st.sampled_from(['{"items": 7}', '{"items": [7]}', '{"items": [{"metadata": []}]}', "[]"])
)
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="no list of nodes"):
        parse_nodes(text)


def test_labels_and_the_note_of_whose_they_are_go_in_one_request() -> None:
    kubernetes = KubernetesSettings.model_validate({"kubeconfig": "/etc/kubernetes/admin.conf", "context": "gpu"})
    assert listing(kubernetes) == (
        *("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "--context", "gpu"),
        *("get", "nodes", "--output", "json"),
    )
    node = parse_nodes(json.dumps(NODES))["gpu-1"]
    words = label_patch(kubernetes, node.name, label_change({"nvidia.com/mps.capable": "true"}, node.labels, node.ours))
    assert words[-7:-1] == ("patch", "node", "gpu-1", "--type", "merge", "--patch")
    assert json.loads(words[-1]) == {
        "metadata": {
            "labels": {"nvidia.com/mps.capable": "true", PRESENT: None},
            "annotations": {OURS: '["nvidia.com/mps.capable"]'},
        }
    }
    last = json.loads(label_patch(kubernetes, "gpu-1", label_change({}, node.labels, node.ours))[-1])
    assert last == {"metadata": {"labels": {PRESENT: None}, "annotations": {OURS: None}}}


@pytest.mark.parametrize(
    ("note", "unschedulable", "held"),
    [
        ('{"cordon": "gpunode", "state": "failed"}', True, True), ('{"cordon": "gpunode"}', False, False),
        ('{"cordon": "other"}', True, False), (None, True, False), ("[", True, False), ("[]", True, False),
    ],
)  # fmt: skip
def test_a_cordon_holds_a_node_back_where_it_is_gpunode_s_own(
    note: str | None, unschedulable: bool, held: bool
) -> None:
    metadata = {"name": "gpu-1", "annotations": {"gpunode/drain": note} if note else None}
    item = {"metadata": metadata, "spec": {"unschedulable": unschedulable}}
    (node,) = parse_nodes(json.dumps({"items": [item]})).values()
    assert node.is_held_back is held
