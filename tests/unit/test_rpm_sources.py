"""Which packages make up the driver on RHEL and its kin, Amazon Linux and SUSE, by the tables in lab/world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.lab.world.rpm import NAMES, rpm_world
from gpunode.node.preflight import refusals
from gpunode.operations.families import tools
from gpunode.packages.driver_packages import (
    belongs,
    brings_kernels,
    chosen,
    further_groups,
    leftovers,
    package_set,
    resolve_for_os,
)
from gpunode.packages.families import rpm
from gpunode.settings import settings_from
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpus, parse_pci_gpus
from tests.support.preflight import machine

pytestmark = pytest.mark.pure

(EL,) = (row for row in tables.driver_sources() if "rocky" in row.systems)
(SUSE,) = (row for row in tables.driver_sources() if "sles" in row.systems)
DEFAULT = Boot("6.4.0-150600.23.65-default", "6.4.0-150600.23.65-default")
AZURE = Boot("6.4.0-150600.8.5-azure", "6.4.0-150600.8.5-azure")


def asked(
    rule: str, source: tables.DriverSource, groups: tuple[str, ...] = (), boot: Boot = DEFAULT, flavour: str = "open"
) -> dict[str, str | None]:
    driver = settings_from({"driver": {"version" if "." in rule else "branch": rule}}).driver
    return package_set(driver, source, flavour, groups, boot)


# --- names by branch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("branch", "module"),
    [
        ("550", "nvidia-open-driver-G06-kmp-default"),
        ("570", "nvidia-open-driver-G06-kmp-default"),
        ("575", "nvidia-open-driver-G06"),
        ("580", "nvidia-open-driver-G06"),
        ("590", "nvidia-open-driver-G07"),
        ("595", "nvidia-open-driver-G07"),
    ],
)
def test_suse_s_names_are_those_of_the_branch(branch: str, module: str) -> None:
    wanted = asked(branch, SUSE)
    assert module in wanted
    assert asked(branch, SUSE, flavour="proprietary").keys() - wanted.keys() == {module.replace("-open", "")}
    assert "nvidia-open" not in wanted, "no index of SUSE's repository was seen with it"
    world = rpm_world("sles15")
    version = next(version for version in world.versions if version.startswith(branch))
    assert wanted.keys() <= {package.name for package in world.of_version(version)}


def test_a_module_that_comes_built_is_of_the_kernel_s_flavour() -> None:
    assert "nvidia-open-driver-G06-kmp-azure" in asked("570", SUSE, boot=AZURE)
    assert "nvidia-open-driver-G06" in asked("580", SUSE, boot=AZURE)
    other = Boot("6.1.0-40-amd64", "6.1.0-40-amd64")
    assert "nvidia-open-driver-G06-kmp-default" in asked("570", SUSE, boot=other)


def test_another_generation_s_packages_go_and_those_of_the_same_stay() -> None:
    there = ["nvidia-open-driver-G06", "nvidia-compute-utils-G06", "nvidia-compute-G06", "nvidia-common-G06",
             "libnvidia-ml", "nvidia-persistenced"]  # fmt: skip
    assert leftovers(SUSE, asked("580", SUSE), there) == ()
    assert leftovers(SUSE, asked("595", SUSE), there) == (
        "nvidia-common-G06", "nvidia-compute-G06", "nvidia-compute-utils-G06", "nvidia-open-driver-G06",
    )  # fmt: skip
    assert leftovers(SUSE, asked("580", SUSE, flavour="proprietary"), there) == ("nvidia-open-driver-G06",)


@pytest.mark.parametrize(
    ("metapackage", "at", "rule", "flavour", "stays"),
    [
        ("nvidia-open", "580.95.05-1", "580", "open", True),
        ("nvidia-open", "580.95.05-1", "580.95.05", "open", True),
        ("nvidia-open", "580.95.05-1", "580.126.09", "open", False),
        ("nvidia-open", "580.95.05-1", "595", "open", False),
        ("nvidia-open", "580.95.05-1", "580", "proprietary", False),
        ("cuda-drivers", "580.95.05-1", "580", "proprietary", True),
        ("cuda-drivers", "580.95.05-1", "580", "open", False),
    ],
)
def test_on_suse_a_metapackage_of_the_right_flavour_and_version_stays(
    metapackage: str, at: str, rule: str, flavour: str, stays: bool
) -> None:
    """NVIDIA's guide documents them, and an earlier gpunode asked for them."""
    wanted = asked(rule, SUSE, flavour=flavour)
    assert metapackage not in wanted
    found = leftovers(SUSE, wanted, {metapackage: at, **dict.fromkeys(wanted, at)}, rule)
    assert found == (() if stays else (metapackage,))
    # On RHEL it is what is asked for; another flavour's goes.
    assert leftovers(EL, {"nvidia-open": "580"}, {"nvidia-open": at, "cuda-drivers": at}, "580") == ("cuda-drivers",)


@pytest.mark.parametrize("source", [EL, SUSE], ids=["el", "suse"])
def test_nvlink_5_and_grace_blackwell_need_packages_whose_names_end_with_the_branch_before_580(
    source: tables.DriverSource,
) -> None:
    groups = ("nvswitch", "nvlink5", "imex")
    plain = asked("575", source)
    old = {name: rule for name, rule in asked("575", source, groups).items() if name not in plain}
    assert old == {
        "nvidia-fabric-manager": "575", "nvlsm": None, "infiniband-diags": None,
        "nvidia-imex-575": "575", "libnvidia-nscq-575": "575",
    }  # fmt: skip
    plain = asked("580.95.05", source)
    new = {name: rule for name, rule in asked("580.95.05", source, groups).items() if name not in plain}
    assert new == {
        "nvidia-fabricmanager": "580.95.05", "nvlsm": None, "infiniband-diags": None,
        "nvidia-imex": "580.95.05", "libnvidia-nscq": "580.95.05",
    }  # fmt: skip
    # The other name of the same must go; where nobody asked for any, it stays.
    wanted = asked("580", source, groups)
    assert set(leftovers(source, wanted, ["nvidia-imex-575", "nvidia-fabric-manager"])) == {
        "nvidia-imex-575", "nvidia-fabric-manager",
    }  # fmt: skip
    assert leftovers(source, asked("580", source), ["nvidia-imex-575"]) == ()


def gpus(*device_ids: str) -> PciGpus:
    return parse_pci_gpus([f"gpu=0000:0{number}:00.0 0x10de 0x{each}" for number, each in enumerate(device_ids)])


def test_grace_blackwell_boards_alone_need_imex() -> None:
    settings = settings_from({})
    named = {"2941": "HGX GB200", "31A1": "GB300 MaxQ", "31C2": "GB300", "31C3": "GB300-252"}
    for device_id, name in named.items():
        known = tables.pci_device(device_id)
        assert known is not None and known.name == name
        assert further_groups(settings, gpus("2330", device_id.lower()).groups) == ("imex",), name
    for other in ("2330", "2901", "3182", "2348", "ffff"):
        assert further_groups(settings, gpus(other).groups) == ()
    board = replace(gpus("2941"), switch_managers=2)
    assert board.groups == ("nvswitch", "nvlink5", "imex")
    assert board.fabric == ("nvswitch", "nvlink5")


def test_every_package_of_the_tables_that_is_the_driver_s_is_known_as_such() -> None:
    other = {"nvlsm"} | {row.name for name in NAMES for row in rpm_world(name).elsewhere}
    for name in NAMES:
        found = {package.name for package in rpm_world(name).packages()} - other
        assert [package for package in sorted(found) if not belongs(package)] == []


def test_fabric_packages_without_an_epoch_are_of_the_driver_s_version() -> None:
    wanted = {"nvidia-open": "580", "nvidia-fabricmanager": "580", "nvidia-imex": "580"}
    offered = [
        ("nvidia-open", "3:580.178.04-1.el9"), ("nvidia-open", "3:580.126.20-1.el9"),
        ("nvidia-fabricmanager", "580.126.20-1"), ("nvidia-imex", "580.178.04-1"), ("nvidia-imex", "580.126.20-1"),
    ]  # fmt: skip
    assert chosen(wanted, {}, offered) == {
        "nvidia-open": "3:580.126.20-1.el9", "nvidia-fabricmanager": "580.126.20-1", "nvidia-imex": "580.126.20-1",
    }  # fmt: skip


# --- distributions ---------------------------------------------------------------------------------------------------

NO_CONTAINERD = {"containerd": {"enabled": False}}


@pytest.mark.parametrize(
    ("os_id", "version", "repository", "family"),
    [
        ("ol", "8.10", "rhel8", "dnf"),
        ("ol", "9.6", "rhel9", "dnf"),
        ("amzn", "2023", "amzn2023", "dnf"),
        ("sles", "15.7", "sles15", "zypper"),
        ("opensuse-leap", "15.6", "opensuse15", "zypper"),
    ],
)
def test_a_distribution_with_a_known_key_is_taken(os_id: str, version: str, repository: str, family: str) -> None:
    found = tables.distribution(os_id, version)
    assert found is not None
    assert (found.repository, found.family, found.unverified_key) == (repository, family, None)
    system = OperatingSystem(os_id, version, None, (), found.name, "x86_64", "5.14.0", False)
    assert refusals(settings_from(NO_CONTAINERD), machine(system)) == ()
    source = tables.driver_source("cuda-repository", os_id)
    assert source is not None and source.family == family
    world = rpm_world(repository)
    key = settings_from({}).repositories.on("cuda", family, None)
    assert (world.manager, world.fingerprint) == (family, key.key_fingerprint)


def test_amazon_linux_is_not_asked_for_the_gnupg2_that_its_own_minimal_one_excludes() -> None:
    rocky, amazon = tables.distribution("rocky", "9.6"), tables.distribution("amzn", "2023")
    assert rocky is not None and amazon is not None
    assert set(tools(rocky, True)) - set(tools(amazon, True)) == {"gnupg2"}
    assert set(tools(rocky, True)) - set(tools(rocky, False)) == {"python3-dnf-plugin-versionlock"}


@pytest.mark.parametrize(
    "row", [row for row in tables.distributions() if row.family in ("dnf", "zypper")], ids=lambda row: row.name
)
def test_every_rpm_distribution_has_a_table_of_its_repository_and_names_for_its_driver(
    row: tables.Distribution,
) -> None:
    assert row.repository in NAMES
    world = rpm_world(row.repository)
    assert world.manager == row.family
    assert (row.unverified_key is None) == (world.fingerprint is not None)
    assert row.unverified_key is None or world.key_id in row.unverified_key
    source = tables.driver_source("cuda-repository", row.id)
    assert source is not None and source.family == row.family
    assert bool(source.stream) == (row.family == "dnf")


@pytest.mark.parametrize(
    ("os_id", "version", "repository", "key"),
    [
        ("rhel", "10.1", "rhel10", "CDF6BA43.pub"),
        ("sles", "16.0", "suse16", "3A8B5622.pub"),
        ("opensuse-leap", "16.0", "suse16", "3A8B5622.pub"),
    ],
)
def test_a_key_that_no_two_sources_give_in_full_must_be_named_by_the_settings(
    os_id: str, version: str, repository: str, key: str
) -> None:
    found = tables.distribution(os_id, version)
    assert found is not None and found.repository == repository
    system = OperatingSystem(os_id, version, None, (), found.name, "x86_64", "6.12.0", False)
    (refusal,) = refusals(settings_from(NO_CONTAINERD), machine(system))
    assert key in refusal.reason
    assert "set repositories.cuda.key_fingerprint" in refusal.remedy
    named = settings_from({**NO_CONTAINERD, "repositories": {"cuda": {"key_fingerprint": "B" * 40}}})
    assert refusals(named, machine(system)) == ()
    cuda = named.repositories.on("cuda", found.family, found.unverified_key)
    assert cuda.at(distribution=repository, architecture="x86_64").key_url.endswith(f"/{repository}/x86_64/{key}")


@pytest.mark.parametrize(
    "row", [row for row in tables.distributions() if row.repository == "rhel10"], ids=lambda row: row.name
)
def test_rhel_10_gets_the_cuda_13_that_its_repository_was_seen_with_and_an_older_one_is_refused(
    row: tables.Distribution,
) -> None:
    system = OperatingSystem(row.id, f"{row.version}.1", None, (), row.name, "x86_64", "6.12.0", False)
    known: dict[str, Any] = {**NO_CONTAINERD, "repositories": {"cuda": {"key_fingerprint": "B" * 40}}}
    found = resolve_for_os(settings_from(known), system)
    assert (found.driver.branch, found.cuda.version) == ("580", "13.3")
    assert refusals(settings_from(known), machine(system)) == ()
    (refusal,) = refusals(settings_from({**known, "cuda": {"version": "12.9"}}), machine(system))
    assert "no CUDA 12.9: its oldest is 13.0" in refusal.reason and "cuda.version to '13.0'" in refusal.remedy
    assert refusals(settings_from({**known, "cuda": {"version": "13.0"}}), machine(system)) == ()


@pytest.mark.parametrize(
    "name",
    ["kernel-uek", "kernel-uek-core", "kernel-uek-devel", "kernel-uek-modules", "kernel6.12", "kernel6.12-devel",
     "kernel6.12-modules-extra"],
)  # fmt: skip
def test_oracle_s_and_amazon_s_own_kernels_are_kernels(name: str) -> None:
    assert brings_kernels(name)
    # Several of them are there side by side, one for each kernel.
    lines = ["rpm=0", f"package=install {name} 6.12.1-1", f"package=install {name} 6.12.2-1"]
    _, _, twice, every = rpm.parse_driver(lines)
    assert (twice, len(every)) == (False, 2)


def test_what_is_no_kernel_is_held_with_none() -> None:
    assert [name for name in ("kernel-srpm-macros", "kernel6.12-livepatch-6.12.1", "kernel-rpm-macros", "kernelshark")
            if brings_kernels(name)] == []  # fmt: skip
