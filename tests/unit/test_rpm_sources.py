"""Which packages make up the driver on RHEL and its kin, Amazon Linux and SUSE, by the tables in lab/world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpunode.base import tables
from gpunode.lab.world.rpm import NAMES, rpm_world
from gpunode.operations.families import tools
from gpunode.packages.driver_packages.names import belongs
from gpunode.packages.driver_packages.sources import further_groups, package_set
from gpunode.settings import settings_from
from gpunode.system.boot import Boot
from gpunode.system.pci import parse_pci_gpus
from tests.support.package_sources import SUSE

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("flavour", ["open", "proprietary"])
@pytest.mark.parametrize("branch", ["550", "570", "575", "580", "590", "595"])
def test_suse_s_names_are_those_that_its_repository_has(branch: str, flavour: str) -> None:
    driver = settings_from({"driver": {"branch": branch}}).driver
    wanted = package_set(driver, SUSE, flavour, (), Boot("x", "6.4.0-150600.23.65-default"))
    world = rpm_world("sles15")
    version = next(version for version in world.versions if version.startswith(branch))
    assert wanted.keys() <= {package.name for package in world.of_version(version)}


def test_grace_blackwell_boards_alone_need_imex() -> None:
    gpus = parse_pci_gpus(["gpu=0000:00:00.0 0x10de 0x2941"])
    assert further_groups(settings_from({}), gpus.groups) == ("imex",)
    board = replace(gpus, switch_managers=2)
    assert board.groups == ("nvswitch", "nvlink5", "imex")
    assert board.fabric == ("nvswitch", "nvlink5")


def test_every_package_of_the_tables_that_is_the_driver_s_is_known_as_such() -> None:
    other = {"nvlsm"} | {row.name for name in NAMES for row in rpm_world(name).elsewhere}
    for name in NAMES:
        found = {package.name for package in rpm_world(name).packages()} - other
        assert [package for package in sorted(found) if not belongs(package)] == []


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
    source = tables.driver_source("cuda-repository", row.id)
    assert source is not None and source.family == row.family == world.manager
    assert bool(source.stream) == (row.family == "dnf")
    # Without a fingerprint of its own key the settings must name one.
    key = settings_from({}).repositories.on("cuda", row.family, row.unverified_key)
    assert key.key_fingerprint == (world.fingerprint or "")
    assert (row.unverified_key is None) == (world.fingerprint is not None)
    if row.unverified_key is not None:
        named = settings_from({"repositories": {"cuda": {"key_fingerprint": "B" * 40}}}).repositories
        cuda = named.on("cuda", row.family, row.unverified_key).at(distribution=row.repository, architecture="sbsa")
        assert (cuda.key_url.rpartition("/")[0], cuda.key_fingerprint) == (cuda.url, "B" * 40)
        assert cuda.key_url.endswith(f"/{row.repository}/sbsa/{world.key_id}.pub")
