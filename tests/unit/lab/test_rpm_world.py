"""The tables of NVIDIA's rpm repositories hold the facts that they are to hold; metadata are written and read alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.lab.packages.rpm import Rpm
from gpunode.lab.rpm_metadata import described, modules_text, read_packages, read_streams, write_metadata
from gpunode.lab.world.rpm import NAMES, RpmWorld, rpm_world
from gpunode.lab.world.rpm_row import CONFIDENCES

pytestmark = pytest.mark.pure

EL = ("rhel8", "rhel9", "rhel10", "amzn2023")


def of(world: RpmWorld, version: str) -> dict[str, Rpm]:
    return {package.name: package for package in world.of_version(version)}


@pytest.mark.parametrize("name", NAMES)
def test_every_row_says_where_it_is_from_and_what_nobody_knows(name: str) -> None:
    world = rpm_world(name)
    for row in (*world.rows, *world.elsewhere):
        assert row.source and row.confidence in CONFIDENCES, row.name
        # What is assumed is known of nobody.
        assert set(row.assumed) <= set(row.unknown), row.name
    assert world.unknown
    assert not set(world.seen) & set(world.lab), "a version is either seen there or the lab's"


def test_names_change_with_the_branch() -> None:
    world = rpm_world("rhel9")
    old, new, newest = of(world, "570.172.08"), of(world, "580.95.05"), of(world, "615.71.09")
    fabric = {"nvidia-fabric-manager", "libnvidia-nscq-570", "nvidia-imex-570", "libnvsdm-570"}
    assert fabric <= old.keys() and not fabric & new.keys()
    assert {"nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "libnvsdm"} <= new.keys() - old.keys()
    assert {"libnvidia-ml", "libnvidia-cfg"} <= new.keys() - newest.keys()
    assert "libnvidia-ml < 3:615.71.09-1.el9" in newest["nvidia-driver-common"].obsoletes
    suse = rpm_world("sles15")
    assert {name for name in of(suse, "580.173.02") if "G0" in name and "G06" not in name} == set()
    assert {name for name in of(suse, "590.48.01") if "G0" in name and "G07" not in name} == set()


@pytest.mark.parametrize("name", EL)
def test_the_driver_has_epoch_3_and_the_release_s_dist_and_the_fabric_neither(name: str) -> None:
    world = rpm_world(name)
    dist = {"rhel8": ".el8", "rhel9": ".el9", "rhel10": ".el10", "amzn2023": ".amzn2023"}[name]
    there = of(world, "580.95.05")
    assert there["nvidia-open"].nevra == f"nvidia-open-3:580.95.05-1{dist}.noarch"
    assert there["nvidia-driver"].requires == ("nvidia-driver-libs = 3:580.95.05", "nvidia-kmod-common = 3:580.95.05")
    assert there["libnvidia-fbc"].requires == (f"nvidia-driver-cuda-libs = 3:580.95.05-1{dist}",)
    assert there["nvidia-imex"].nevra == "nvidia-imex-0:580.95.05-1.x86_64"
    # It binds nothing to its own version.
    assert {word.split()[1] for word in there["nvidia-open"].requires} == {">="}


def test_a_module_that_comes_built_is_numbered_by_its_kernel_too() -> None:
    kmp = of(rpm_world("sles15"), "570.211.01")["nvidia-open-driver-G06-kmp-default"]
    assert kmp.version == "570.211.01_k6.4.0_150600.21"
    assert kmp.requires == ("nvidia-compute-G06 >= 570.211.01",)


@pytest.mark.parametrize("name", ["rhel8", "rhel9", "amzn2023"])
def test_every_stream_holds_its_branch_and_flavour_and_no_other(name: str) -> None:
    world = rpm_world(name)
    branches = {version.split(".")[0] for version in world.versions}
    streams = {stream: [package.nevra for package in packages] for stream, packages in world.streams().items()}
    flavours = {f"{branch}-{flavour}" for branch in branches for flavour in ("open", "dkms")}
    assert streams.keys() == flavours | {"open-dkms", "latest-dkms"}
    assert streams["open-dkms"] == streams[f"{max(branches, key=int)}-open"]
    assert not [item for item in streams["580-open"] if "latest" in item or ":580" not in item]
    assert not [item for item in streams["580-dkms"] if "open" in item]
    fabric = [item for item in streams["580-open"] if item.startswith("nvidia-fabricmanager-0:580.95.05")]
    assert len(fabric) == 1


def test_what_has_no_streams_lists_none() -> None:
    for name in ("rhel10", "sles15", "opensuse15", "suse16"):
        assert (rpm_world(name).streams(), modules_text(rpm_world(name))) == ({}, "")


def test_amazon_s_repository_has_in_the_table_what_its_listing_had() -> None:
    world = rpm_world("amzn2023")
    assert len(world.listed) == 15 and not rpm_world("rhel9").listed
    (seen,) = world.seen
    there = {package.name for package in (*world.of_version(seen), *world.of_their_own())}
    assert set(world.listed) <= there
    # It was recorded without: the table's own doubt.
    assert "nvidia-open" in there and "nvidia-open" not in world.listed
    assert any("nvidia-open" in doubt for doubt in world.unknown)


def test_keys_that_no_two_sources_give_in_full_have_no_fingerprint() -> None:
    assert {name for name in NAMES if rpm_world(name).fingerprint is None} == {"rhel10", "suse16"}


@pytest.mark.parametrize("name", NAMES)
def test_metadata_say_what_they_were_made_of(name: str, tmp_path: Path) -> None:
    world = rpm_world(name)
    write_metadata(tmp_path / name, world.packages(), modules_text(world))
    wanted = sorted(map(described, world.packages()), key=lambda each: each.nevra)
    assert read_packages(tmp_path / name) == wanted
    streams, default = read_streams(tmp_path / name)
    assert streams.keys() == world.streams().keys()
    assert default == ("open-dkms" if streams else None)
