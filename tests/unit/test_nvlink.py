"""NVSwitches: those on the PCI bus, and from NVLink 5 on those that InfiniBand devices manage."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpunode.base.findings import FindingClass
from gpunode.base.tables import driver_source
from gpunode.facts.system import KernelFeatures
from gpunode.facts.system import PciGpus as PciGpusFact
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.packages.driver_packages.sources import package_set
from gpunode.settings import settings_from
from gpunode.system.kernel import parse_kernel_features
from gpunode.system.pci import PciGpus, parse_pci_gpus
from tests.support.verify import GOOD, SETTINGS

H100 = {"vendor": "0x10de", "class": "0x030200", "device": "0x2330"}
SWITCH = {"vendor": "0x10de", "class": "0x068000", "device": "0x22a3"}
HEADER = b"\x82\x10\x00ConnectX-7\x90\x20\x00PN\x04"
NVLINK_5 = replace(GOOD, pci=replace(GOOD.pci, switch_managers=2))


def reading(folder: Path) -> PciGpus:
    probe: str = PciGpusFact.probe
    for place in ("/sys/", "/dev/infiniband"):
        probe = probe.replace(place, f"{folder}{place}")
    done = subprocess.run(["sh", "-c", probe], capture_output=True, text=True, check=False)
    return parse_pci_gpus(done.stdout.splitlines())


def device(folder: Path, address: str, files: dict[str, str]) -> None:
    path = folder / "sys/bus/pci/devices" / address
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(f"{text}\n")


def infiniband(folder: Path, name: str, vpd: bytes | None) -> None:
    path = folder / "sys/class/infiniband" / name / "device"
    path.mkdir(parents=True)
    if vpd is not None:
        (path / "vpd").write_bytes(vpd)


@pytest.mark.real
def test_switches_on_the_bus_and_devices_that_manage_switches_are_told_from_others(tmp_path: Path) -> None:
    device(tmp_path, "0000:1a:00.0", {**H100, "subsystem_device": "0x16c1", "subsystem_vendor": "0x10de"})
    device(tmp_path, "0000:1b:00.0", H100)
    device(tmp_path, "0000:05:00.0", SWITCH)
    device(tmp_path, "0000:06:00.0", {**SWITCH, "vendor": "0x8086"})
    infiniband(tmp_path, "mlx5_0", HEADER + b"SW_MNG\x00")
    infiniband(tmp_path, "mlx5_1", HEADER + b"NIC\x00")
    infiniband(tmp_path, "mlx5_2", None)
    found = reading(tmp_path)
    assert [gpu.subsystem_id for gpu in found.gpus] == ["16C110DE", None]
    assert (len(found.gpus), found.nvswitches, found.switch_managers, found.umad_loaded) == (2, 1, 1, False)
    (tmp_path / "sys/module/ib_umad").mkdir(parents=True)
    assert reading(tmp_path).umad_loaded


@pytest.mark.real
def test_a_node_without_either_has_no_fabric(tmp_path: Path) -> None:
    device(tmp_path, "0000:1a:00.0", H100)
    assert reading(tmp_path).fabric == ()


@pytest.mark.real
def test_ib_umad_that_is_built_in_counts_by_its_device(tmp_path: Path) -> None:
    probe = KernelFeatures.probe.replace("/dev/infiniband", f"{tmp_path}/dev/infiniband")
    probe = probe.replace("/sys/module", f"{tmp_path}/sys/module")
    for wanted in (False, True):
        done = subprocess.run(["sh", "-c", probe], capture_output=True, text=True, check=False)
        assert ("ib_umad" in parse_kernel_features(done.stdout.splitlines()).present) is wanted
        (tmp_path / "dev/infiniband").mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev/infiniband/umad0").touch()


@pytest.mark.pure
def test_fabric_manager_and_subnet_manager_come_with_the_driver() -> None:
    source = driver_source("cuda-repository", "debian")
    assert source is not None
    asked = settings_from({"driver": {"version": "580.95.05"}}).driver
    wanted = package_set(asked, source, "open", NVLINK_5.pci.fabric, GOOD.boot)
    assert (wanted["nvidia-fabricmanager"], wanted["nvlsm"]) == ("580.95.05", None)
    older = package_set(asked, source, "open", PciGpus((), nvswitches=4).fabric, GOOD.boot)
    assert "nvidia-fabricmanager" in older and "nvlsm" not in older


@pytest.mark.pure
def test_what_the_switches_lack_is_named_and_planned() -> None:
    bad = {item.what for item in judge(SETTINGS, NVLINK_5) if item.finding_class is not FindingClass.OK}
    assert {"fabric manager", "service nvidia-fabricmanager", "NVLink subnet manager", "ib_umad"} <= bad
    steps = [(step.code, step.desired) for step in plan(SETTINGS, NVLINK_5).steps if not step.pending]
    assert {("driver.nvlink-subnet-manager", "any version"), ("driver.ib-umad", "loaded")} <= set(steps)
    there = replace(
        NVLINK_5,
        pci=replace(NVLINK_5.pci, umad_loaded=True),
        driver=replace(NVLINK_5.driver, packages=(("nvlsm", "2025.03.1-1"),)),
    )
    found = {item.what: item.finding_class for item in judge(SETTINGS, there)}
    assert found["NVLink subnet manager"] is found["ib_umad"] is FindingClass.OK
