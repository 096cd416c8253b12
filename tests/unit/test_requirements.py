"""Requirements: every stated minimum, judged."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.reading import Unknown
from gpunode.node.requirements import Requirement, Status, judge, judge_versions
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

VERSIONS: dict[str, Any] = {
    "driver": "580.95.05", "toolkit": "1.17.8", "docker2": None, "kubelet": "1.29.3", "docker": None,
    "default_runtime": "nvidia", "device_plugin": None, "tegra": False, "cuda_versions": ("12.9",),
}  # fmt: skip
# What minimums.yaml names otherwise, and what is no component's version.
NAMES = {"toolkit": "nvidia-container-toolkit", "docker2": "nvidia-docker2", "kubelet": "kubernetes"}
BESIDE = {"tegra", "cuda_versions", "gpu_products"}
NO_ANSWER = Unknown("no answer")


def _judged(**changes: Any) -> tuple[Requirement, ...]:
    given = {**VERSIONS, **changes}
    answers = {NAMES.get(name, name.replace("_", "-")): given.pop(name) for name in set(given) - BESIDE}
    return judge_versions(answers, **given)


def _one(found: tuple[Requirement, ...], component: str, needed_by: str | None, wanted: str = "") -> Requirement:
    (row,) = [
        row for row in found if row.component == component and row.needed_by == needed_by and wanted in row.desired
    ]
    return row


def _not_met(found: tuple[Requirement, ...], *kinds: str) -> list[Requirement]:
    return [row for row in found if row.status is Status.NOT_MET and row.kind in kinds]


def test_a_good_node_violates_nothing_and_every_stated_minimum_is_judged() -> None:
    found = _judged()
    assert not [row for row in found if row.status is Status.NOT_MET]
    assert len([row for row in found if not (row.needed_by or "").startswith("cuda")]) == len(tables.minimums())
    assert all(row.source for row in found)


TOOLKIT = "nvidia-container-toolkit"
PLUGIN = "device-plugin"
LESS, NONE, UNKNOWN = Status.NOT_MET, Status.NOT_APPLICABLE, Status.UNKNOWN


@pytest.mark.parametrize(
    ("status", "changes", "component", "needed_by", "wanted"),
    [
        (LESS, {"driver": "384.66"}, "driver", PLUGIN, ">= 384.81"),
        (LESS, {"driver": None}, "driver", PLUGIN, ">= 384.81"),
        (LESS, {"toolkit": "1.6.0-1"}, TOOLKIT, PLUGIN, ">= 1.7.0"),
        (LESS, {"toolkit": None}, TOOLKIT, PLUGIN, ">= 1.7.0"),
        (LESS, {"toolkit": "1.10.0", "tegra": True}, TOOLKIT, PLUGIN, ">= 1.11.0"),
        (LESS, {"toolkit": None, "docker2": "1.0.3"}, "nvidia-docker2", PLUGIN, ">= 2.0"),
        (LESS, {"kubelet": "1.9.11"}, "kubernetes", PLUGIN, ">= 1.10"),
        (LESS, {"kubelet": "1.15.0"}, "kubernetes", "gpu-operator", ">= 1.16"),
        (LESS, {"default_runtime": "runc"}, "default-runtime", PLUGIN, "nvidia"),
        (LESS, {"default_runtime": None}, "default-runtime", PLUGIN, "nvidia"),
        (LESS, {"device_plugin": "0.14.5"}, PLUGIN, "mps-sharing", ">= 0.15.0"),
        (LESS, {"docker": "18.09.9"}, "docker", "--gpus", ">= 19.03"),
        (LESS, {"driver": "520.61.05"}, "driver", "cuda 12.9", ">= 525.60.13"),
        (
            Status.NOT_MET,
            {"driver": "470.82.01", "cuda_versions": ("11.8", "12.9")},
            "driver",
            "cuda 12.9",
            ">= 525.60.13",
        ),
        (LESS, {"driver": "418.39", "cuda_versions": ("10.2",)}, "driver", "cuda 10.2", ">= 440.33"),
        (NONE, {}, TOOLKIT, PLUGIN, ">= 1.11.0"),
        (NONE, {}, "nvidia-docker2", PLUGIN, ">= 2.0"),
        (NONE, {"toolkit": None, "docker2": "2.13.0"}, TOOLKIT, PLUGIN, ">= 1.7.0"),
        (NONE, {"kubelet": None}, "kubernetes", PLUGIN, ">= 1.10"),
        (NONE, {}, PLUGIN, "mps-sharing", ">= 0.15.0"),
        (NONE, {}, "docker", "--gpus", ">= 19.03"),
        (
            NONE,
            {"default_runtime": "runc", "runtime_class": "nvidia"},
            "default-runtime",
            PLUGIN,
            "nvidia",
        ),
        (UNKNOWN, {"driver": "garbage"}, "driver", PLUGIN, ">= 384.81"),
        (UNKNOWN, {"cuda_versions": ("99.1",)}, "driver", "cuda 99.1", "unknown"),
        (UNKNOWN, {"default_runtime": NO_ANSWER}, "default-runtime", PLUGIN, "nvidia"),
    ],
)
def test_each_minimum_by_what_a_node_has(
    status: Status, changes: dict[str, Any], component: str, needed_by: str, wanted: str
) -> None:
    row = _one(_judged(**changes), component, needed_by, wanted)
    assert (row.status, row.kind) == (status, "minimum")
    assert status is Status.NOT_MET or row.reason


def test_the_container_escape_is_a_warning_not_a_refusal() -> None:
    found = _judged(toolkit="1.17.7")
    assert not _not_met(found, "minimum")
    (warning,) = _not_met(found, "security", "features")
    assert warning.kind == "security" and "CVE-2025-23266" in warning.source


def test_an_older_driver_runs_cuda_and_mig_but_not_all_of_their_features() -> None:
    found = _judged(driver="525.60.13")
    assert not _not_met(found, "minimum")
    assert [row.needed_by for row in _not_met(found, "security", "features")] == ["cuda 12.9, all features"]
    row = _one(_judged(driver="550.54.15", gpu_products=("NVIDIA H200", "NVIDIA H200")), "driver", "mig on H200")
    assert (row.status, row.desired, row.kind) == (Status.NOT_MET, ">= 550.90.07", "features")


def test_a_whole_node_is_judged_by_its_loaded_driver() -> None:
    assert not _not_met(judge(GOOD).requirements, "minimum")
    old_module_still_loaded = replace(GOOD.driver, loaded_version="520.61.05")
    (row,) = _not_met(judge(replace(GOOD, driver=old_module_still_loaded)).requirements, "minimum")
    assert (row.needed_by, row.actual) == ("cuda 12.9", "520.61.05")


@pytest.mark.parametrize(("version", "status"), [("1.6.20", Status.UNKNOWN), (None, Status.NOT_MET)])
def test_an_unreadable_containerd_configuration_is_unknown_and_no_containerd_is_not_met(
    version: str | None, status: Status
) -> None:
    node = replace(GOOD, containerd=replace(GOOD.containerd, version=version, default_runtime=None))
    assert _one(judge(node).requirements, "default-runtime", PLUGIN).status is status


def test_the_judged_node_is_plain_json() -> None:
    row = judge(GOOD).to_json()["requirements"][0]
    assert json.loads(json.dumps(row))["status"] == "met"
