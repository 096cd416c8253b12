"""Every package set for an rpm distribution, resolved by the real package managers against the tables' repositories.

SIMULATED: the repositories' metadata (lab/world), which no package stands behind; dnf, dnf 5, zypper, libsolv are real.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from gpunode.base import tables
from gpunode.components.runtimes.toolkit.state import PACKAGES
from gpunode.lab.families import FAMILIES
from gpunode.lab.image import tools
from gpunode.lab.packages.rpm import Rpm
from gpunode.lab.packages.rpm_names import system_rpm
from gpunode.lab.rpm_metadata import modules_text, write_metadata
from gpunode.lab.world.cuda import cuda_packages
from gpunode.lab.world.docker import docker_rpms
from gpunode.lab.world.rpm import RpmWorld, rpm_world
from gpunode.lab.world.toolkit import packaged_versions, toolkit_rpm
from gpunode.packages.driver_packages.names import belongs, driver_branch
from gpunode.packages.installed_packages import satisfies
from tests.real.package_sets import BOARDS, Asked, driver_set, other_sets
from tests.real.resolve_rpm import PackageSet, Resolved, RpmManager, plain
from tests.real.rpm_repositories import RpmRepositories
from tests.support.messages import unnamed

CANNOT = os.geteuid() != 0 or shutil.which("podman") is None
pytestmark = [
    pytest.mark.node,
    pytest.mark.real,
    pytest.mark.skipif(CANNOT, reason="needs root and podman"),
]
# /etc/os-release ID -> NVIDIA's repository, of the distributions that differ in either.
DISTRIBUTIONS = (
    ("rocky", "rhel8"), ("rocky", "rhel9"), ("rocky", "rhel10"), ("ol", "rhel9"), ("amzn", "amzn2023"),
    ("fedora", "fedora42"), ("sles", "sles15"), ("opensuse-leap", "opensuse15"), ("sles", "suse16"),
)  # fmt: skip
MODULES = {
    "open": re.compile(r"kmod-nvidia-open-dkms|nvidia-open-driver-G\d\d(-kmp-default)?"),
    "proprietary": re.compile(r"kmod-nvidia-latest-dkms|nvidia-driver-G\d\d(-kmp-default)?"),
}
# What runtimes need, and SUSE's and Amazon's own containerd: of its relations nothing is known.
OF_THE_SYSTEM = ("systemd", "container-selinux", "libseccomp", "iptables-nft", "nftables", "tar", "xz", "containerd")
NVLINK5, GB200 = ("nvswitch", "nvlink5"), ("imex",)
# Its own, of the lab: nobody installs it for what it is.
NOT_ASKED = {"595.45.04"}


def manager(world: RpmWorld, work: Path) -> RpmManager:
    """Return the package manager with NVIDIA's, the toolkit's and Docker's repository, and what these need."""
    cuda = [Rpm(package.name, package.version, package.name, release=package.revision, requires=package.needs)
            for package in cuda_packages(world.name)]  # fmt: skip
    content = {
        "cuda": [*world.packages(), *cuda],
        "toolkit": [toolkit_rpm(name, version) for version in packaged_versions() for name in PACKAGES],
        "docker": [row.package("29.8.2" if row.epoch else "2.3.6", "1") for row in docker_rpms().values()],
        "system": [*world.from_elsewhere(), *(system_rpm(name, "1.0", "1") for name in OF_THE_SYSTEM)],
    }
    for name, packages in content.items():
        write_metadata(work / name, packages, modules_text(world) if name == "cuda" else "")
    repositories = [plain(name, f"file:///work/{name}") for name in content]
    root = tools(print, FAMILIES[world.manager])
    return RpmManager(world.manager, root, work, repositories, platform=world.platform)


def package_sets(
    os_id: str, repository: str, rules: Iterable[str], boards: Iterable[tuple[str, ...]]
) -> dict[str, PackageSet]:
    """Return label -> set of a distribution, by its /etc/os-release ID and NVIDIA's folder for it."""
    row = next(row for row in tables.distributions() if (row.id, row.repository) == (os_id, repository))
    asked = [
        driver_set(row, "cuda-repository", rule, flavour, board)
        for rule in rules
        for flavour in ("open", "proprietary")
        for board in boards
        if rule >= BOARDS[board]
    ]
    return {each.what: PackageSet(each.desired, each.stream) for each in asked}


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
    said += [] if modules == {label.split()[2]} else [f"{label}: the modules are {modules or 'none'}"]
    rules = {rule for rule in asked.packages.values() if rule}
    return said + [f"{label}: {upstream} is not {rule}" for rule in rules if not satisfies(upstream, rule)]


def rules_of(world: RpmWorld) -> list[str]:
    versions = [version for version in world.versions if version not in NOT_ASKED]
    branches = list(dict.fromkeys(version.partition(".")[0] for version in versions))
    transitional = {world.transitional[0].partition(".")[0]} if world.transitional else set()
    return [*(branch for branch in branches if branch not in transitional), *versions]


@pytest.mark.tier3
@pytest.mark.parametrize(("os_id", "repository"), DISTRIBUTIONS)
def test_every_set_resolves_with_all_of_the_driver_at_one_version(os_id: str, repository: str, tmp_path: Path) -> None:
    world = rpm_world(repository)
    sets: dict[str, PackageSet] = {}
    for rule in rules_of(world):
        # Of an exact version there may be no fabric manager; by branch an older one comes then.
        sets |= package_sets(os_id, repository, [rule], [()] if "." in rule else list(BOARDS)[1:])
    found = resolved(world, tmp_path, sets)
    assert [line for label in sets for line in wrong(label, sets[label], found[label])] == []


@pytest.mark.tier2
@pytest.mark.parametrize(("os_id", "repository"), [("rocky", "rhel9"), ("amzn", "amzn2023"), ("sles", "sles15")])
def test_what_a_board_needs_comes_at_an_older_version_than_the_newest(
    os_id: str, repository: str, tmp_path: Path
) -> None:
    world = rpm_world(repository)
    sets = package_sets(os_id, repository, ["580.95.05"], [NVLINK5, GB200])
    found = resolved(world, tmp_path, sets)
    assert [line for label in sets for line in wrong(label, sets[label], found[label])] == []
    names = set(found["driver 580.95.05 open nvswitch nvlink5"].installed)
    assert {"nvidia-fabricmanager", "nvlsm", "infiniband-diags"} <= names
    assert {"nvidia-imex", "libnvidia-nscq"} <= set(found["driver 580.95.05 proprietary imex"].installed)


@pytest.mark.tier2
def test_streams_hide_other_branches_a_closure_is_as_it_was_seen_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    world = rpm_world("rhel9")
    (closure,) = world.closures
    sets = {
        "seen": PackageSet({closure.asked: closure.version}, "nvidia-driver:615-open"),
        "default stream": PackageSet({"nvidia-open": "580"}),
        "no fabric manager": PackageSet({"nvidia-open": "580.178.04", "nvidia-fabricmanager": "580.178.04"},
                                        "nvidia-driver:580-open"),
        "the branch": PackageSet({"nvidia-open": "580", "nvidia-fabricmanager": "580"},
                                                   "nvidia-driver:580-open"),
    }  # fmt: skip
    found = resolved(world, tmp_path, sets)
    elsewhere = {row.name for row in world.elsewhere} | {"systemd"}
    assert set(found["seen"].installed) - elsewhere | {"dkms"} == set(closure.packages)
    # Without the branch's stream the default one counts, open-dkms, and that has the newest branch alone.
    assert "the repositories have 3:615.71.09-1.el9" in found["default stream"].errors[0]
    assert unnamed(found["no fabric manager"].errors[0], "nvidia-fabricmanager", "580.178.04") == []
    assert found["the branch"].installed["nvidia-open"] == "3:580.126.20-1.el9"
    assert found["the branch"].installed["nvidia-fabricmanager"] == "580.126.20-1"


@pytest.mark.tier2
@pytest.mark.parametrize(
    ("os_id", "repository"),
    [
        ("rocky", "rhel9"),
        ("rocky", "rhel10"),
        ("amzn", "amzn2023"),
        ("fedora", "fedora42"),
        ("opensuse-leap", "opensuse15"),
    ],
)
def test_toolkit_runtimes_and_cuda_resolve_by_the_code_that_asks_live_repositories(
    os_id: str, repository: str, tmp_path: Path
) -> None:
    row = next(row for row in tables.distributions() if (row.id, row.repository) == (os_id, repository))
    asked = RpmRepositories(row, manager(rpm_world(repository), tmp_path))
    sets = {name: list(other_sets(row, name, asked)) for name in ("own", "toolkit", "docker", "cuda")}
    assert asked.problems([each for found in sets.values() for each in found]) == [None] * sum(map(len, sets.values()))
    told = {name: [each.what for each in found] for name, found in sets.items()}
    assert told["toolkit"] == [
        "container toolkit",
        *(f"container toolkit {version}" for version in packaged_versions()[:-4:-1]),
    ]
    assert told["docker"] == (["containerd.io", "docker-ce docker-ce-cli"] if os_id in ("rocky", "fedora") else [])
    assert told["own"] == ([] if os_id == "rocky" else ["containerd"])
    # In its order: the default of the distribution first.
    oldest = {"rhel10": "13.0", "fedora42": "13.0"}.get(repository, "12.8")
    assert {f"CUDA {version}" for version in ("13.3", "13.2", "13.0", oldest)} <= set(told["cuda"])
    assert ("CUDA 12.8" in told["cuda"]) == (oldest == "12.8")


@pytest.mark.tier2
def test_what_a_repository_lacks_or_would_break_is_a_problem_of_its_set_alone(tmp_path: Path) -> None:
    row = next(row for row in tables.distributions() if row.repository == "rhel9" and row.id == "rocky")
    asked = RpmRepositories(row, manager(rpm_world("rhel9"), tmp_path))
    lacking, torn, good = asked.problems([
        Asked("gone", {"nvidia-gone": None}),
        Asked("torn", {"containerd.io": None, "containerd": None}),
        Asked("good", {"nvidia-container-toolkit": None}),
    ])  # fmt: skip
    assert unnamed(lacking, "dnf refuses", "nvidia-gone", "none") == []
    assert torn is not None
    assert torn.startswith("dnf refuses: ")
    assert good is None
