"""The table of NVIDIA's repositories for apt: what was recorded, of which repository, and what is taken to be alike."""

from __future__ import annotations

import pytest

from gpunode.lab.world import apt
from gpunode.packages.driver_packages.names import GLOBS

pytestmark = pytest.mark.pure


def rows(repository: str, name: str) -> dict[str, apt.Package]:
    """Return version -> the row of a package."""
    return {row.version: row for row in apt.driver_packages(repository) if row.name == name}


def test_a_version_that_was_recorded_in_another_repository_is_inferred() -> None:
    smi = rows("debian12", "nvidia-driver-cuda")
    assert smi["580.105.08-1"].confidence == "log"
    # Of no Debian, and of one Debian without a word of which.
    assert (smi["580.95.05-1"].confidence, smi["595.45.04-1"].confidence) == ("inferred", "inferred")
    assert rows("ubuntu2404", "nvidia-open-580")["580.95.05-0ubuntu1"].confidence == "index"
    assert rows("ubuntu2204", "nvidia-open-580")["580.95.05-0ubuntu1"].confidence == "inferred"
    # Recorded in both.
    for ubuntu in ("ubuntu2204", "ubuntu2404"):
        assert rows(ubuntu, "nvidia-open")["610.57.04-1ubuntu1"].confidence == "log"
    # What is numbered apart from the driver is the same package beside any of its versions.
    assert rows("ubuntu2204", "libnvidia-egl-gbm1")["1.1.4-2ubuntu1"].confidence == "log"


@pytest.mark.parametrize(
    ("repository", "recorded"),
    [
        ("debian12", {"580-1", "580-5", "570.211.01-1", "580.105.08-1", "580.126.16-1", "595.71.05-1"}),
        ("debian13", set()),
        ("ubuntu2204", {"610.57.04-1ubuntu1"}),
        ("ubuntu2404", {"595-1ubuntu1", "610-2ubuntu1", "580.126.20-1", "590.48.01-0ubuntu1", "595.58.03-1ubuntu1",
                        "610.57.04-1ubuntu1"}),
        ("ubuntu2604", {"610-2ubuntu1", "595.58.03-1ubuntu1", "595.71.05-1ubuntu1", "610.43.02-1ubuntu1"}),
    ],
)  # fmt: skip
def test_a_pinning_package_whose_revision_nobody_recorded_is_inferred(repository: str, recorded: set[str]) -> None:
    pinning = [row for row in apt.driver_packages(repository) if row.name.startswith("nvidia-driver-pinning-")]
    assert {row.version for row in pinning if row.confidence != "inferred"} == recorded
    assert any(row.confidence == "inferred" for row in pinning)


def test_a_pinning_package_names_what_the_driver_is_by_the_one_list() -> None:
    ((_, text),) = rows("debian12", "nvidia-driver-pinning-580")["580-5"].files
    assert text.splitlines()[0] == f"Package: {' '.join(GLOBS)}"


def test_fabric_manager_of_branch_550_is_there_for_the_versions_that_were_recorded() -> None:
    assert set(rows("debian12", "nvidia-fabricmanager-550")) == {"550.54.15-1"}
    assert "550.90.12-1" in rows("debian12", "nvidia-driver")


def test_dkms_is_asked_for_by_its_version_from_branch_570_on() -> None:
    for repository in ("ubuntu2204", "ubuntu2404"):
        for flavour in ("", "-open"):
            for branch in (535, 550):
                (row,) = rows(repository, f"nvidia-dkms-{branch}{flavour}").values()
                assert row.depends.startswith("dkms, ")
            for row in rows(repository, f"nvidia-dkms-570{flavour}").values():
                assert row.depends.startswith("dkms (>= 3.1.8), ")


def test_ubuntu_s_persistence_daemon_is_in_two_packages_to_580_that_exclude_each_other() -> None:
    """The record has nvidia-persistenced at every branch, and the packaging the daemon in nvidia-compute-utils."""
    (daemon,) = (row for row in rows("ubuntu2404", "nvidia-persistenced").values() if row.driver == "580.178.04")
    assert daemon.chosen and not daemon.payload
    utilities = rows("ubuntu2404", "nvidia-compute-utils-580")["580.178.04-1ubuntu1"]
    assert utilities.provides == utilities.conflicts == utilities.replaces == "nvidia-persistenced"
