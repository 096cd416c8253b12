"""What preflight refuses, each by its code, source and values, and at its boundary what it lets through."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import date
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.explained import pages
from gpunode.components.driver import DriverState
from gpunode.components.driver.flavour import (
    WantedDriver,
    flavour_refusals,
    last_branch_refusals,
    named,
    unknown_gpus,
    wanted_driver,
)
from gpunode.node.preflight import Caution, Refusal, cautions, refusals
from gpunode.node.preflight.disk import disk_refusals
from gpunode.node.preflight.driver import (
    archive_refusals,
    branch_change_refusals,
    candidate_refusals,
    end_of_life,
    minimum_refusals,
    offered_branch_refusals,
    present_refusals,
    proprietary_cautions,
    proprietary_refusals,
)
from gpunode.node.preflight.mps import device_plugin_refusals
from gpunode.packages.apt_sources import AptSources
from gpunode.packages.trust import key_refusals, proxy_cautions, trust_cautions, trust_refusals, uses_repository
from gpunode.settings import settings_from
from gpunode.system.disk import Disk
from tests.support.messages import unnamed
from tests.support.preflight import B200, DEBIAN, H100, NO_DRIVER, OPEN_550, P100, T4, UNKNOWN_GPU, V100, machine

pytestmark = pytest.mark.pure

GIB = 1024**3
TODAY = date(2026, 1, 15)


def driver(**asked: Any) -> Any:
    return settings_from({"driver": asked})


def head(found: Refusal) -> tuple[type[Refusal], str, str]:
    """Return whether it refuses or cautions, its component and its code."""
    return type(found), found.component, found.code


@pytest.mark.parametrize(
    ("asked", "there", "refused"),
    [
        ({}, OPEN_550, False),
        ({"version": "550.54.15"}, OPEN_550, False),
        ({"branch": "550"}, OPEN_550, False),
        ({"version": "550.54.14"}, OPEN_550, True),
        ({"branch": "580"}, OPEN_550, True),
        ({"branch": "550", "version": "550.54.15"}, OPEN_550, False),
        ({"branch": "550"}, replace(OPEN_550, loaded_version=None), False),
        ({"branch": "550"}, replace(OPEN_550, module_version="580.1"), False),
        ({"branch": "550"}, replace(OPEN_550, loaded_version="580.1"), True),
    ],
)
def test_a_driver_that_is_to_be_there_is_the_one_that_is_loaded(
    asked: dict[str, str], there: DriverState, refused: bool
) -> None:
    node = machine(driver=there)
    assert bool(list(present_refusals(driver(source="present", **asked), node))) == refused
    assert list(present_refusals(driver(source="cuda-repository", **asked), node)) == []
    assert list(present_refusals(driver(source="present", enabled=False, **asked), node)) == []


def test_a_driver_that_is_to_be_there_and_is_not_is_refused_with_both_ways_out() -> None:
    (none,) = present_refusals(driver(source="present"), machine(driver=NO_DRIVER))
    assert head(none) == (Refusal, "driver", "preflight.driver-not-there")
    assert unnamed(none.reason, "driver.source") == unnamed(none.remedy, "driver.source = 'cuda-repository'") == []
    assert unnamed(none.source, "/sys/module/nvidia", "modinfo") == []
    (wrong,) = present_refusals(driver(source="present", branch="580"), machine(driver=OPEN_550))
    assert head(wrong) == (Refusal, "driver", "preflight.driver-another-there")
    assert unnamed(wrong.reason, "driver.source", "550.54.15", "branch 580") == []
    assert unnamed(wrong.source, "/sys/module/nvidia", "modinfo") == []
    assert unnamed(wrong.remedy, "driver.source = 'cuda-repository'") == []
    (wrong,) = present_refusals(driver(source="present", version="550.54.14"), machine(driver=OPEN_550))
    assert wrong.reason.endswith(", not 550.54.14")


def test_an_image_without_a_driver_on_its_disk_is_told_apart_from_a_node_without_one() -> None:
    image = machine(driver=NO_DRIVER, operating_system=replace(DEBIAN, booted=False))
    (found,) = present_refusals(driver(source="present"), image)
    assert head(found) == (Refusal, "driver", "preflight.driver-not-in-image")
    assert unnamed(found.reason, "driver.source", "systemd") == []
    on_disk = replace(image, driver=replace(OPEN_550, loaded_version=None))
    assert list(present_refusals(driver(source="present"), on_disk)) == []


def test_only_a_branch_below_the_newest_that_the_table_knows_is_known_not_to_be_offered() -> None:
    found = next(row for row in tables.distributions() if row.driver_branches)
    system = replace(DEBIAN, id=found.id, version_id=found.version, name=found.name)
    (old,) = offered_branch_refusals(driver(branch="515", source="cuda-repository"), system)
    assert head(old) == (Refusal, "driver", "preflight.driver-branch-not-offered")
    assert old.source == "gpunode/data/distributions.yaml (driver_branches)"
    assert unnamed(old.reason, found.name, "515", ", ".join(found.driver_branches)) == []
    assert unnamed(old.remedy, "driver.branch", "driver.source = 'runfile'") == []
    own = f"driver.source = 'distribution' (branch {found.own_branch})"
    assert (own in old.remedy) == bool(found.own_branch)
    for branch in (*found.driver_branches, "999"):
        assert list(offered_branch_refusals(driver(branch=branch, source="cuda-repository"), system)) == []
    for other in ({"source": "present"}, {"enabled": False}):
        assert list(offered_branch_refusals(driver(branch="515", **other), system)) == []
    unknown = replace(system, version_id="0")
    assert list(offered_branch_refusals(driver(branch="515", source="cuda-repository"), unknown)) == []


def test_an_archive_that_no_table_knows_is_refused_by_the_system_s_name() -> None:
    asked = driver(source="distribution")
    unknown = machine(system=replace(DEBIAN, id="plan9", version_id="4", name="Plan 9"))
    (refused,) = archive_refusals(asked, unknown)
    assert head(refused) == (Refusal, "driver", "preflight.archive-unknown")
    assert unnamed(refused.reason, "Plan 9") == unnamed(refused.remedy, "driver.source = 'cuda-repository'") == []


@pytest.mark.parametrize(
    ("more", "cautioned"),
    [({}, True), ({"cdi": "generate"}, False), ({"accept_nvidia_visible_devices_as_volume_mounts": True}, False)],
)
def test_a_toolkit_that_gives_unprivileged_containers_no_gpu_is_cautioned(
    more: dict[str, Any], cautioned: bool
) -> None:
    closed = {"accept_nvidia_visible_devices_envvar_when_unprivileged": False, "cdi": "off", **more}
    codes = [each.code for each in cautions(settings_from({"toolkit": closed}), machine(), TODAY)]
    assert ("preflight.toolkit-no-way-in" in codes) == cautioned


def test_another_branch_is_refused_by_what_is_installed_and_else_by_what_is_loaded() -> None:
    asked = driver(branch="580", source="cuda-repository")
    (change,) = branch_change_refusals(asked, OPEN_550)
    assert head(change) == (Refusal, "driver", "preflight.driver-branch-change")
    assert unnamed(change.reason, "550.54.15", "branch 580") == []
    assert unnamed(change.source, "/sys/module/nvidia", "modinfo") == []
    assert unnamed(change.remedy, "driver.allow_branch_change = True", "driver.branch = '550'") == []
    assert list(branch_change_refusals(asked, replace(OPEN_550, module_version="580.65.06"))) == []
    assert len(list(branch_change_refusals(asked, replace(OPEN_550, module_version=None)))) == 1
    assert list(branch_change_refusals(asked, NO_DRIVER)) == []
    assert list(branch_change_refusals(driver(branch="580", allow_branch_change=True), OPEN_550)) == []
    assert list(branch_change_refusals(driver(branch="580", source="present"), OPEN_550)) == []


def test_a_package_of_the_branch_s_name_has_to_bring_that_branch() -> None:
    asked = driver(branch="575", source="cuda-repository")
    good = {"nvidia-open-575": "575.57.08-1", "cuda-drivers-575": "575.57.08-1", "nvidia-open": "580.1-1"}
    assert list(candidate_refusals(asked, DEBIAN, good)) == []
    moved = {"nvidia-open-575": "580.65.06-1", "cuda-drivers-575-open": "580.65.06-1", "nvidia-open-580": "590.1-1"}
    first, second = candidate_refusals(asked, DEBIAN, moved)
    assert {head(each) for each in (first, second)} == {(Refusal, "driver", "preflight.driver-transitional-package")}
    assert unnamed(first.reason, "cuda-drivers-575-open", "580.65.06-1", "branch 575") == []
    assert unnamed(second.reason, "nvidia-open-575", "580.65.06-1", "branch 575") == []
    assert (
        second.source == "apt-cache madison nvidia-open-575 on the node"
        or "nvidia-open-575 on the node" in second.source
    )
    assert second.remedy.startswith("set driver.branch = '580' (see driver.allow_branch_change)")
    odd = {"cuda-drivers-575": "no version", "nvidia-open-575": "580.65.06-1"}
    assert [each.reason.split()[1] for each in candidate_refusals(asked, DEBIAN, odd)] == ["nvidia-open-575"]
    for other in ({"source": "present"}, {"enabled": False}):
        assert list(candidate_refusals(driver(branch="575", **other), DEBIAN, moved)) == []


def test_each_stated_minimum_of_the_driver_is_one_that_is_just_enough() -> None:
    rows = [row for row in tables.minimums() if row.component == "driver" and row.minimum and row.kind == "minimum"]
    assert rows
    for row in rows:
        assert row.minimum is not None
        said = [each for each in minimum_refusals(WantedDriver("1.0", None, "open")) if row.minimum in each.reason]
        assert said and said[0].component == "driver" and str(row.source) in said[0].source
        assert head(said[0]) == (Refusal, "driver", "preflight.driver-below-minimum")
        assert unnamed(said[0].reason, "1.0", row.minimum) == []
        enough = minimum_refusals(WantedDriver(row.minimum, None, "open"))
        assert [each for each in enough if f" than {row.minimum}," in each.reason] == []
    assert list(minimum_refusals(WantedDriver(None, None, None))) == []


def test_a_branch_is_told_of_in_the_month_after_its_last_and_not_in_its_last() -> None:
    name, ends = next(
        (name, row.end_of_life) for name, row in tables.drivers().branches.items()
        if row.end_of_life not in ("past", "unknown")
    )  # fmt: skip
    year, month = int(ends[:4]), int(ends[5:7])
    wanted = WantedDriver(None, name, "open")
    assert list(end_of_life(driver(), wanted, date(year, month, 28))) == []
    (after,) = end_of_life(driver(), wanted, date(year + month // 12, month % 12 + 1, 1))
    assert head(after) == (Caution, "driver", "preflight.driver-end-of-life")
    assert unnamed(after.reason, name, ends) == [] and after.source.startswith("NVIDIA driver life-cycle")
    maintained = [each for each in tables.drivers().branches if each in after.remedy]
    assert maintained and name not in maintained
    assert list(end_of_life(driver(enabled=False), wanted, date(2099, 1, 1))) == []
    (later,) = end_of_life(driver(), wanted, date(2099, 1, 1))
    assert later.remedy.endswith(": see the page")
    (unknown,) = end_of_life(driver(), WantedDriver(None, "9999", "open"), TODAY)
    assert head(unknown) == head(after) and unnamed(unknown.reason, "9999") == []
    assert list(end_of_life(driver(), WantedDriver(None, None, "open"), TODAY)) == []


def test_proprietary_packages_end_with_their_last_branch_but_where_they_are_already() -> None:
    last = tables.drivers().last_proprietary
    asked = driver(flavour="proprietary", source="cuda-repository")
    beyond, within = WantedDriver(None, "615", "proprietary"), WantedDriver(None, last, "proprietary")
    assert list(proprietary_refusals(asked, within, NO_DRIVER, TODAY)) == []
    (refused,) = proprietary_refusals(asked, beyond, NO_DRIVER, TODAY)
    assert refused.component == "driver" and "and branch 615 is asked for" in refused.reason
    assert refused.source == "R615 release notes (gpunode/data/drivers.yaml, proprietary_packages)"
    assert refused.remedy.startswith("set driver.flavour = 'open'")
    there = replace(NO_DRIVER, packages=(("cuda-drivers", "615.10-1"),))
    assert list(proprietary_refusals(asked, beyond, there, TODAY)) == []
    (told,) = proprietary_cautions(asked, beyond, there, TODAY)
    assert (told.reason, told.source, told.remedy) == (refused.reason, refused.source, refused.remedy)
    assert list(proprietary_cautions(asked, beyond, NO_DRIVER, TODAY)) == []
    for packages in ((("cuda-drivers", "610.1-1"),), (("nvidia-open", "615.10-1"),)):
        assert len(list(proprietary_refusals(asked, beyond, replace(NO_DRIVER, packages=packages), TODAY))) == 1
    for other in (
        (driver(source="present"), beyond), (driver(enabled=False), beyond), (asked, replace(beyond, flavour="open")),
        (asked, replace(beyond, branch=None)),
    ):  # fmt: skip
        assert list(proprietary_refusals(*other, NO_DRIVER, TODAY)) == []


def test_a_wanted_driver_is_told_and_judged_by_its_version_then_by_its_branch() -> None:
    exact, branch, none = (
        WantedDriver("580.95.05", "575", None),
        WantedDriver(None, "580", None),
        WantedDriver(*[None] * 3),
    )
    assert [str(each) for each in (exact, branch, none)] == ["580.95.05", "branch 580", "none"]
    assert [each.is_known for each in (exact, branch, none)] == [True, True, False]
    assert exact.at_least("580.95.05") and not exact.at_least("580.95.06")
    # Of a branch the newest is meant, whatever stands behind the point.
    assert branch.at_least("580.999") and not branch.at_least("581.0") and not none.at_least("1.0")


def test_a_driver_that_gpunode_does_not_install_is_wanted_as_it_is_loaded() -> None:
    there = replace(OPEN_550, loaded_version="550.1", module_version="550.2", loaded_flavour=None)
    found = wanted_driver(driver(source="present"), (H100,), there, DEBIAN)
    assert (found.version, found.branch, found.flavour) == ("550.1", there.branch, there.module_flavour)
    found = wanted_driver(driver(source="present"), (), replace(there, loaded_version=None), DEBIAN)
    assert found.version == "550.2"
    asked = driver(version="580.95.05", flavour="proprietary", source="cuda-repository")
    assert wanted_driver(asked, (B200,), there, DEBIAN) == WantedDriver("580.95.05", "580", "proprietary") or (
        wanted_driver(asked, (B200,), there, DEBIAN).flavour == "proprietary"
    )


def test_the_module_that_does_not_drive_a_gpu_is_refused_by_that_gpu_s_name() -> None:
    source = "NVIDIA driver installation guide (gpunode/data/drivers.yaml, flavours)"
    one, other = WantedDriver(None, "580", "open"), WantedDriver(None, "580", "proprietary")
    (old,) = flavour_refusals((T4, V100, P100), one)
    assert (*head(old), old.source) == (Refusal, "driver", "preflight.flavour-not-open", source)
    assert unnamed(old.reason, "open", f"{named(V100)} (volta)") == []
    assert named(T4) not in old.reason and named(P100) not in old.reason
    assert unnamed(old.remedy, "driver.flavour = 'proprietary'", "'auto'") == []
    (new,) = flavour_refusals((T4, B200), other)
    assert (*head(new), new.source) == (Refusal, "driver", "preflight.flavour-not-proprietary", source)
    assert unnamed(new.reason, "proprietary", f"{named(B200)} (blackwell)") == [] and named(T4) not in new.reason
    assert unnamed(new.remedy, "driver.flavour = 'open'", "'auto'") == []
    for wanted in (one, other):
        assert list(flavour_refusals((T4, H100, UNKNOWN_GPU), wanted)) == []
        (both,) = flavour_refusals((V100, B200), wanted)
        assert (*head(both), both.source) == (Refusal, "driver", "preflight.flavour-of-both", source)
        assert unnamed(both.reason, f"{named(V100)} (volta)", f"{named(B200)} (blackwell)") == [] and both.remedy
        proprietary, module, rest = both.reason.partition(" proprietary ")
        assert module and named(V100) in proprietary and named(B200) in rest
    assert list(flavour_refusals((B200,), one)) == list(flavour_refusals((V100,), other)) == []
    assert named(replace(H100, name=None)) == f"GPU 2330 at {H100.address}"


def test_a_generation_s_last_branch_is_let_through_and_the_next_is_refused_once() -> None:
    assert list(last_branch_refusals((V100,), WantedDriver(None, "580", "proprietary"))) == []
    assert list(last_branch_refusals((V100,), WantedDriver(None, None, "proprietary"))) == []
    assert list(last_branch_refusals((H100, UNKNOWN_GPU), WantedDriver(None, "595", "open"))) == []
    wanted = WantedDriver(None, "595", "proprietary")
    (told,) = last_branch_refusals((H100, V100, V100), wanted)
    assert head(told) == (Refusal, "driver", "preflight.driver-dropped-gpu")
    assert unnamed(told.reason, "branch 595", f"{named(V100)} (volta)", "branch is 580") == []
    assert "gpunode/data/drivers.yaml, last_branch" in told.source
    assert unnamed(told.remedy, "driver.branch = '580'") == []
    assert [each.remedy for each in last_branch_refusals((V100,), wanted, ("580", "595"))] == [told.remedy]
    (lacking,) = last_branch_refusals((V100,), wanted, ("590", "595"))
    assert unnamed(lacking.remedy, "driver.source = 'runfile'", "branch 580", "'distribution'") == []


def test_a_gpu_that_no_table_knows_is_told_of_and_one_that_a_table_knows_is_not() -> None:
    (told,) = unknown_gpus((H100, UNKNOWN_GPU))
    assert (*head(told), told.source) == (
        Caution, "gpu", "preflight.gpu-in-no-table", "gpunode/data/pci_ids.json",
    )  # fmt: skip
    assert unnamed(told.reason, named(UNKNOWN_GPU), "open") == unnamed(told.remedy, "driver.flavour", "pci.ids") == []


def test_a_disk_with_just_what_is_needed_is_enough_and_one_byte_less_is_not() -> None:
    asked = settings_from({"driver": {"source": "cuda-repository"}, "cuda": {"enabled": False}})
    sizes = tables.disk_space("driver")
    needed = sum(sizes.values())
    room = Disk(tuple((folder, "/", needed) for folder in sizes))
    assert list(disk_refusals(asked, room, NO_DRIVER, ())) == []
    less = Disk(tuple((folder, "/", needed - 1) for folder in sizes))
    (full,) = disk_refusals(asked, less, NO_DRIVER, ())
    assert (*head(full), full.source) == (Refusal, "disk", "preflight.disk-full", "df; gpunode/data/disk.yaml")
    assert full.reason.startswith("/ ") and re.findall(r"[\d.]+ GiB", full.reason) == [
        f"{(needed - 1) / GIB:.1f} GiB", f"{needed / GIB:.1f} GiB",
    ]  # fmt: skip
    assert unnamed(full.reason, *(f"driver in {folder}" for folder in sizes)) == []
    assert unnamed(full.remedy, f"{1 / GIB:.1f} GiB on /", "cuda.enabled = False") == []
    # What is there needs no room, nor what is not asked for.
    assert list(disk_refusals(asked, less, OPEN_550, ())) == []
    assert list(disk_refusals(settings_from({"driver": {"source": "present"}, "cuda": {"enabled": False}}), less,
                              NO_DRIVER, ())) == []  # fmt: skip
    cuda = settings_from({"driver": {"source": "present"}, "cuda": {"version": "12.8"}})
    no_room = Disk(tuple((folder, "/", 0) for folder in (*sizes, *tables.disk_space("cuda"))))
    (told,) = disk_refusals(cuda, no_room, NO_DRIVER, ("12.6",))
    assert "(cuda in " in told.reason
    assert list(disk_refusals(cuda, no_room, NO_DRIVER, ("12.8",))) == []


@pytest.mark.parametrize(("replicas", "refused"), [(16, False), (17, True)])
def test_an_old_gpu_is_granted_so_many_mps_clients_and_not_one_more(replicas: int, refused: bool) -> None:
    data: dict[str, Any] = {"kubernetes": {"enabled": True}, "sharing": {"strategy": "mps", "replicas": replicas}}
    found = list(device_plugin_refusals(settings_from(data), (H100, V100)))
    assert bool(found) == refused
    if refused:
        assert found[0].component == "device_plugin"
        assert head(found[0]) == (Refusal, "device_plugin", "preflight.plugin-too-many-mps")
        assert unnamed(found[0].reason, 17, named(V100), 16) == []
        assert "(gpunode/data/device_plugin.yaml)" in found[0].source
        assert found[0].remedy == "set sharing.replicas to 16 or less, or sharing.strategy to 'time-slicing'"
    assert list(device_plugin_refusals(settings_from(data), (H100, T4))) == []
    data["sharing"]["strategy"] = "time-slicing"
    assert list(device_plugin_refusals(settings_from(data), (V100,))) == []


def test_a_repository_is_used_by_what_is_enabled_and_comes_from_it() -> None:
    nothing: dict[str, Any] = {
        "driver": {"enabled": False}, "cuda": {"enabled": False}, "toolkit": {"enabled": False},
        "containerd": {"enabled": False, "default_runtime": "runc"},
    }  # fmt: skip
    assert not any(uses_repository(settings_from(nothing), name) for name in ("cuda", "toolkit", "docker"))
    for name, data in (
        ("cuda", {"driver": {"source": "cuda-repository"}}), ("cuda", {"cuda": {"source": "cuda-repository"}}),
        ("toolkit", {"toolkit": {"enabled": True}}),
        ("docker", {"containerd": {"source": "docker-repository", "default_runtime": "runc"}}),
    ):  # fmt: skip
        settings = settings_from({**nothing, **data})
        assert {each for each in ("cuda", "toolkit", "docker") if uses_repository(settings, each)} == {name}
    other = settings_from({**nothing, "driver": {"source": "present"}})
    assert not uses_repository(other, "cuda")


def test_a_key_that_the_distribution_does_not_take_is_refused_where_it_is_named() -> None:
    row = next(row for row in tables.distributions() if row.refused_keys)
    system = replace(DEBIAN, id=row.id, version_id=row.version, name=row.name)
    key = tables.drivers().signing_keys[next(iter(row.refused_keys))].fingerprint
    asked: dict[str, Any] = {"repositories": {"cuda": {"key_fingerprint": key}}}
    (refused,) = key_refusals(settings_from(asked), system)
    assert refused.component == "repositories"
    assert head(refused) == (Refusal, "repositories", "preflight.key-not-taken")
    assert unnamed(refused.reason, row.name, key) == []
    assert unnamed(refused.remedy, "key_url", "key_fingerprint", row.name) == []
    assert list(key_refusals(settings_from({}), system)) == []
    assert list(key_refusals(settings_from({"repositories": {"cuda": {"key_fingerprint": "A" * 40}}}), system)) == []
    unused = {**asked, "driver": {"source": "present"}, "cuda": {"enabled": False}}
    assert list(key_refusals(settings_from(unused), system)) == []


def test_pacman_s_repositories_that_take_what_nobody_signed_are_refused_one_by_one() -> None:
    assert list(trust_refusals(AptSources("amd64"))) == []
    assert list(proxy_cautions(settings_from({"proxy": {"http": "http://p:1"}}), AptSources("amd64"))) == []


def test_a_list_of_comments_alone_is_not_told_of_and_a_retired_key_is() -> None:
    key = tables.drivers().retired_key_ids[0].rjust(40, "0")
    other = "D" * 40
    sources = AptSources(
        "amd64", sources=(("/a.list", "# deb x\n\n  # y\n"), ("/b.list", "# x\ndeb y\n")),
        trusted=(("/k.gpg", (other, key)), ("/l.gpg", (other,))),
    )  # fmt: skip
    first, second = trust_cautions(sources)
    assert first.reason.startswith("/b.list names NVIDIA packages too: ") and first.source == "/b.list"
    assert first.remedy and unnamed(second.reason, "/k.gpg", key) == [] and other not in second.reason
    assert head(first) == (Caution, "repositories", "preflight.repository-named-twice")
    assert head(second) == (Caution, "repositories", "preflight.retired-key") and second.remedy


# Each of these breaks something else of a good node.
BROKEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"gpus": ()}),
    ({}, {"system": replace(DEBIAN, version_id="11")}),
    ({"driver": {"branch": "595"}}, {"gpus": (V100,)}),
    ({"driver": {"source": "present"}}, {}),
    ({"driver": {"branch": "535"}, "cuda": {"version": "13.0"}}, {}),
    ({"driver": {"source": "distribution"}}, {"apt_sources": AptSources("amd64", origins=("x",))}),
    ({"driver": {"branch": "470", "flavour": "open"}}, {"gpus": (V100, B200)}),
]


@pytest.mark.parametrize(("data", "more"), BROKEN)
def test_whatever_is_said_names_component_reason_source_and_what_to_do(
    data: dict[str, Any], more: dict[str, Any]
) -> None:
    settings = settings_from(data)
    node = machine(**more)
    found = [*refusals(settings, node, TODAY), *cautions(settings, node, TODAY)]
    for each in found:
        for field in fields(each):
            said = getattr(each, field.name)
            assert isinstance(said, str) and said and "None" not in said, each
        assert str(each) == f"{each.component}: {each.reason}; {each.remedy} (source: {each.source}) [{each.code}]"
        assert each.code in pages()
    assert any(type(each) is Refusal for each in found)
