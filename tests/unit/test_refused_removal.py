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

import pytest

from gpunode.base import tables
from gpunode.components.runtime_packages import docker_packages, way_out
from gpunode.components.toolkit import PACKAGES
from gpunode.facts.families.dnf import DRIVER_PACKAGES as DNF_PACKAGES
from gpunode.lab.world.docker import debian_packages, docker_version
from gpunode.lab.world.docker import docker_packages as of_docker
from gpunode.lab.world.toolkit import full_version, toolkit_row
from gpunode.node.preflight.platform import system_refusals
from gpunode.operations.families import dnf, zypper
from gpunode.operations.families.rpm import INSTALL
from gpunode.operations.script import script
from gpunode.settings import settings_from
from gpunode.system.operating_system import OperatingSystem
from tests.support.messages import unnamed
from tests.support.private_apt import PrivateApt, installed, offered, plain

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


@pytest.mark.real
@needs_apt
def test_containerd_of_the_distribution_does_not_take_docker_ce_away(make: Make) -> None:
    node = make("docker-ce", "docker-ce-cli", "containerd.io")
    # What apt does of itself: without a word but in its list.
    told = node.apt("-s", "install", "--no-install-recommends", "containerd").stdout
    assert "Remv docker-ce " in told and "Remv containerd.io " in told
    done = node.install("containerd", instead=INSTEAD)
    assert done.returncode == 1 and not node.touched
    assert unnamed(done.stderr, "containerd", INSTEAD, "apt-get remove docker-ce containerd.io") == []


@pytest.mark.real
@needs_apt
@pytest.mark.parametrize(
    ("there", "asked", "lost"),
    [
        (("containerd", "runc", "docker.io"), ("containerd.io",), {"containerd", "runc", "docker.io"}),
        (("containerd", "runc", "docker.io"), ("docker-ce", "docker-ce-cli"), {"containerd", "runc", "docker.io"}),
        (
            ("docker-ce", "docker-ce-cli", "containerd.io"),
            ("docker.io",),
            {"containerd.io", "docker-ce", "docker-ce-cli"},
        ),
    ],
)
def test_every_such_removal_is_refused_by_name_and_preflight_s_table_knows_it(
    make: Make, there: tuple[str, ...], asked: tuple[str, ...], lost: set[str]
) -> None:
    node = make(*there)
    done = node.install(*asked)
    line = next(line for line in done.stderr.splitlines() if "would remove" in line)
    assert set(line.partition("would remove ")[2].partition(", which")[0].split()) == lost
    assert done.returncode == 1 and not node.touched
    table = tables.removed_for_runtimes()
    assert lost <= {name for each in asked for name in table[each]}


@pytest.mark.real
@needs_apt
@pytest.mark.parametrize(
    ("there", "asked"), [((), ("containerd",)), (("containerd", "runc"), ("containerd.io", "containerd-", "runc-"))]
)
def test_what_removes_nothing_or_what_was_told_goes_on(
    make: Make, there: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    done = make(*there).install(*asked)
    assert "would remove" not in done.stderr
    assert "ailed to fetch" in done.stderr + done.stdout, (
        "apt would have begun, and there is no package behind the list"
    )


@pytest.mark.real
@needs_apt
def test_debian_13_s_docker_comes_with_its_client(make: Make) -> None:
    bookworm = tables.distribution("debian", "12")
    assert bookworm is not None
    trixie = replace(bookworm, version="13")
    asked = settings_from({"docker": {"enabled": True}}).docker
    names = docker_packages(asked, trixie)
    assert names == ("docker.io", "docker-cli")
    node = make(suite="trixie")
    told = node.apt("-s", "install", "--no-install-recommends", *names).stdout
    assert "Inst docker-cli " in told and "Inst docker.io " in told
    assert "Inst docker-cli " not in node.apt("-s", "install", "--no-install-recommends", "docker.io").stdout
    assert docker_packages(asked, bookworm) == ("docker.io",)


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
    done = node.install(*(f"{name}=1.19.1" for name in PACKAGES))
    assert "would remove" not in done.stderr
    assert "ailed to fetch" in done.stderr + done.stdout
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

    said = [way_out(runtime, source, row) for source in ("distribution", "docker-repository")]
    said += [remedy for source in ("distribution", "docker-repository") for remedy in refused(source)]
    for remedy in said:
        named = set(re.findall("'(distribution|docker-repository|present)'", remedy))
        assert "present" in named
        assert [source for source in named if refused(source)] == [], remedy
    # What can be had is named.
    assert ("'docker-repository'" in said[0]) is (not refused("docker-repository"))


@pytest.mark.simulated
def test_rpm_s_list_has_container_runtimes_beside_the_driver_and_the_toolkit(tmp_path: Path) -> None:
    """rpm is SIMULATED: it prints three packages."""
    (tmp_path / "rpm").write_text(
        "#!/bin/sh\nprintf '%s 1 x\\n' runc containerdxio containerd.io curl nvidia-docker2\n"
    )
    (tmp_path / "rpm").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", f"{DNF_PACKAGES}\nof_all; echo driver; of_driver"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "install containerd.io 1", "install nvidia-docker2 1", "install runc 1", "driver",
    ]  # fmt: skip


DNF_TABLE = """Dependencies resolved.
================================================================================
 Package           Architecture Version              Repository            Size
================================================================================
Installing:
 containerd.io     x86_64       2.2.6-3.1.el9        docker-ce-stable      34 M
     replacing  containerd.x86_64 1.6.20-1.el9
     replacing  runc.x86_64 4:1.2.4-1.el9
Installing dependencies:
 container-selinux noarch       4:2.235.0-1.el9      appstream             55 k
Removing dependent packages:
 podman            x86_64       6:5.2.2-9.el9_5      @appstream            52 M

Transaction Summary
================================================================================
Operation aborted.
"""
ZYPPER_TABLE = """<?xml version='1.0'?>
<stream>
<install-summary packages-to-change="3">
<to-install>
<solvable type="package" name="containerd.io" edition="2.2.6-3.1" arch="x86_64"/>
</to-install>
<to-remove>
<solvable type="package" name="containerd" edition="1.6.20-1" arch="x86_64"/>
<solvable type="package" name="runc" edition="1.2.4-1" arch="x86_64"/>
</to-remove>
</install-summary>
</stream>
"""


def install(
    tmp_path: Path, manager: str, functions: str, table: str, status: int, *asked: str
) -> subprocess.CompletedProcess[str]:
    """Run the shell of an installation by a manager that prints `table` where it is asked what it would do."""
    (tmp_path / "table").write_text(table)
    offers = {
        "dnf": 'case "$*" in *repoquery*) echo "2.2.6 0:2.2.6-3.1.el9"; exit;; esac',
        "zypper": 'case "$*" in *search*) echo \'<solvable kind="package" edition="2.2.6-3.1" x>\'; exit;; esac',
    }[manager]
    trial = {"dnf": "*--assumeno*", "zypper": "*--dry-run*"}[manager]
    for name, text in {
        manager: f'{offers}\ncase "$*" in {trial}) cat {tmp_path}/table; exit {status};; esac\n'
        f"echo >> {tmp_path}/changed",
        "rpm": "exit 1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    before = "dnf_run() { dnf run; }; zypp() { zypper run; }; refresh() { :; }"
    text = script(f"{before}\n{functions}{INSTALL}")
    return subprocess.run(
        ["sh", "-c", text, "gpunode", *asked],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "manager": manager, "instead": "", "repository": "docker"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


MANAGERS = {"dnf": (dnf.OFFERED, DNF_TABLE), "zypper": (zypper.OFFERED, ZYPPER_TABLE)}


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("manager", "lost", "told"),
    [
        ("dnf", "containerd runc podman", ""),
        ("zypper", "containerd runc", ""),
        ("dnf", "", "containerd- runc- podman-"),
        ("dnf", "containerd runc", "podman-"),
    ],
)
def test_dnf_and_zypper_are_asked_first_and_refused_alike(tmp_path: Path, manager: str, lost: str, told: str) -> None:
    """dnf, zypper and rpm are SIMULATED: they print what is given, and note what they are told."""
    done = install(tmp_path, manager, *MANAGERS[manager], int(manager == "dnf"), "containerd.io", *told.split())
    assert done.returncode == 1
    assert (f"would remove {lost}, which" in done.stderr) is bool(lost), done.stderr
    assert (tmp_path / "changed").exists() is not bool(lost)


NOTHING_GOES = {
    "dnf": "Installing:\n containerd.io x86_64 2.2.6-3.1.el9 docker 34 M\n\nTransaction Summary\nOperation aborted.\n",
    "zypper": '<install-summary><to-install><solvable type="package" name="x"/></to-install></install-summary>\n',
}
FAILS = {
    "dnf": "Error: \n Problem: conflicting requests\n  - nothing provides container-selinux\n",
    "zypper": "<prompt><description>Problem: nothing provides container-selinux</description></prompt>\n",
}


@pytest.mark.simulated
@pytest.mark.parametrize("manager", ["dnf", "zypper"])
@pytest.mark.parametrize(
    ("said", "status", "goes_on"),
    [(NOTHING_GOES, 0, True), ("Nothing to do.\n", 0, True), (FAILS, 4, False), ("in a new shape\n", 0, False)],
    ids=["none goes", "all is there", "fails", "another shape"],
)
def test_a_trial_that_does_not_tell_what_goes_stops_with_the_manager_s_own_words(
    tmp_path: Path, manager: str, said: dict[str, str] | str, status: int, goes_on: bool
) -> None:
    """dnf, zypper and rpm are SIMULATED."""
    text = said if isinstance(said, str) else said[manager]
    done = install(tmp_path, manager, MANAGERS[manager][0], text, status, "containerd.io")
    assert (tmp_path / "changed").exists() is goes_on, done.stderr
    assert (f"{manager} does not tell" in done.stderr) is not goes_on
    assert goes_on or text in done.stderr
