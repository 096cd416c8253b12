"""The tables say what the world is: drivers, toolkits, GPUs and MIG, of which repositories and hardware tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from gpunode.base import tables
from gpunode.components.driver import DriverState
from gpunode.components.mig.goal import Verdict, judge
from gpunode.node.preflight import cautions
from gpunode.node.preflight import refusals as refused
from gpunode.settings import settings_from
from gpunode.settings.mig_parted.profile import parse_profile
from tests.support.preflight import _gpu, machine

pytestmark = pytest.mark.pure

NOVEMBER = date(2026, 11, 23)


@pytest.mark.parametrize(
    ("toolkit", "driver"), [("13.3.1", "610.43.02"), ("13.4.1", "615.71.09"), ("13.4.2", "615.71.09")]
)
def test_toolkits_to_13_4_2_have_their_driver(toolkit: str, driver: str) -> None:
    assert tables.cuda().toolkit_driver[toolkit] == driver
    assert tables.cuda().full_driver("13.4") == "615.71.09"


def test_every_branch_from_510_to_620_is_in_the_table() -> None:
    known = {"510", "515", "520", "525", "530", "535", "545", "550", "555", "560", "565", "570", "575", "580", "590",
             "595", "610", "615", "620"}  # fmt: skip
    assert set(tables.drivers().branches) == known


@pytest.mark.parametrize(
    ("branch", "says"),
    [
        ("615", "NVIDIA's page does not say how long driver branch 615 is maintained"),
        ("620", "NVIDIA's page does not say how long driver branch 620 is maintained"),
        ("700", "driver branch 700 is in no table"),
        ("545", "driver branch 545 has reached its end of life"),
        ("610", "driver branch 610 has reached its end of life (2026-08)"),
        ("595", None),
        ("580", None),
    ],
)
def test_what_is_known_of_a_branch_s_life_is_told(branch: str, says: str | None) -> None:
    settings = settings_from({"driver": {"branch": branch, "flavour": "open"}})
    told = [item.reason for item in cautions(settings, machine(gpus=(_gpu("2330"),)), NOVEMBER)]
    assert [reason for reason in told if "driver branch" in reason] == ([says] if says else [])


def test_proprietary_packages_from_615_on_are_refused_by_the_notes_with_a_remedy() -> None:
    h100 = machine(gpus=(_gpu("2330"),))
    for asked in ({"branch": "615"}, {"version": "615.71.09"}, {"branch": "620"}):
        (refusal,) = refused(settings_from({"driver": {**asked, "flavour": "proprietary"}}), h100, NOVEMBER)
        assert "from driver branch 615 on" in refusal.reason and "595" not in refusal.reason
        # 610 has ended.
        assert (
            refusal.remedy == "set driver.flavour = 'open', or driver.branch = '595' or '580', which NVIDIA maintains"
        )
    for asked in ({"branch": "610", "flavour": "proprietary"}, {"branch": "615", "flavour": "open"}, {"branch": "615"}):
        assert refused(settings_from({"driver": asked}), h100) == ()


def test_proprietary_packages_of_a_branch_that_are_there_already_are_a_caution() -> None:
    settings = settings_from(
        {"driver": {"branch": "615", "flavour": "proprietary", "allow_branch_change": True}, "cuda": {"enabled": False}}
    )
    for name, version, told in (
        ("cuda-drivers", "615.71.09-1ubuntu1", True),
        ("cuda-drivers", "3:615.71.09-1.el9", True),
        ("cuda-drivers", "595.58.03-1", False),
        ("libcuda1", "615.71.09-1", False),
    ):
        upstream = version.partition(":")[2].partition("-")[0] or version.partition("-")[0]
        there = DriverState(((name, version),), upstream, "NVIDIA", upstream, "proprietary", upstream)
        node = machine(gpus=(_gpu("2330"),), driver=there)
        assert len(refused(settings, node, NOVEMBER)) == int(not told), version
        reasons = [
            item.reason for item in cautions(settings, node, NOVEMBER) if "from driver branch 615 on" in item.reason
        ]
        assert len(reasons) == int(told), version


def test_a_proprietary_runfile_and_a_distribution_s_own_driver_are_not_judged_by_nvidia_s_packages() -> None:
    h100 = machine(gpus=(_gpu("2330"),))
    own = {"source": "distribution", "branch": "615", "flavour": "proprietary"}
    assert not any("615 on" in item.reason for item in refused(settings_from({"driver": own}), h100))


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("2909", "HGX B200 168GB"), ("290A", "B200"), ("31A1", "GB300 MaxQ"), ("31C2", "GB300"), ("31C3", "GB300-252"),
        ("232C", "H20 HBM3e"), ("2336", "H100"), ("2339", "H100 SXM5 94GB"),
    ],
)  # fmt: skip
def test_gpus_of_the_autumn_of_2026_are_known_by_their_ids(device: str, name: str) -> None:
    found = tables.pci_device(device)
    assert found is not None and found.name == name
    assert found.generation == ("hopper" if device.startswith("23") else "blackwell")


@pytest.mark.parametrize(
    ("device", "product", "whole"),
    [("232C", "H200-141GB", "7g.141gb"), ("2339", "H100-NVL-94GB", "7g.94gb")],
)
def test_a_gpu_with_the_profiles_of_another_is_of_its_product(device: str, product: str, whole: str) -> None:
    ((name, row),) = (item for item in tables.mig().products.items() if device in item[1].device_ids)
    assert name == product and row.profiles[whole] == 1
    assert judge(product, {whole: 1}).verdict is Verdict.PLACED
    assert parse_profile(whole).slices == 7


@pytest.mark.parametrize("device", ["2336", "2909", "290A", "31A1", "31C3"])
def test_a_gpu_whose_profiles_nobody_published_is_named_and_left_to_its_own_list(device: str) -> None:
    assert device in tables.mig().without_profiles
    assert not any(device in row.device_ids for row in tables.mig().products.values())
    asked = settings_from({"mig": {"config": "all-1g.10gb"}, "driver": {"branch": "595"}})
    (caution,) = (item for item in cautions(asked, machine(gpus=(_gpu(device),)), NOVEMBER) if item.component == "mig")
    assert caution.code == "preflight.mig-not-judged" and "has MIG" in caution.reason
    nothing = replace(_gpu(device), device_id="FFFE")
    (other,) = (item for item in cautions(asked, machine(gpus=(nothing,)), NOVEMBER) if item.component == "mig")
    assert other.code == "preflight.mig-not-judged" and "has MIG" not in other.reason
