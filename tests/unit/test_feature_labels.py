"""What GPU feature discovery is to label a node with, by the node's facts, and what is told where it says otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import Decision
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.state import Mig
from gpunode.kubernetes.device_plugin.decide_labels import Expected, expected_labels, judge_feature_labels
from gpunode.kubernetes.device_plugin.decide_restart import NONE, Bounds, decide_restart, waits
from gpunode.kubernetes.device_plugin.verdict import comes_by_itself, judge_node
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT
from gpunode.settings import Settings, settings_from
from gpunode.settings.sharing import SharingSettings
from gpunode.system.gpu import Gpus
from tests.support.feature_labels import by_smi, divided, gpu
from tests.support.other_plugins import CHART

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("name", "sharing"),
    [
        ("time-slicing-4", {"strategy": "time-slicing", "replicas": 4}),
        ("time-slicing-4-renamed", {"strategy": "time-slicing", "replicas": 4, "rename": True}),
        ("mps-10", {"strategy": "mps", "replicas": 10}),
        ("mps-10-renamed", {"strategy": "mps", "replicas": 10, "rename": True}),
    ],
)
def test_what_is_expected_is_what_discovery_wrote_of_a_real_h100(name: str, sharing: dict[str, Any]) -> None:
    # v0.20.0 of GPU feature discovery, driver 580.159.04, one H100 80GB.
    text = (Path(__file__).parent / "data" / "feature-discovery" / f"h100-80gb.{name}.txt").read_text()
    written = dict(line.split("=") for line in text.splitlines())
    mig = divided(None)
    gpus = by_smi(mig, memory_mib=81559, driver_version="580.159.04")
    found = expected_labels(SharingSettings.model_validate(sharing), gpus, mig)
    assert found is not None and len(found) == 10
    assert {label: written.get(label) for label in found} == {label: values[0] for label, values in found.items()}


def _settings(**more: Any) -> Settings:
    plugin = {"gfd": True, "nfd": "present", **more.pop("device_plugin", {})}
    return settings_from({"kubernetes": {"enabled": True}, **more, "device_plugin": plugin})


def _node(labels: dict[str, str]) -> ClusterNode:
    return ClusterNode("gpu-1", labels, None, {}, False, True)


def _bad(findings: list[Finding]) -> list[tuple[str, str | None, str | None]]:
    return [(each.what, each.actual, each.desired) for each in findings if each.finding_class is not FindingClass.OK]


def _written(expected: Expected) -> dict[str, str]:
    """Return the labels of a node on which discovery wrote what it was to."""
    return {name: values[0] for name, values in expected.items() if values[0] is not None}


def test_what_nvidia_smi_does_not_tell_is_not_compared() -> None:
    mig = divided(None)
    sharing = SharingSettings.model_validate({})
    assert expected_labels(sharing, Gpus("no driver", 9, None, ()), mig) is None
    assert expected_labels(sharing, by_smi(mig), Mig("hangs")) is None
    unread = replace(mig.gpus[0], current="Enabled", instances=None)
    mixed = SharingSettings.model_validate({"mig_strategy": "mixed"})
    assert expected_labels(mixed, by_smi(mig), Mig("ok", None, (unread,))) is None


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB"),
        ("nvidia.com/gpu.count", "1"),
        ("nvidia.com/gpu.memory", "40960"),
        ("nvidia.com/gpu.replicas", "1"),
        ("nvidia.com/gpu.sharing-strategy", "none"),
        ("nvidia.com/mig.capable", "false"),
        ("nvidia.com/mig.strategy", "mixed"),
        ("nvidia.com/cuda.driver-version.full", "570.26"),
        ("nvidia.com/cuda.runtime-version.full", "12.8"),
        ("nvidia.com/gpu.product", None),
    ],
)
def test_a_label_that_is_not_what_the_node_says_is_waited_for(name: str, other: str | None) -> None:
    mig, settings = divided(None, None), _settings(sharing={"strategy": "time-slicing", "replicas": 5})
    labels = _written(expected_labels(settings.sharing, by_smi(mig), mig) or {})
    assert _bad(list(judge_feature_labels(settings, _node(labels), by_smi(mig), mig))) == []
    desired = labels.get(name, "none")
    wrong = {key: value for key, value in {**labels, name: other}.items() if value is not None}
    findings = list(judge_feature_labels(settings, _node(wrong), by_smi(mig), mig))
    assert _bad(findings) == [(f"feature label {name}", other or "none", desired)]
    (bad,) = (each for each in findings if each.finding_class is not FindingClass.OK)
    assert bad.remedy and comes_by_itself(bad)


def test_the_count_of_mig_devices_that_are_gone_is_told() -> None:
    mig, settings = divided(None), _settings()
    labels = {
        **_written(expected_labels(settings.sharing, by_smi(mig), mig) or {}),
        "nvidia.com/mig-1g.10gb.count": "7",
    }
    found = _bad(list(judge_feature_labels(settings, _node(labels), by_smi(mig), mig)))
    assert found == [("feature label nvidia.com/mig-1g.10gb.count", "7", "none")]


def test_where_none_of_them_is_there_that_is_told_once() -> None:
    mig = divided(None)
    (found,) = judge_feature_labels(_settings(), _node({"nvidia.com/gpu.present": "true"}), by_smi(mig), mig)
    assert (found.what, found.actual, found.desired) == ("feature labels", "none", "9 labels")
    assert found.remedy and comes_by_itself(found)


def test_nothing_is_compared_where_discovery_is_not_asked_for_or_nothing_is_known() -> None:
    mig, wrong = divided(None), _node({"nvidia.com/gpu.count": "9"})
    assert list(judge_feature_labels(_settings(device_plugin={"gfd": False}), wrong, by_smi(mig), mig)) == []
    assert list(judge_feature_labels(_settings(), wrong, None, mig)) == []
    assert list(judge_feature_labels(_settings(), wrong, Gpus("lost", 15, None, ()), mig)) == []


def test_by_a_config_map_of_the_user_s_own_what_depends_on_sharing_is_left_out() -> None:
    mig = divided(None)
    settings = _settings(device_plugin={"config_name": "mine"}, sharing={"config": "sliced"})
    labels = {"nvidia.com/gpu.replicas": "9", "nvidia.com/mig-1g.10gb.count": "7", "nvidia.com/mig.capable": "false"}
    found = _bad(list(judge_feature_labels(settings, _node(labels), by_smi(mig), mig)))
    assert [what for what, _, _ in found] == [
        "feature label nvidia.com/cuda.driver-version.full",
        "feature label nvidia.com/cuda.runtime-version.full",
        "feature label nvidia.com/mig.capable",
    ]


_PROFILES = st.sampled_from(["1g.10gb", "2g.20gb", "3g.40gb", "1g.10gb+me"])
_NODES = st.lists(
    st.tuples(
        st.none() | st.lists(_PROFILES, max_size=3).map(tuple),
        st.text(st.characters(codec="ascii", min_codepoint=32), max_size=80),
    ),
    max_size=4,
)
_SHARINGS = st.sampled_from(
    [
        {},
        {"strategy": "time-slicing", "replicas": 3},
        {"strategy": "time-slicing", "resources": {"nvidia.com/mig-1g.10gb": 2}, "mig_strategy": "mixed"},
        {"mig_strategy": "single"},
        {"mig_strategy": "mixed"},
        {"strategy": "mps", "replicas": 4},
    ]
)


@given(nodes=_NODES, sharing=_SHARINGS, name=st.integers(0), value=st.text(max_size=8))
def test_what_discovery_is_to_write_is_as_desired_and_any_one_change_of_it_is_found(
    nodes: list[tuple[tuple[str, ...] | None, str]], sharing: dict[str, Any], name: int, value: str
) -> None:
    mig = Mig("ok", None, tuple(gpu(i, each, model) for i, (each, model) in enumerate(nodes)))
    settings = _settings(sharing=sharing)
    expected = expected_labels(settings.sharing, by_smi(mig), mig) or {}
    labels = _written(expected)
    assert all(len(each) <= 63 for each in labels.values())
    assert _bad(list(judge_feature_labels(settings, _node(labels), by_smi(mig), mig))) == []
    if labels:
        changed = sorted(labels)[name % len(labels)]
        findings = list(judge_feature_labels(settings, _node({**labels, changed: value}), by_smi(mig), mig))
        wrong = [each[0] for each in _bad(findings)]
        assert wrong == ([] if value in expected[changed] else [f"feature label {changed}"])


def test_what_follows_from_labels_that_wait_for_mps_clients_waits_with_them() -> None:
    """Labels of discovery and offers of another plugin, too: a run that rightly waits fails by none of them."""
    plugins = {"fpga": {**CHART, "resources": {"example.com/fpga": 2}}}
    more: dict[str, Any] = {"kubernetes": {"enabled": True, "device_plugins": plugins}}
    more |= {"sharing": {"strategy": "mps", "replicas": 8}, "disruption": {"allow": "nothing"}}
    settings = _settings(**more)
    mig = divided(None, None)
    old = expected_labels(SharingSettings.model_validate({"strategy": "mps", "replicas": 4}), by_smi(mig), mig)
    assert old is not None
    node = replace(_node({**_written(old), CONFIG: "mps-4", PRESENT: "true"}), allocatable={"nvidia.com/gpu": "8"})
    view = View({"gpu-1": node}, (), ())
    restart = decide_restart({"gpu-1": ["team/a"]}, Bounds({"gpu-1": settings}, frozenset({"gpu-1"})))
    assert waits(restart) is not None

    def drift(restart: Decision[str]) -> set[str]:
        found = judge_node(settings, "gpu-1", None, mig, view, by_smi(mig), restart=restart)
        return {
            item.what.split()[0] for item in found if item.finding_class is FindingClass.DRIFT and not item.by_person
        }

    assert {"feature", "allocatable", "label"} <= drift(NONE)
    # Only what no label brings stays: the release that is not there.
    assert drift(restart) <= {"helm", "release"}
