"""Requirements: every stated minimum, judged."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.reading import Unknown
from gpunode.components.containerd.state import Containerd
from gpunode.components.cuda import CudaToolkits
from gpunode.components.docker.state import Docker
from gpunode.components.driver import DriverState
from gpunode.components.toolkit import ContainerToolkit
from gpunode.node import Node
from gpunode.node.requirements import Requirement, Status, judge, judge_versions, mig_product
from gpunode.packages.apt_sources import AptSources
from gpunode.packages.keyring import Keyrings
from gpunode.system.boot import Boot
from gpunode.system.disk import Disk
from gpunode.system.gpu import Gpus
from gpunode.system.health import Health
from gpunode.system.kubelet import Kubelet
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu, PciGpus

pytestmark = pytest.mark.pure

GOOD: dict[str, Any] = {
    "driver": "580.95.05",
    "toolkit": "1.17.8",
    "docker2": None,
    "kubelet": "1.29.3",
    "docker": None,
    "default_runtime": "nvidia",
    "device_plugin": None,
    "tegra": False,
    "cuda_versions": ("12.9",),
}
# What minimums.yaml names otherwise, and what is no component's version.
NAMES = {"toolkit": "nvidia-container-toolkit", "docker2": "nvidia-docker2", "kubelet": "kubernetes"}
BESIDE = {"tegra", "cuda_versions", "gpu_products"}


def _judged(**changes: Any) -> tuple[Requirement, ...]:
    given = {**GOOD, **changes}
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


@pytest.mark.parametrize(
    ("changes", "component", "needed_by", "wanted"),
    [
        ({"driver": "384.66"}, "driver", "device-plugin", ">= 384.81"),
        ({"driver": None}, "driver", "device-plugin", ">= 384.81"),
        ({"toolkit": "1.6.0-1"}, "nvidia-container-toolkit", "device-plugin", ">= 1.7.0"),
        ({"toolkit": None}, "nvidia-container-toolkit", "device-plugin", ">= 1.7.0"),
        ({"toolkit": "1.10.0", "tegra": True}, "nvidia-container-toolkit", "device-plugin", ">= 1.11.0"),
        ({"toolkit": None, "docker2": "1.0.3"}, "nvidia-docker2", "device-plugin", ">= 2.0"),
        ({"kubelet": "1.9.11"}, "kubernetes", "device-plugin", ">= 1.10"),
        ({"kubelet": "1.15.0"}, "kubernetes", "gpu-operator", ">= 1.16"),
        ({"default_runtime": "runc"}, "default-runtime", "device-plugin", "nvidia"),
        ({"default_runtime": None}, "default-runtime", "device-plugin", "nvidia"),
        ({"device_plugin": "0.14.5"}, "device-plugin", "mps-sharing", ">= 0.15.0"),
        ({"docker": "18.09.9"}, "docker", "--gpus", ">= 19.03"),
        ({"driver": "520.61.05"}, "driver", "cuda 12.9", ">= 525.60.13"),
        ({"driver": "470.82.01", "cuda_versions": ("11.8", "12.9")}, "driver", "cuda 12.9", ">= 525.60.13"),
        ({"driver": "418.39", "cuda_versions": ("10.2",)}, "driver", "cuda 10.2", ">= 440.33"),
    ],
)
def test_what_falls_short_is_not_met(changes: dict[str, Any], component: str, needed_by: str, wanted: str) -> None:
    row = _one(_judged(**changes), component, needed_by, wanted)
    assert row.status is Status.NOT_MET
    assert row.kind == "minimum"


@pytest.mark.parametrize(
    ("changes", "component", "needed_by", "wanted"),
    [
        ({}, "nvidia-container-toolkit", "device-plugin", ">= 1.11.0"),
        ({}, "nvidia-docker2", "device-plugin", ">= 2.0"),
        ({"toolkit": None, "docker2": "2.13.0"}, "nvidia-container-toolkit", "device-plugin", ">= 1.7.0"),
        ({"kubelet": None}, "kubernetes", "device-plugin", ">= 1.10"),
        ({}, "device-plugin", "mps-sharing", ">= 0.15.0"),
        ({}, "docker", "--gpus", ">= 19.03"),
        ({"default_runtime": "runc", "runtime_class": "nvidia"}, "default-runtime", "device-plugin", "nvidia"),
    ],
)
def test_what_does_not_concern_the_node_is_not_applicable(
    changes: dict[str, Any], component: str, needed_by: str, wanted: str
) -> None:
    row = _one(_judged(**changes), component, needed_by, wanted)
    assert row.status is Status.NOT_APPLICABLE
    assert row.reason


@pytest.mark.parametrize(
    ("changes", "component", "needed_by", "wanted"),
    [
        ({"driver": Unknown("no answer")}, "driver", "device-plugin", ">= 384.81"),
        ({"driver": Unknown("no answer")}, "driver", "cuda 12.9", ">= 525.60.13"),
        ({"driver": "garbage"}, "driver", "device-plugin", ">= 384.81"),
        ({"tegra": Unknown("no answer")}, "nvidia-container-toolkit", "device-plugin", ">= 1.11.0"),
        ({"cuda_versions": Unknown("no answer")}, "driver", "cuda", "unknown"),
        ({"cuda_versions": ("99.1",)}, "driver", "cuda 99.1", "unknown"),
        ({"default_runtime": Unknown("no answer")}, "default-runtime", "device-plugin", "nvidia"),
    ],
)
def test_what_the_node_did_not_say_is_unknown(
    changes: dict[str, Any], component: str, needed_by: str, wanted: str
) -> None:
    row = _one(_judged(**changes), component, needed_by, wanted)
    assert row.status is Status.UNKNOWN
    assert row.reason


def test_the_container_escape_is_a_warning_not_a_refusal() -> None:
    found = _judged(toolkit="1.17.7")
    assert not _not_met(found, "minimum")
    (warning,) = _not_met(found, "security", "features")
    assert warning.kind == "security"
    assert "CVE-2025-23266" in warning.source


def test_an_older_driver_runs_cuda_but_not_all_of_its_features() -> None:
    found = _judged(driver="525.60.13")
    assert not _not_met(found, "minimum")
    assert [row.needed_by for row in _not_met(found, "security", "features")] == ["cuda 12.9, all features"]


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("HGX GB200", "GB200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("NVIDIA A10", None),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_mig_product_is_a_whole_word(name: str, product: str | None) -> None:
    assert mig_product(name) == product


def test_mig_on_h200_needs_550_90_07() -> None:
    row = _one(_judged(driver="550.54.15", gpu_products=("NVIDIA H200", "NVIDIA H200")), "driver", "mig on H200")
    assert (row.status, row.desired) == (Status.NOT_MET, ">= 550.90.07")
    assert row.kind == "features"


def _node(**changes: Any) -> Node:
    good: dict[str, Any] = {
        "operating_system": OperatingSystem("debian", "12", "bookworm", (), "Debian 12", "x86_64", "6.1.0-1", False),
        "pci": PciGpus((PciGpu("0000:1a:00.0", "2330", "H100 SXM5 80GB", "hopper"),)),
        "driver": DriverState((), "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05"),
        "gpus": Gpus("ok", 0, None, ()),
        "health": Health(),
        "cuda": CudaToolkits(("12.9",), "/usr/local/cuda-12.9", "12.9.86", True),
        "toolkit": ContainerToolkit((), "1.17.8", "/usr/bin/nvidia-container-runtime"),
        "containerd": CONTAINERD,
        "docker": Docker(None),
        "kubelet": Kubelet(None),
        "keyrings": Keyrings(()),
        "boot": Boot("6.1.0-1"),
        "disk": Disk(()),
        "apt_sources": AptSources(),
    }
    return Node(**{**good, **changes})


CONTAINERD = Containerd(
    version="1.6.20", binary="/usr/bin/containerd", config_path="/etc/containerd/config.toml", config_text=None,
    active=True, enabled=True, started_at=2.0, configured_at=1.0, default_runtime="nvidia",
    runtimes=(), cri_plugin="ok", shims=0,
)  # fmt: skip


def test_a_whole_node_is_judged_by_its_loaded_driver() -> None:
    assert not _not_met(judge(_node()).requirements, "minimum")
    old_module_still_loaded = DriverState((), "580.95.05", "NVIDIA", "520.61.05", "proprietary", "580.95.05")
    (row,) = _not_met(judge(_node(driver=old_module_still_loaded)).requirements, "minimum")
    assert (row.needed_by, row.actual) == ("cuda 12.9", "520.61.05")


def test_an_unreadable_containerd_configuration_is_unknown_and_no_containerd_is_not_met() -> None:
    unreadable = judge(_node(containerd=replace(CONTAINERD, default_runtime=None))).requirements
    assert _one(unreadable, "default-runtime", "device-plugin").status is Status.UNKNOWN
    absent = judge(_node(containerd=replace(CONTAINERD, version=None, default_runtime=None))).requirements
    assert _one(absent, "default-runtime", "device-plugin").status is Status.NOT_MET


def test_the_judged_node_is_plain_json() -> None:
    row = judge(_node()).to_json()["requirements"][0]
    assert json.loads(json.dumps(row))["status"] == "met"
