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
from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.kubernetes.device_plugin.decide_restart import NONE, Bounds, decide_restart, waits
from gpunode.kubernetes.device_plugin.feature_labels import Expected, expected_labels, judge_feature_labels
from gpunode.kubernetes.device_plugin.verdict import comes_by_itself, judge_node
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT
from gpunode.settings import Settings, settings_from
from gpunode.settings.sharing import SharingSettings
from gpunode.system.gpu import Gpus
from tests.support.other_plugins import CHART
from tests.support.verify import GPU

pytestmark = pytest.mark.pure

MODEL = "NVIDIA H100 80GB HBM3"
DASHED = "NVIDIA-H100-80GB-HBM3"


def _mig(*gpus: tuple[str, ...] | None, model: str = MODEL, current: str = "Disabled") -> Mig:
    """Return GPUs: None is a whole one, else the profiles of its MIG devices."""
    return Mig("ok", None, tuple(_gpu(index, each, model, current) for index, each in enumerate(gpus)))


def _gpu(index: int, profiles: tuple[str, ...] | None, model: str, current: str) -> MigGpu:
    mode = current if profiles is None else "Enabled"
    there = tuple(
        GpuInstance(number, 0, each, 0, 1, (ComputeInstance(0, 0, each, 0, 1),))
        for number, each in enumerate(profiles or ())
    )
    return MigGpu(index, f"GPU-{index}", f"0000:0{index}:00.0", "2330", model, mode, mode, there)


def _gpus(mig: Mig, **more: Any) -> Gpus:
    rows = (replace(GPU, index=each.index, uuid=each.uuid, name=each.name, **more) for each in mig.gpus)
    return Gpus("ok", 0, None, tuple(rows))


def _expected(mig: Mig, **sharing: Any) -> Expected:
    found = expected_labels(SharingSettings.model_validate(sharing), _gpus(mig), mig)
    assert found is not None
    return found


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
    mig = _mig(None)
    gpus = _gpus(mig, memory_mib=81559, driver_version="580.159.04")
    found = expected_labels(SharingSettings.model_validate(sharing), gpus, mig)
    assert found is not None and len(found) == 10
    assert {label: written.get(label) for label in found} == {label: values[0] for label, values in found.items()}


def _of(found: Expected, resource: str = "nvidia.com/gpu") -> dict[str, tuple[str | None, ...]]:
    return {name.removeprefix(f"{resource}."): each for name, each in found.items() if name.startswith(f"{resource}.")}


def _settings(**more: Any) -> Settings:
    plugin = {"gfd": True, "nfd": "present", **more.pop("device_plugin", {})}
    return settings_from({"kubernetes": {"enabled": True}, "device_plugin": plugin, **more})


def _node(labels: dict[str, str]) -> ClusterNode:
    return ClusterNode("gpu-1", labels, None, {}, False, True)


def _bad(findings: list[Finding]) -> list[tuple[str, str | None, str | None]]:
    return [(each.what, each.actual, each.desired) for each in findings if each.finding_class is not FindingClass.OK]


def _written(expected: Expected) -> dict[str, str]:
    """Return the labels of a node on which discovery wrote what it was to."""
    return {name: values[0] for name, values in expected.items() if values[0] is not None}


def test_two_whole_gpus_are_told_by_model_count_memory_driver_and_cuda() -> None:
    found = _expected(_mig(None, None))
    assert {name: each for name, (each,) in found.items()} == {
        "nvidia.com/gpu.product": DASHED,
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": None,
        "nvidia.com/mps.capable": "false",
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        "nvidia.com/cuda.runtime-version.full": "13.0",
    }


@pytest.mark.parametrize(
    ("sharing", "product", "replicas", "strategy", "by_mps"),
    [
        ({"strategy": "time-slicing", "replicas": 5}, f"{DASHED}-SHARED", "5", "time-slicing", "false"),
        ({"strategy": "time-slicing", "replicas": 5, "rename": True}, DASHED, "5", "time-slicing", "false"),
        ({"strategy": "mps", "replicas": 8}, f"{DASHED}-SHARED", "8", "mps", "true"),
    ],
)
def test_sharing_puts_a_suffix_behind_the_model_unless_the_resource_is_renamed(
    sharing: dict[str, Any], product: str, replicas: str, strategy: str, by_mps: str
) -> None:
    found = _expected(_mig(None, None), **sharing)
    assert _of(found)["product"] == (product,) and _of(found)["replicas"] == (replicas,)
    assert _of(found)["sharing-strategy"] == (strategy,) and found["nvidia.com/mps.capable"] == (by_mps,)


def test_mixed_tells_each_profile_with_its_model_beside_whole_gpus() -> None:
    sharing = {"strategy": "time-slicing", "resources": {"nvidia.com/mig-1g.10gb": 2}, "mig_strategy": "mixed"}
    found = _expected(_mig(("1g.10gb", "1g.10gb", "1g.10gb+me"), None), **sharing)
    # Discovery counts the divided GPU among those of its model.
    assert (_of(found)["count"], _of(found)["replicas"], _of(found)["product"]) == (("2",), ("1",), (DASHED,))
    assert _of(found, "nvidia.com/mig-1g.10gb") == {
        "product": (f"{DASHED}-MIG-1g.10gb-SHARED",),
        "count": ("2",),
        "replicas": ("2",),
        "sharing-strategy": ("time-slicing",),
        "me.product": (f"{DASHED}-MIG-1g.10gb.me",),
        "me.count": ("1",),
        "me.replicas": ("1",),
        "me.sharing-strategy": ("none",),
    }
    assert found["nvidia.com/mig.strategy"] == ("mixed",)


def test_gpus_in_mig_mode_tell_no_sharing_where_no_whole_gpu_stands_beside_them() -> None:
    found = _expected(_mig(("3g.40gb",), ()), mig_strategy="mixed")
    assert (_of(found)["replicas"], _of(found)["count"]) == (("0",), ("2",))


def test_single_tells_mig_devices_in_the_place_of_gpus_and_no_memory_that_nobody_here_knows() -> None:
    found = _expected(_mig(("1g.10gb",) * 7, ("1g.10gb",) * 7), mig_strategy="single")
    assert (_of(found)["product"], _of(found)["count"]) == ((f"{DASHED}-MIG-1g.10gb",), ("14",))
    assert "memory" not in _of(found) and found["nvidia.com/mig.strategy"] == ("single",)


@pytest.mark.parametrize(
    "mig",
    [_mig(("1g.10gb",), None), _mig(("1g.10gb",), ()), _mig(("1g.10gb", "2g.20gb"))],
    ids=["a whole GPU beside it", "a divided GPU without devices", "two profiles"],
)
def test_single_says_that_it_cannot_be_where_gpus_are_not_divided_alike(mig: Mig) -> None:
    assert _of(_expected(mig, mig_strategy="single")) == {
        "product": (f"{DASHED}-MIG-INVALID",),
        "count": ("0",),
        "replicas": ("0",),
        "sharing-strategy": ("",),
        "memory": ("0",),
    }


def test_of_gpus_of_several_models_either_may_be_told() -> None:
    mig = Mig("ok", None, (_gpu(0, None, "NVIDIA L4", "[N/A]"), _gpu(1, None, "Tesla T4", "[N/A]")))
    found = _expected(mig)
    assert _of(found)["product"] == ("NVIDIA-L4", "Tesla-T4") and found["nvidia.com/mig.capable"] == ("false",)


def test_beside_whole_gpus_of_another_model_a_divided_one_is_not_told() -> None:
    mig = Mig("ok", None, (_gpu(0, ("1g.10gb",), MODEL, "Disabled"), _gpu(1, None, "NVIDIA L4", "[N/A]")))
    found = _expected(mig, mig_strategy="mixed")
    assert _of(found)["product"] == ("NVIDIA-L4",) and _of(found)["replicas"] == ("1",)


@pytest.mark.parametrize(
    ("driver", "runtime"),
    [("535.261.03", ("12.2",)), ("570.26", ("12.8",)), ("565.57.01", None), ("N/A", None)],
)
def test_the_cuda_of_a_driver_is_that_of_its_branch_or_not_compared(driver: str, runtime: Any) -> None:
    mig = _mig(None)
    found = expected_labels(SharingSettings.model_validate({}), _gpus(mig, driver_version=driver), mig) or {}
    assert found.get("nvidia.com/cuda.runtime-version.full") == runtime


def test_a_label_that_no_label_can_be_is_not_compared() -> None:
    long = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    found = _expected(_mig(None, model=long), strategy="time-slicing", replicas=2)
    assert len(long) + len("-SHARED") <= 63 and "product" in _of(found)
    sliced = _expected(_mig(("1g.24gb+me.all",), model=long), mig_strategy="mixed")
    assert "nvidia.com/mig-1g.24gb.me.all.product" not in sliced and sliced["nvidia.com/mig-1g.24gb.me.all.count"]


def test_what_nvidia_smi_does_not_tell_is_not_compared() -> None:
    mig = _mig(None)
    sharing = SharingSettings.model_validate({})
    assert expected_labels(sharing, Gpus("no driver", 9, None, ()), mig) is None
    assert expected_labels(sharing, _gpus(mig), Mig("hangs")) is None
    unread = replace(mig.gpus[0], current="Enabled", instances=None)
    mixed = SharingSettings.model_validate({"mig_strategy": "mixed"})
    assert expected_labels(mixed, _gpus(mig), Mig("ok", None, (unread,))) is None
    assert "nvidia.com/gpu.memory" not in (expected_labels(sharing, _gpus(mig, memory_mib=None), mig) or {})


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
    mig, settings = _mig(None, None), _settings(sharing={"strategy": "time-slicing", "replicas": 5})
    labels = _written(expected_labels(settings.sharing, _gpus(mig), mig) or {})
    assert _bad(list(judge_feature_labels(settings, _node(labels), _gpus(mig), mig))) == []
    desired = labels.get(name, "none")
    wrong = {key: value for key, value in {**labels, name: other}.items() if value is not None}
    findings = list(judge_feature_labels(settings, _node(wrong), _gpus(mig), mig))
    assert _bad(findings) == [(f"feature label {name}", other or "none", desired)]
    (bad,) = (each for each in findings if each.finding_class is not FindingClass.OK)
    assert "delete GPU feature discovery's pod" in (bad.remedy or "") and comes_by_itself(bad)


def test_the_count_of_mig_devices_that_are_gone_is_told() -> None:
    mig, settings = _mig(None), _settings()
    labels = {**_written(expected_labels(settings.sharing, _gpus(mig), mig) or {}), "nvidia.com/mig-1g.10gb.count": "7"}
    found = _bad(list(judge_feature_labels(settings, _node(labels), _gpus(mig), mig)))
    assert found == [("feature label nvidia.com/mig-1g.10gb.count", "7", "none")]


def test_where_none_of_them_is_there_that_is_told_once() -> None:
    mig = _mig(None)
    (found,) = judge_feature_labels(_settings(), _node({"nvidia.com/gpu.present": "true"}), _gpus(mig), mig)
    assert (found.what, found.actual, found.desired) == ("feature labels", "none", "9 labels") and comes_by_itself(
        found
    )
    assert "node feature discovery's master" in (found.remedy or "")


def test_nothing_is_compared_where_discovery_is_not_asked_for_or_nothing_is_known() -> None:
    mig, wrong = _mig(None), _node({"nvidia.com/gpu.count": "9"})
    assert list(judge_feature_labels(_settings(device_plugin={"gfd": False}), wrong, _gpus(mig), mig)) == []
    assert list(judge_feature_labels(_settings(), wrong, None, mig)) == []
    assert list(judge_feature_labels(_settings(), wrong, Gpus("lost", 15, None, ()), mig)) == []


def test_by_a_config_map_of_the_user_s_own_what_depends_on_sharing_is_left_out() -> None:
    mig = _mig(None)
    settings = _settings(device_plugin={"config_name": "mine"}, sharing={"config": "sliced"})
    labels = {"nvidia.com/gpu.replicas": "9", "nvidia.com/mig-1g.10gb.count": "7", "nvidia.com/mig.capable": "false"}
    found = _bad(list(judge_feature_labels(settings, _node(labels), _gpus(mig), mig)))
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
    mig = Mig("ok", None, tuple(_gpu(i, each, model, "Disabled") for i, (each, model) in enumerate(nodes)))
    settings = _settings(sharing=sharing)
    expected = expected_labels(settings.sharing, _gpus(mig), mig) or {}
    labels = _written(expected)
    assert all(len(each) <= 63 for each in labels.values())
    assert _bad(list(judge_feature_labels(settings, _node(labels), _gpus(mig), mig))) == []
    if labels:
        changed = sorted(labels)[name % len(labels)]
        findings = list(judge_feature_labels(settings, _node({**labels, changed: value}), _gpus(mig), mig))
        wrong = [each[0] for each in _bad(findings)]
        assert wrong == ([] if value in expected[changed] else [f"feature label {changed}"])


def test_what_follows_from_labels_that_wait_for_mps_clients_waits_with_them() -> None:
    """Labels of discovery and offers of another plugin, too: a run that rightly waits fails by none of them."""
    plugins = {"fpga": {**CHART, "resources": {"example.com/fpga": 2}}}
    settings = settings_from(
        {
            "kubernetes": {"enabled": True, "device_plugins": plugins},
            "device_plugin": {"gfd": True, "nfd": "present"},
            "sharing": {"strategy": "mps", "replicas": 8},
            "disruption": {"allow": "nothing"},
        }
    )
    mig = _mig(None, None)
    old = expected_labels(SharingSettings.model_validate({"strategy": "mps", "replicas": 4}), _gpus(mig), mig)
    assert old is not None
    node = replace(_node({**_written(old), CONFIG: "mps-4", PRESENT: "true"}), allocatable={"nvidia.com/gpu": "8"})
    view = View({"gpu-1": node}, (), ())
    restart = decide_restart({"gpu-1": ["team/a"]}, Bounds({"gpu-1": settings}, frozenset({"gpu-1"})))
    assert waits(restart) is not None

    def drift(restart: Decision[str]) -> set[str]:
        found = judge_node(settings, "gpu-1", None, mig, view, _gpus(mig), restart=restart)
        return {
            item.what.split()[0] for item in found if item.finding_class is FindingClass.DRIFT and not item.by_person
        }

    assert {"feature", "allocatable", "label"} <= drift(NONE)
    # Only what no label brings stays: the release that is not there.
    assert drift(restart) <= {"helm", "release"}
