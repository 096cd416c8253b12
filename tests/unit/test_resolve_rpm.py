"""Every package set for an rpm distribution, resolved by the real dnf or zypper against the repositories of the tables.

SIMULATED: the repositories' metadata (lab/world), which no package stands behind; dnf, zypper and libsolv are real.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpunode.driver_packages import belongs, driver_branch
from gpunode.packages import satisfies
from lab.families import DNF, ZYPPER
from lab.image import tools
from lab.packages.rpm_names import system_rpm
from lab.rpm_metadata import modules_text, write_metadata
from lab.world.rpm import RpmWorld, rpm_world
from tests.real.resolve_rpm import PackageSet, Repository, Resolved, RpmManager
from tests.real.rpm_sets import package_sets

CANNOT = os.geteuid() != 0 or shutil.which("podman") is None
pytestmark = [
    pytest.mark.node,
    pytest.mark.real,
    pytest.mark.skipif(CANNOT, reason="needs root and podman"),
]
# /etc/os-release ID -> NVIDIA's repository, of the distributions that differ in either.
DISTRIBUTIONS = (
    ("rocky", "rhel8"), ("rocky", "rhel9"), ("rocky", "rhel10"), ("ol", "rhel9"), ("amzn", "amzn2023"),
    ("sles", "sles15"), ("opensuse-leap", "opensuse15"), ("sles", "suse16"),
)  # fmt: skip
MODULES = {
    "open": re.compile(r"kmod-nvidia-open-dkms|nvidia-open-driver-G\d\d(-kmp-default)?"),
    "proprietary": re.compile(r"kmod-nvidia-latest-dkms|nvidia-driver-G\d\d(-kmp-default)?"),
}
# Its own, of the lab: nobody installs it for what it is.
NOT_ASKED = {"595.45.04"}


def manager(world: RpmWorld, work: Path) -> RpmManager:
    """Return the package manager with NVIDIA's repository and what the distribution has for it."""
    write_metadata(work / "cuda", world.packages(), modules_text(world))
    write_metadata(work / "system", [*world.from_elsewhere(), system_rpm("systemd", "1.0", "1")])
    repositories = [Repository(name, f"file:///work/{name}") for name in ("cuda", "system")]
    root = tools(print, DNF if world.manager == "dnf" else ZYPPER)
    return RpmManager(world.manager, root, work, repositories, platform=world.platform)


def resolved(world: RpmWorld, work: Path, sets: Mapping[str, PackageSet]) -> dict[str, Resolved]:
    return dict(zip(sets, manager(world, work).resolve(list(sets.values())), strict=True))


def wrong(label: str, asked: PackageSet, found: Resolved) -> list[str]:
    """Return what is not as it should be of one set: refused, or parts of the driver at other versions."""
    if not found.possible:
        return [f"{label}: {' '.join(found.errors)}"]
    driver = {name: version for name, version in found.installed.items() if belongs(name) and driver_branch(version)}
    (upstream,) = {version.partition("-")[0].rpartition(":")[2].partition("_")[0]
                   for name, version in found.chosen.items() if asked.packages.get(name)}  # fmt: skip
    said = [f"{label}: {name} is missing" for name in asked.packages if name not in found.installed]
    said += [f"{label}: {name} {version} beside {upstream}" for name, version in driver.items()
             if not satisfies(version, upstream)]  # fmt: skip
    modules = {flavour for flavour, pattern in MODULES.items() if any(map(pattern.fullmatch, found.installed))}
    said += [] if modules == {label.split()[1]} else [f"{label}: the modules are {modules or 'none'}"]
    rules = {rule for rule in asked.packages.values() if rule}
    return said + [f"{label}: {upstream} is not {rule}" for rule in rules if not satisfies(upstream, rule)]


def rules_of(world: RpmWorld) -> list[str]:
    versions = [version for version in world.versions if version not in NOT_ASKED]
    branches = list(dict.fromkeys(version.partition(".")[0] for version in versions))
    transitional = {world.transitional[0].partition(".")[0]} if world.transitional else set()
    return [*(branch for branch in branches if branch not in transitional), *versions]


@pytest.mark.slow
@pytest.mark.parametrize(("os_id", "repository"), DISTRIBUTIONS)
def test_every_set_resolves_with_all_of_the_driver_at_one_version(os_id: str, repository: str, tmp_path: Path) -> None:
    world = rpm_world(repository)
    sets: dict[str, PackageSet] = {}
    for rule in rules_of(world):
        # Of an exact version there may be no fabric manager; by branch an older one comes then.
        sets |= package_sets(os_id, [rule], ("gpus",) if "." in rule else ("nvlink5", "gb200"))
    # nvidia-imex is of 570 and newer.
    sets = {label: each for label, each in sets.items() if not ("gb200" in label and int(label[:3]) < 570)}
    found = resolved(world, tmp_path, sets)
    assert [line for label in sets for line in wrong(label, sets[label], found[label])] == []


@pytest.mark.builds
@pytest.mark.parametrize(("os_id", "repository"), [("rocky", "rhel9"), ("amzn", "amzn2023"), ("sles", "sles15")])
def test_what_a_board_needs_comes_at_an_older_version_than_the_newest(
    os_id: str, repository: str, tmp_path: Path
) -> None:
    world = rpm_world(repository)
    sets = package_sets(os_id, ["580.95.05"], ["nvlink5", "gb200"])
    found = resolved(world, tmp_path, sets)
    assert [line for label in sets for line in wrong(label, sets[label], found[label])] == []
    names = set(found["580.95.05 open nvlink5"].installed)
    assert {"nvidia-fabricmanager", "nvlsm", "infiniband-diags"} <= names
    assert {"nvidia-imex", "libnvidia-nscq"} <= set(found["580.95.05 proprietary gb200"].installed)


@pytest.mark.builds
def test_streams_hide_other_branches_a_closure_is_as_it_was_seen_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    world = rpm_world("rhel9")
    (closure,) = world.closures
    sets = {
        "seen": PackageSet({closure.asked: closure.version}, "nvidia-driver:615-open"),
        "default stream": PackageSet({"nvidia-open": "580"}),
        "no fabric manager": PackageSet({"nvidia-open": "580.178.04", "nvidia-fabricmanager": "580.178.04"},
                                        "nvidia-driver:580-open"),
        "fabric manager of the branch": PackageSet({"nvidia-open": "580", "nvidia-fabricmanager": "580"},
                                                   "nvidia-driver:580-open"),
    }  # fmt: skip
    found = resolved(world, tmp_path, sets)
    elsewhere = {row.name for row in world.elsewhere} | {"systemd"}
    assert set(found["seen"].installed) - elsewhere | {"dkms"} == set(closure.packages)
    # Without the branch's stream the default one counts, open-dkms, and that has the newest branch alone.
    assert "the repositories have 3:615.71.09-1.el9" in found["default stream"].errors[0]
    assert "nvidia-fabricmanager is not to be had at 580.178.04" in found["no fabric manager"].errors[0]
    assert found["fabric manager of the branch"].installed["nvidia-open"] == "3:580.126.20-1.el9"
    assert found["fabric manager of the branch"].installed["nvidia-fabricmanager"] == "580.126.20-1"
