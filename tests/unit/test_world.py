"""The tables say what the world is: drivers, toolkits, GPUs and MIG, of which repositories and hardware tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from gpunode.base import tables
from gpunode.components.mig.goal import Verdict, judge
from gpunode.node.preflight import cautions, refusals
from gpunode.settings import settings_from
from gpunode.settings.mig_parted.document import parse_profile
from tests.support.messages import unnamed
from tests.support.preflight import _gpu, machine

pytestmark = pytest.mark.pure

NOVEMBER = date(2026, 11, 23)


@pytest.mark.parametrize(
    ("branch", "named"),
    [
        ("615", ["615", "NVIDIA's page"]), ("620", ["620", "NVIDIA's page"]), ("700", None),
        ("545", ["545", "end of life"]), ("610", ["610", "end of life (2026-08)"]), ("595", None), ("580", None),
    ],
)  # fmt: skip
def test_what_is_known_of_a_branch_s_life_is_told(branch: str, named: list[str] | None) -> None:
    settings = settings_from({"driver": {"branch": branch, "flavour": "open"}})
    found = [item for item in cautions(settings, machine(), NOVEMBER) if item.code == "preflight.driver-end-of-life"]
    assert [unnamed(item.reason, *(named or ())) for item in found] == ([[]] if named else [])


def test_the_remedy_for_proprietary_packages_from_615_on_names_what_is_maintained() -> None:
    asked = settings_from({"driver": {"branch": "620", "flavour": "proprietary"}})
    (refusal,) = refusals(asked, machine(), NOVEMBER)
    # 610 has ended.
    assert unnamed(refusal.remedy, "'open'", "'595'", "'580'", "'610'") == ["'610'"]
    assert unnamed(refusal.reason, "615", "595") == ["595"]


@pytest.mark.parametrize(
    ("device", "product", "whole"),
    [("232C", "H200-141GB", "7g.141gb"), ("2339", "H100-NVL-94GB", "7g.94gb")],
)
def test_a_gpu_with_the_profiles_of_another_is_of_its_product(device: str, product: str, whole: str) -> None:
    ((name, row),) = (item for item in tables.mig().products.items() if device in item[1].device_ids)
    assert name == product and row.profiles[whole] == 1
    assert judge(product, {whole: 1}).verdict is Verdict.PLACED
    assert parse_profile(whole).slices == 7


@pytest.mark.parametrize("device", ["2336", "2909", "290A", "31A1", "31C3", "FFFE"])
def test_a_gpu_whose_profiles_nobody_published_is_named_and_left_to_its_own_list(device: str) -> None:
    known = device != "FFFE"
    assert (device in tables.mig().without_profiles) == known
    assert not any(device in row.device_ids for row in tables.mig().products.values())
    asked = settings_from({"mig": {"config": "all-1g.10gb"}, "driver": {"branch": "595"}})
    gpu = _gpu(device) if known else replace(_gpu("2336"), device_id=device)
    (caution,) = (item for item in cautions(asked, machine(gpus=(gpu,)), NOVEMBER) if item.component == "mig")
    assert caution.code == "preflight.mig-not-judged"
    assert unnamed(caution.reason, "has MIG") == ([] if known else ["has MIG"])
