"""The verdict: settings and a node's reading in, findings out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.findings import ExitCode, FindingClass, verdict
from gpunode.components.toolkit import PACKAGES
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.packages.keyring import PERMISSIONS, Keyrings
from gpunode.settings import settings_from
from gpunode.system.gpu import Gpus
from tests.support.verify import GOOD, RUNC_BY_DEFAULT, SETTINGS, bad

pytestmark = pytest.mark.pure


def test_a_node_that_is_as_asked_has_good_findings_only() -> None:
    assert bad(GOOD) == []
    assert len(judge(SETTINGS, GOOD)) > 12
    assert verdict(judge(SETTINGS, GOOD)) is ExitCode.GOOD


@pytest.mark.parametrize(
    "part, change, what",
    [
        ("driver", {"loaded_flavour": "proprietary", "module_license": "NVIDIA"}, "flavour"),
        ("driver", {"loaded_version": None}, "loaded module"),
        ("driver", {"library_version": "570.172.08"}, "library"),
        ("driver", {"uvm_loaded": False}, "nvidia_uvm"),
        ("driver", {"uvm_without_device": True}, "nvidia_uvm"),
        ("gpus", {"gpus": ()}, "GPUs by nvidia-smi"),
        ("gpus", {"status": "no driver", "gpus": ()}, "GPUs by nvidia-smi"),
        ("cuda", {"versions": ("12.8",)}, "toolkit"),
        ("cuda", {"default_path": "/usr/local/cuda-12.8"}, "/usr/local/cuda"),
        ("cuda", {"nvcc_version": None}, "nvcc"),
        ("cuda", {"profile": False}, "profile script"),
        ("toolkit", {"version": "1.17.7"}, "nvidia-container-toolkit"),
        ("toolkit", {"packages": ()}, "packages"),
        ("toolkit", {"runtime_path": None}, "nvidia-container-runtime"),
        ("containerd", {"version": None}, "version"),
        ("containerd", {"active": False}, "service"),
        ("containerd", {"enabled": False}, "starts at boot"),
        ("containerd", {"default_runtime": "runc"}, "default runtime"),
        ("containerd", {"cri_plugin": "error"}, "CRI plugin"),
    ],
)
def test_each_difference_is_one_finding_of_drift(part: str, change: dict[str, Any], what: str) -> None:
    node = replace(GOOD, **{part: replace(getattr(GOOD, part), **change)})
    assert bad(node) == [(what, FindingClass.DRIFT)]
    assert verdict(judge(SETTINGS, node)) is ExitCode.NEGATIVE


def nvcc_lost(source: str, **changes: Any) -> str:
    """Return the remedy for a missing nvcc."""
    runfile = {"release": "12.9.1", "runfile_sha256": "0" * 64}
    asked = {"source": source, "version": "12.9", **(runfile if source == "runfile" else {})}
    node = replace(GOOD, cuda=replace(GOOD.cuda, nvcc_version=None, **changes))
    found = judge(settings_from({"driver": {"version": "580.95.05"}, "cuda": asked}), node)
    return str(next(item.remedy for item in found if item.what == "nvcc"))


def test_a_deleted_nvcc_of_packages_is_for_a_person_to_bring_back_and_no_run_is_promised_to() -> None:
    assert nvcc_lost("cuda-repository") == (
        "install its package again: `apt-get install --reinstall cuda-nvcc-12-9` on the node, or whichever has it"
    )
    # What a run does mend: a toolkit that is not there, a link to another one, and what NVIDIA's installer brought.
    assert nvcc_lost("cuda-repository", versions=()) == "run deploys/gpu_node.py again"
    assert nvcc_lost("cuda-repository", default_path=None) == "run deploys/gpu_node.py again"
    assert nvcc_lost("runfile", by_runfile=("12.9",)) == "run deploys/gpu_node.py again"
    node = replace(GOOD, cuda=replace(GOOD.cuda, nvcc_version=None))
    (step,) = plan(SETTINGS, node).steps
    assert (step.pending, "--reinstall" in step.action) == (True, True)


def test_a_key_that_is_not_the_pinned_one_is_named() -> None:
    cuda, _ = GOOD.keyrings.keys
    node = replace(GOOD, keyrings=Keyrings((cuda, ("toolkit", "A" * 40))))
    assert bad(node) == [("key of toolkit", FindingClass.DRIFT)]
    beside = replace(GOOD, keyrings=Keyrings((*GOOD.keyrings.keys, ("toolkit", "A" * 40))))
    assert bad(beside) == [("key of toolkit", FindingClass.DRIFT)]


@pytest.mark.parametrize("permissions", ["664 root:root", "646 root:root", "640 root:root", "644 operator:root"])
def test_a_keyring_that_others_may_change_or_apt_cannot_read_is_named(permissions: str) -> None:
    node = replace(GOOD, keyrings=replace(GOOD.keyrings, permissions=(("cuda", permissions), ("toolkit", PERMISSIONS))))
    assert bad(node) == [("keyring of cuda", FindingClass.DRIFT)]


@pytest.mark.parametrize(
    "library, found",
    [("1.17.7-1", "1.17.8, 1.17.7"), ("1.18.0-1", "1.18.0, 1.17.8"), (None, "1.17.8, no libnvidia-container1")],
)
def test_toolkit_packages_at_different_versions_are_drift_though_any_version_will_do(
    library: str | None, found: str
) -> None:
    packages = {name: library if name == "libnvidia-container1" else "1.17.8-1" for name in PACKAGES}
    installed = tuple((name, version) for name, version in packages.items() if version)
    node = replace(GOOD, toolkit=replace(GOOD.toolkit, packages=installed))
    findings = judge(settings_from({"driver": {"version": "580.95.05"}}), node)
    (finding,) = [item for item in findings if item.finding_class is not FindingClass.OK]
    assert (finding.finding_class, finding.what, finding.actual, finding.desired) == (
        FindingClass.DRIFT, "packages", found, "one version",
    )  # fmt: skip


def test_a_missing_uvm_module_is_no_news_where_no_module_is_loaded_or_a_reboot_is_pending() -> None:
    unloaded = replace(GOOD, driver=replace(GOOD.driver, loaded_version=None, uvm_loaded=False))
    assert bad(unloaded) == [("loaded module", FindingClass.DRIFT)]
    pending = replace(GOOD, driver=replace(GOOD.driver, loaded_version="580.82.07", uvm_loaded=False))
    assert bad(pending) == [("loaded module", FindingClass.REBOOT_PENDING)]


def test_the_flavour_of_a_driver_that_gpunode_did_not_install_may_be_any() -> None:
    node = replace(GOOD, driver=replace(GOOD.driver, loaded_flavour="proprietary", module_license="NVIDIA"))
    findings = judge(settings_from({"driver": {"source": "present"}, "toolkit": {"version": "1.17.8"}}), node)
    assert {item.finding_class for item in findings} == {FindingClass.OK}


def test_a_runtime_without_systemd_cgroups_is_named() -> None:
    runtimes = tuple(replace(item, systemd_cgroup=item.name != "nvidia") for item in GOOD.containerd.runtimes)
    node = replace(GOOD, containerd=replace(GOOD.containerd, runtimes=runtimes))
    assert bad(node) == [("SystemdCgroup of nvidia", FindingClass.DRIFT)]


def test_an_upgrade_under_a_loaded_module_is_pending_not_drift() -> None:
    node = replace(
        GOOD,
        driver=replace(GOOD.driver, loaded_version="580.82.07"),
        gpus=Gpus("mismatch", 18, "Failed to initialize NVML: Driver/library version mismatch", ()),
    )
    assert bad(node) == [("loaded module", FindingClass.REBOOT_PENDING)]


def test_a_daemon_older_than_its_file_is_a_restart_pending() -> None:
    node = replace(GOOD, containerd=replace(GOOD.containerd, configured_at=20.0))
    assert bad(node) == [("running configuration", FindingClass.RESTART_PENDING)]


def test_a_change_that_must_wait_for_running_containers_is_a_restart_pending_not_drift() -> None:
    node = replace(GOOD, containerd=replace(RUNC_BY_DEFAULT, shims=2))
    forbidden = SETTINGS.model_copy(update={"disruption": SETTINGS.disruption.model_copy(update={"allow": "nothing"})})
    pending = [item for item in judge(forbidden, node) if item.finding_class is not FindingClass.OK]
    assert [(item.what, item.finding_class) for item in pending] == [("default runtime", FindingClass.RESTART_PENDING)]
    assert bad(node) == [("default runtime", FindingClass.DRIFT)]


def test_another_flavour_on_disk_than_in_the_kernel_is_a_reboot_pending() -> None:
    node = replace(GOOD, driver=replace(GOOD.driver, loaded_flavour="proprietary"))
    assert bad(node) == [("loaded module", FindingClass.REBOOT_PENDING)]


@pytest.mark.parametrize("status", ["hangs", "lost", "error"])
def test_a_sick_gpu_is_an_error_with_a_remedy(status: str) -> None:
    node = replace(GOOD, gpus=Gpus(status, 15, "GPU is lost", ()))
    assert bad(node) == [("GPUs by nvidia-smi", FindingClass.ERROR)]
    finding = next(item for item in judge(SETTINGS, node) if item.finding_class is FindingClass.ERROR)
    assert finding.cause and finding.remedy
    assert verdict(judge(SETTINGS, node)) is ExitCode.ERROR


def test_a_component_that_is_switched_off_is_not_judged() -> None:
    settings = settings_from({"cuda": {"enabled": False}, "containerd": {"enabled": False}})
    assert {item.component for item in judge(settings, GOOD)} == {"driver", "health", "toolkit", "repositories", "node"}


@pytest.mark.parametrize("runtime", ["containerd", "docker"])
def test_a_masked_runtime_is_named_as_that_with_the_way_out(runtime: str) -> None:
    reading = replace(getattr(GOOD, runtime), active=False, enabled=False, masked=True)
    asked = settings_from({runtime: {"enabled": True}, "driver": {"version": "580.95.05"}})
    items = [item for item in judge(asked, replace(GOOD, **{runtime: reading})) if item.component == runtime]
    told = [item for item in items if item.what in ("service", "starts at boot")]
    assert [item.actual for item in told] == ["masked", "masked"]
    assert all(f"systemctl unmask {runtime}.service" in (item.remedy or "") for item in told)
