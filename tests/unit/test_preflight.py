"""Preflight: settings x node x tables, before anything is touched; single answers are in tests/cases."""

from dataclasses import fields, replace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.explained import pages
from gpunode.components.driver.flavour import WantedDriver
from gpunode.node.preflight import Refusal, cautions, refusals
from gpunode.node.preflight.anywhere import cautions_anywhere
from gpunode.node.preflight.platform import disk_refusals
from gpunode.packages.deb import AptSources
from gpunode.settings import SettingsError, settings_from
from gpunode.system.disk import Disk
from gpunode.system.pci import PciGpus
from tests.support.messages import unnamed
from tests.support.preflight import B200, DEBIAN, NO_DRIVER, OPEN_550, TODAY, V100, machine

pytestmark = pytest.mark.pure

GIB = 1024**3


def test_a_setting_by_its_former_name_is_taken_with_a_caution_that_names_the_new_one() -> None:
    former, now = settings_from({"device_plugin": {"way": "manifest"}}), {"device_plugin": {"method": "manifest"}}
    assert former.digest() == settings_from(now).digest()
    (caution,) = cautions(former, machine(), TODAY)
    assert caution.component == "device_plugin"
    assert unnamed(caution.reason, "device_plugin.way", "device_plugin.method") == []
    assert caution in cautions_anywhere(former, TODAY)
    assert cautions(settings_from(now), machine(), TODAY) == ()
    with pytest.raises(SettingsError) as both:
        settings_from({"device_plugin": {"way": "manifest", "method": "helm"}})
    assert [each.key for each in both.value.problems] == ["device_plugin.way"]
    assert unnamed(str(both.value), "method") == []


def test_a_wanted_driver_is_judged_by_its_version_then_by_its_branch() -> None:
    exact, branch, none = (
        WantedDriver("580.95.05", "575", None),
        WantedDriver(None, "580", None),
        WantedDriver(*[None] * 3),
    )
    assert [str(each) for each in (exact, branch, none)] == ["580.95.05", "branch 580", "none"]
    assert [each.is_known for each in (exact, branch, none)] == [True, True, False]
    assert exact.at_least("580.95.05") and not exact.at_least("580.95.06")
    # Of a branch the newest is meant, whatever comes after the point.
    assert branch.at_least("580.999") and not branch.at_least("581.0") and not none.at_least("1.0")


def test_a_disk_with_just_what_is_needed_is_enough_and_one_byte_less_is_not() -> None:
    asked = settings_from({"driver": {"source": "cuda-repository"}, "cuda": {"enabled": False}})
    sizes = tables.disk_space("driver")
    needed = sum(sizes.values())
    room, less = (Disk(tuple((folder, "/", free) for folder in sizes)) for free in (needed, needed - 1))
    assert list(disk_refusals(asked, room, NO_DRIVER, ())) == []
    (full,) = disk_refusals(asked, less, NO_DRIVER, ())
    assert (full.component, full.code) == ("disk", "preflight.disk-full")
    shown = [f"{size / GIB:.1f} GiB" for size in (needed - 1, needed)]
    assert unnamed(full.reason, *shown, *(f"driver in {folder}" for folder in sizes)) == []
    assert unnamed(full.remedy, f"{1 / GIB:.1f} GiB on /", "cuda.enabled = False") == []
    # What is there needs no room, nor what is not asked for.
    assert list(disk_refusals(asked, less, OPEN_550, ())) == []
    cuda = settings_from({"driver": {"source": "present"}, "cuda": {"version": "12.8"}})
    present = settings_from({"driver": {"source": "present"}, "cuda": {"enabled": False}})
    assert list(disk_refusals(present, less, NO_DRIVER, ())) == []
    no_room = Disk(tuple((folder, "/", 0) for folder in (*sizes, *tables.disk_space("cuda"))))
    (full,) = disk_refusals(cuda, no_room, NO_DRIVER, ("12.6",))
    assert "(cuda in " in full.reason
    assert list(disk_refusals(cuda, no_room, NO_DRIVER, ("12.8",))) == []


# Each of these breaks something else of a good node.
BROKEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"pci": PciGpus(())}),
    ({}, {"operating_system": replace(DEBIAN, version_id="11")}),
    ({"driver": {"branch": "595"}}, {"pci": PciGpus((V100,))}),
    ({"driver": {"source": "present"}}, {}),
    ({"driver": {"branch": "535"}, "cuda": {"version": "13.0"}}, {}),
    ({"driver": {"source": "distribution"}}, {"apt_sources": AptSources("amd64", origins=("x",))}),
    ({"driver": {"branch": "470", "flavour": "open"}}, {"pci": PciGpus((V100, B200))}),
]


@pytest.mark.parametrize(("data", "more"), BROKEN)
def test_a_verdict_has_a_component_a_reason_a_source_a_remedy_and_a_page(
    data: dict[str, Any], more: dict[str, Any]
) -> None:
    settings, node = settings_from(data), replace(machine(), **more)
    found = [*refusals(settings, node, TODAY), *cautions(settings, node, TODAY)]
    for each in found:
        parts = [getattr(each, field.name) for field in fields(each)]
        assert all(isinstance(part, str) and part and "None" not in part for part in parts), each
        assert str(each) == f"{each.component}: {each.reason}; {each.remedy} (source: {each.source}) [{each.code}]"
        assert each.code in pages()
    assert any(type(each) is Refusal for each in found)
