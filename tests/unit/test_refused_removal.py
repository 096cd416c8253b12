"""Removals that nobody asked for: refused by a real apt before it begins, and by preflight before anything is touched.

Real: apt-get with a root of its own. Relations are those of lab/world; no package is there to be installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.base import tables
from gpunode.components.runtimes.packages import docker_packages, way_out
from gpunode.components.runtimes.toolkit.state import PACKAGES
from gpunode.facts.families.dnf import DRIVER_PACKAGES as DNF_PACKAGES
from gpunode.lab.world.docker import debian_packages, docker_version
from gpunode.lab.world.docker import docker_packages as of_docker
from gpunode.lab.world.toolkit import full_version, toolkit_row
from gpunode.node.preflight.platform import system_refusals
from gpunode.operations.families import dnf, zypper
from gpunode.operations.families.family import INSTALL
from gpunode.operations.script import script
from gpunode.settings import settings_from
from gpunode.system.operating_system import OperatingSystem
from tests.support.messages import unnamed
from tests.support.private_apt import PrivateApt, installed, offered, plain
from tests.support.programs import programs, sh

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")

VERSIONS = {name: docker_version(name, "29.8.2") for name in ("docker-ce", "docker-ce-cli")}
VERSIONS["containerd.io"] = docker_version("containerd.io", "2.3.6")
_BASE = (
    "init-system-helpers", "iptables", "nftables", "libseccomp2", "tini", "adduser", "lsb-base", "sysvinit-utils",
)  # fmt: skip
INSTEAD = "set containerd.source = 'docker-repository', or 'present' to leave what is there"

Make = Callable[..., PrivateApt]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what makes a node with some packages, to which Debian's and Docker's repository offer theirs."""

    def of(*names: str, suite: str = "bookworm") -> PrivateApt:
        debian = debian_packages(suite)
        there = [of_docker()[name].stanza(VERSIONS[name]) for name in names if name in VERSIONS]
        there += [debian[name].stanza() for name in names if name in debian]
        base = [plain(name) for name in _BASE]
        repository = [of_docker()[name].stanza(version) for name, version in VERSIONS.items()]
        repository += [row.stanza() for row in debian.values()]
        return PrivateApt(tmp_path / "apt", map(installed, [*base, *there]), map(offered, repository))

    return of


def goes_on(done: subprocess.CompletedProcess[str]) -> None:
    """See that apt would have begun: there is no package behind the repository's list."""
    assert "would remove" not in done.stderr and "ailed to fetch" in done.stderr + done.stdout


OF_DEBIAN, OF_DOCKER = ("containerd", "runc", "docker.io"), ("docker-ce", "docker-ce-cli", "containerd.io")


@pytest.mark.real
@needs_apt
@pytest.mark.parametrize(
    ("there", "asked", "lost"),
    [
        (OF_DOCKER, ("containerd",), {"docker-ce", "containerd.io"}),
        (OF_DEBIAN, ("containerd.io",), {*OF_DEBIAN}),
        (OF_DEBIAN, ("docker-ce", "docker-ce-cli"), {*OF_DEBIAN}),
        (OF_DOCKER, ("docker.io",), {*OF_DOCKER}),
        ((), ("containerd",), set()),
        (("containerd", "runc"), ("containerd.io", "containerd-", "runc-"), set()),
    ],
)
def test_a_removal_goes_on_where_it_was_told_and_else_is_refused_by_name_and_in_preflight_s_table(
    make: Make, there: tuple[str, ...], asked: tuple[str, ...], lost: set[str]
) -> None:
    node = make(*there)
    # What apt does of itself: without a word but in its list.
    told = node.apt("-s", "install", "--no-install-recommends", *asked).stdout
    gone = {line.split()[1] for line in told.splitlines() if line.startswith("Remv ")}
    assert {name for name in gone if f"{name}-" not in asked} == lost
    done = node.install(*asked, instead=INSTEAD)
    if not lost:
        goes_on(done)
        return
    assert done.returncode == 1 and not node.touched
    (names,) = re.findall("would remove (.*), which", done.stderr)
    assert set(names.split()) == lost
    assert unnamed(done.stderr, *asked, INSTEAD, f"apt-get remove {names}") == []
    table = tables.removals_of_runtimes()["apt"]
    assert lost <= {name for each in asked for name in table[each]}


@pytest.mark.real
@needs_apt
def test_debian_13_s_docker_comes_with_its_client(make: Make) -> None:
    bookworm = tables.distribution("debian", "12")
    assert bookworm is not None
    asked = settings_from({"docker": {"enabled": True}}).docker
    assert docker_packages(asked.source, bookworm) == ("docker.io",)
    names = docker_packages(asked.source, replace(bookworm, version="13"))
    assert names == ("docker.io", "docker-cli")
    node = make(suite="trixie")
    for some, comes in ((names, {*names}), (names[:1], {names[0]})):
        told = node.apt("-s", "install", "--no-install-recommends", *some).stdout
        assert {name for name in names if f"Inst {name} " in told} == comes


def toolkit(version: str) -> list[str]:
    return [toolkit_row(name, version).stanza(full_version(version)) for name in PACKAGES]


@pytest.mark.real
@needs_apt
@pytest.mark.parametrize("held", ["libnvidia-container-tools", "nvidia-container-toolkit-base"])
def test_from_1_18_one_package_of_the_toolkit_alone_cannot_move_and_all_four_can(tmp_path: Path, held: str) -> None:
    there = [installed(text, held=text.startswith(f"Package: {held}\n")) for text in toolkit("1.18.0")]
    every = [offered(text) for version in ("1.18.0", "1.19.1", "1.20.0") for text in toolkit(version)]
    node = PrivateApt(tmp_path / "apt", there, every)
    alone = node.apt("-s", "install", "nvidia-container-toolkit=1.20.0-1")
    assert (alone.returncode != 0 and "unmet dependencies" in alone.stdout + alone.stderr) or "held" in alone.stdout
    # As gpunode asks, which lets go of its own holds first.
    (tmp_path / "apt/status").write_text("\n".join(map(installed, toolkit("1.18.0"))))
    goes_on(node.install(*(f"{name}=1.19.1" for name in PACKAGES)))
    told = node.apt("-s", "install", *(f"{name}=1.19.1-1" for name in PACKAGES)).stdout
    assert sorted(line.split()[1] for line in told.splitlines() if line.startswith("Inst ")) == sorted(PACKAGES)


@pytest.mark.pure
@pytest.mark.parametrize("row", tables.distributions(), ids=lambda row: row.name)
@pytest.mark.parametrize("runtime", ["containerd", "docker"])
def test_no_remedy_names_a_source_that_preflight_refuses_there(row: tables.Distribution, runtime: str) -> None:
    system = OperatingSystem(row.id, row.version, None, (), row.name, "x86_64", "6.1.0", False)
    other = {"containerd": "docker", "docker": "containerd"}[runtime]

    def refused(source: str) -> list[str]:
        data = {runtime: {"enabled": True, "source": source}, other: {"enabled": False}}
        found = system_refusals(settings_from(data), system)
        return [item.remedy for item in found if item.component == runtime]

    sources = ("distribution", "docker-repository")
    said = [way_out(runtime, source, row) for source in sources]
    for remedy in (*said, *(remedy for source in sources for remedy in refused(source))):
        named = set(re.findall("'(distribution|docker-repository|present)'", remedy))
        assert "present" in named and [source for source in named if refused(source)] == [], remedy
    # What can be had is named.
    assert ("'docker-repository'" in said[0]) is (not refused("docker-repository"))


@pytest.mark.simulated
def test_rpm_s_list_has_container_runtimes_beside_the_driver_and_the_toolkit(tmp_path: Path) -> None:
    """rpm is SIMULATED: it prints three packages."""
    programs(tmp_path, {"rpm": "printf '%s 1 x\\n' runc containerdxio containerd.io curl nvidia-docker2"})
    done = sh(tmp_path, f"{DNF_PACKAGES}\nof_all; echo driver; of_driver")
    assert done.stdout.splitlines() == [
        "install containerd.io 1", "install nvidia-docker2 1", "install runc 1", "driver",
    ]  # fmt: skip


# What asks what a repository offers, what it prints then, and what asks what an installation would do.
MANAGERS = {
    "dnf": (dnf.OFFERED, "*repoquery*", "2.2.6 0:2.2.6-3.1.el9", "*--assumeno*"),
    "zypper": (zypper.OFFERED, "*search*", '<solvable kind="package" edition="2.2.6-3.1" x>', "*--dry-run*"),
}
TRIALS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "data/installation_trials.yaml").read_text())


@pytest.mark.simulated
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial["case"])
def test_dnf_and_zypper_are_asked_first_and_go_on_where_nothing_is_lost(tmp_path: Path, trial: dict[str, Any]) -> None:
    """dnf, zypper and rpm are SIMULATED: they print what is given, and note what they are told."""
    manager, outcome = trial["manager"], trial["outcome"]
    functions, asks, offers, tries = MANAGERS[manager]
    (tmp_path / "table").write_text(trial["prints"])
    answers = f"{asks}) echo '{offers}'; exit;; {tries}) cat table; exit {trial['status']};;"
    programs(tmp_path, {"rpm": "exit 1", manager: f'case "$*" in {answers} esac\necho >> changed'})
    before = "dnf_run() { dnf run; }; zypp() { zypper run; }; refresh() { :; }"
    text = script(f"{before}\n{functions}{INSTALL}")
    done = sh(tmp_path, text, *trial["asked"], manager=manager, instead="", repository="docker")
    assert re.findall("would remove (.*), which", done.stderr) == ([trial["lost"]] if "lost" in trial else [])
    assert (tmp_path / "changed").exists() is (outcome == "goes on"), done.stderr
    assert (f"{manager} does not tell" in done.stderr) is (outcome == "not understood")
    assert done.returncode == 1 and (outcome != "not understood" or trial["prints"] in done.stderr)
