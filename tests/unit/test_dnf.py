"""dnf and rpm: what they print is read as they print it, and what they are told is what was meant."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.context import ctx_host

from gpunode.base import tables
from gpunode.base.probe import shell_text
from gpunode.base.reading import ParseError
from gpunode.components.toolkit.state import parse_toolkit
from gpunode.facts.driver_packages import DriverPackages as DriverPackagesFact
from gpunode.facts.families import by_manager
from gpunode.facts.families.dnf import DRIVER_PACKAGES, DnfRepository, DnfSimulation
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.preflight import refusals
from gpunode.node.preflight.platform import system_refusals
from gpunode.operations import dnf as repositories
from gpunode.operations import driver_packages
from gpunode.operations.driver_transaction import driver_transaction
from gpunode.operations.families import DNF, FAMILIES
from gpunode.packages.deb import AptRepository
from gpunode.packages.driver_packages import (
    Offers,
    Simulation,
    chosen,
    gate,
    leftovers,
    module_stream,
    of_another_source,
    package_set,
)
from gpunode.packages.families import dnf, rpm
from gpunode.settings import settings_from
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.transaction import Journal
from tests.support.dnf import ASKED, KEY, TEXT, TRUSTED
from tests.support.messages import unnamed
from tests.support.preflight import machine
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

(SOURCE,) = (row for row in tables.driver_sources() if "rocky" in row.systems)
(DEBIAN,) = (row for row in tables.driver_sources() if row.systems == ("debian", "ubuntu"))
EVR = "3:580.95.05-1.el9"
SET = {"nvidia-open": EVR, "libnvidia-ml": EVR, "nvidia-fabricmanager": "580.95.05-1"}
THEIRS = "# somebody's\ncurl-0:1.1-1.el9.*\n"
OURS = dnf.locked(THEIRS, SET)


def state(packages: Mapping[str, str] = SET, held: tuple[str, ...] = (), locklist: str | None = THEIRS) -> Any:
    return dnf.LockedPackages(tuple(sorted(packages.items())), held, locklist=locklist)


# --- which packages --------------------------------------------------------------------------------------------------


def test_the_set_has_no_pinning_package_and_fabric_manager_s_rpm_name() -> None:
    asked = settings_from({"driver": {"version": "570.172.08"}}).driver
    assert package_set(asked, SOURCE, "open", ["nvswitch"], Boot("6.1.0")) == {
        "nvidia-open": "570.172.08", "nvidia-fabric-manager": "570.172.08",
    }  # fmt: skip
    asked = settings_from({"driver": {"branch": "580"}}).driver
    assert package_set(asked, SOURCE, "proprietary", ["nvswitch"], Boot("6.1.0")) == {
        "cuda-drivers": "580", "nvidia-fabricmanager": "580",
    }  # fmt: skip


@pytest.mark.parametrize(
    "flavour, stream", [("open", "nvidia-driver:580-open"), ("proprietary", "nvidia-driver:580-dkms")]
)
def test_the_stream_is_the_branch_s_and_the_flavour_s(flavour: str, stream: str) -> None:
    asked = settings_from({"driver": {"version": "580.95.05"}}).driver
    assert module_stream(asked, SOURCE, flavour) == stream
    assert module_stream(asked, DEBIAN, flavour) == ""


def test_fabric_manager_of_the_other_name_must_go() -> None:
    there = ["nvidia-open", "nvidia-fabric-manager", "libnvidia-ml"]
    assert leftovers(SOURCE, ["nvidia-open", "nvidia-fabricmanager"], there) == ("nvidia-fabric-manager",)


def test_another_family_s_source_of_the_same_package_names_is_no_other_source() -> None:
    assert not of_another_source(SOURCE, ["nvidia-open", "cuda-drivers"])
    assert not of_another_source(DEBIAN, ["nvidia-open"])


def test_minor_releases_are_of_their_major_one() -> None:
    for os_id, version in (("rocky", "9.6"), ("rhel", "8.10"), ("almalinux", "9")):
        found = tables.distribution(os_id, version)
        assert found is not None
        assert (found.family, found.repository) == ("dnf", f"rhel{version[0]}")
    assert tables.distribution("debian", "1") is None


def test_keys_and_addresses_are_the_rpm_repositories_where_nothing_is_set() -> None:
    asked = settings_from({"repositories": {"cuda": {"url": "https://mirror/cuda"}}}).repositories
    cuda = asked.on("cuda", "dnf")
    assert (cuda.url, cuda.key_fingerprint) == ("https://mirror/cuda", "610C7B14E068A878070DA4E99CD0A493D42D0685")
    assert asked.on("cuda", "apt").key_fingerprint == "EB693B3035CD5710E231E123A4B469963BF863CC"
    assert asked.on("toolkit", "dnf").url.endswith("/rpm/$basearch")
    assert asked.on("docker", "dnf").key_fingerprint != asked.on("docker", "apt").key_fingerprint
    mine = settings_from({"repositories": {"docker": {"key_fingerprint": "A" * 40}}}).repositories
    assert mine.on("docker", "dnf").key_fingerprint == "A" * 40


def test_a_distribution_without_containerd_is_refused_with_the_way_out() -> None:
    rocky = OperatingSystem("rocky", "9.6", None, ("rhel",), "Rocky Linux 9.6", "x86_64", "5.14.0", False)
    (refusal,) = system_refusals(settings_from({}), rocky)
    assert "has no package containerd" in str(refusal)
    assert "containerd.source = 'docker-repository'" in str(refusal)
    assert not list(system_refusals(settings_from({"containerd": {"source": "docker-repository"}}), rocky))
    assert not list(system_refusals(settings_from({"containerd": {"enabled": False}}), rocky))


ROCKY_10 = OperatingSystem("rocky", "10.0", None, ("rhel",), "Rocky Linux 10.0", "x86_64", "6.12.0", False)
PLAIN: dict[str, Any] = {"containerd": {"enabled": False}}


def test_rhel_10_s_repository_has_a_key_of_its_own_which_the_settings_must_name() -> None:
    found = tables.distribution("rocky", "10.0")
    assert found is not None
    assert (found.repository, found.family, found.docker) == ("rhel10", "dnf", "rhel")
    (refusal,) = refusals(settings_from(PLAIN), machine(ROCKY_10))
    assert "CDF6BA43.pub" in refusal.reason
    assert "repositories.cuda.key_fingerprint" in refusal.remedy
    named = settings_from({**PLAIN, "repositories": {"cuda": {"key_fingerprint": "B" * 40}}})
    assert refusals(named, machine(ROCKY_10)) == ()
    cuda = named.repositories.on("cuda", "dnf", found.unverified_key).at(distribution="rhel10", architecture="sbsa")
    assert cuda.url.endswith("/rhel10/sbsa")
    assert cuda.key_url.endswith("/rhel10/sbsa/CDF6BA43.pub")
    assert cuda.key_fingerprint == "B" * 40
    assert settings_from(PLAIN).repositories.on("cuda", "dnf", found.unverified_key).key_fingerprint == ""
    elsewhere = {"driver": {"source": "present"}, "cuda": {"enabled": False}}
    found_elsewhere = refusals(settings_from({**PLAIN, **elsewhere}), machine(ROCKY_10))
    assert not [each for each in found_elsewhere if each.component == "repositories"]


def test_a_system_of_which_nothing_is_known_is_refused() -> None:
    gentoo = OperatingSystem("gentoo", "42", None, (), "Gentoo", "x86_64", "6.14.0", False)
    (refusal,) = system_refusals(settings_from({}), gentoo)
    assert refusal.reason.endswith("is not supported")


# --- what is installed and locked ------------------------------------------------------------------------------------


def test_locks_are_read_with_what_others_lock_apart() -> None:
    encoded = base64.b64encode(OURS.encode()).decode()
    lines = [
        "rpm=0",
        f"package=hold nvidia-open {EVR}",
        "package=install libnvidia-ml 3:580.95.05-1.el9_4",
        "locking=yes",
    ]
    read = dnf.parse_driver_packages([*lines, f"locklist={encoded}"])
    assert (dict(read.packages)["libnvidia-ml"], read.held) == ("3:580.95.05-1.el9_4", ("nvidia-open",))
    assert read.locklist == OURS
    assert not read.interrupted
    assert dnf.parse_driver_packages(lines).locklist == ""
    assert dnf.parse_driver_packages(lines[:-1]).locklist is None


def test_two_versions_of_one_package_are_an_interruption_and_two_kernels_are_none() -> None:
    two = ["rpm=0", "package=install kernel-core 5.14.0-1.el9", "package=install kernel-core 5.14.0-2.el9"]
    assert not dnf.parse_driver_packages(two).interrupted
    assert dnf.parse_driver_packages(
        [*two, f"package=install nvidia-open {EVR}", "package=install nvidia-open 3:570.1-1"]
    ).interrupted


@pytest.mark.parametrize(
    "lines", [[], ["rpm=1"], ["rpm=0", "package=install nvidia-open"], ["rpm=0", "package=hold x;y 1"]]
)
def test_what_rpm_did_not_finish_or_does_not_say_so_is_no_answer(lines: list[str]) -> None:
    with pytest.raises(ParseError):
        dnf.parse_driver_packages(lines)


def test_our_locks_come_and_go_and_leave_the_rest_to_the_byte() -> None:
    assert OURS.startswith(THEIRS)
    assert "nvidia-fabricmanager-0:580.95.05-1.*\n" in OURS
    assert f"nvidia-open-{EVR}.*\n" in OURS
    assert dnf.locked(OURS, SET) == OURS
    assert dnf.locked(OURS, {}) == THEIRS
    assert dnf.locked(dnf.locked("", SET), {}) == ""
    assert dnf.locked("curl-0:1.1-1.*", SET).startswith("curl-0:1.1-1.*\n")


RPM = (
    f"nvidia-open {EVR} nvidia-open-{EVR}.x86_64",
    "curl 1.1-1 curl-0:1.1-1.x86_64",
    "nvidia-container-toolkit 1-1 nvidia-container-toolkit-0:1-1.x86_64",
    "libnvidia-ml 3:1-1 libnvidia-ml-3:1-1.x86_64",
)


@pytest.mark.simulated
@pytest.mark.parametrize(
    "entry, plugin, held",
    [
        (f"nvidia-open-{EVR}.*", True, ["nvidia-open"]), ("nvidia-*", True, ["nvidia-open"]),
        ("*", True, ["libnvidia-ml", "nvidia-open"]), (f"# nvidia-open-{EVR}.*", True, []),
        (f"!nvidia-open-{EVR}.*", True, []), ("nvidia-open-3:580.82.07-1.el9.*", True, []),
        (f"nvidia-open-{EVR}.*", False, []),
    ],
)  # fmt: skip
def test_a_package_is_held_by_the_entry_that_fits_it_where_the_plugin_is_there(
    tmp_path: Path, entry: str, plugin: bool, held: list[str]
) -> None:
    (tmp_path / "rpm").write_text("#!/bin/sh\ncat <<END\n" + "\n".join(RPM) + "\nEND\n")
    (tmp_path / "rpm").chmod(0o755)
    folder = tmp_path / "usr/lib/python3.9/site-packages/dnf-plugins"
    folder.mkdir(parents=True)
    if plugin:
        (folder / "versionlock.py").touch()
    settings = tmp_path / "etc/dnf/plugins"
    settings.mkdir(parents=True)
    (settings / "versionlock.conf").write_text("[main]\nenabled = 1\n")
    (settings / "versionlock.list").write_text(f"{entry}\n")
    text = DRIVER_PACKAGES.replace("/usr/lib", f"{tmp_path}/usr/lib").replace("/etc/dnf", f"{tmp_path}/etc/dnf")
    done = subprocess.run(
        ["sh", "-c", f"{text}\nof_driver"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(name for _, name, _ in lines) == ["libnvidia-ml", "nvidia-open"], done.stderr
    assert sorted(name for want, name, _ in lines if want == "hold") == held


def test_the_manager_that_is_asked_keeps_the_node_s_packages_whatever_else_is_installed(tmp_path: Path) -> None:
    probes = {name: f"echo {name}" for name in ("apt", "dnf", "dnf5", "zypper", "pacman")}
    text = by_manager(**probes).replace("/var/lib", str(tmp_path))
    (tmp_path / "rpm").write_text("#!/bin/sh\n")
    (tmp_path / "rpm").chmod(0o755)

    def asked() -> str:
        return subprocess.run(
            ["sh", "-c", text], env={"PATH": str(tmp_path)}, executable="/bin/sh", capture_output=True, text=True
        ).stdout

    # dpkg as a tool on RHEL: its list is there, and empty.
    (tmp_path / "dpkg").mkdir()
    (tmp_path / "dpkg/status").touch()
    assert asked() == "dnf\n"
    # rpm as a tool on Arch.
    (tmp_path / "pacman/local").mkdir(parents=True)
    (tmp_path / "pacman/local/ALPM_DB_VERSION").write_text("9\n")
    assert asked() == "pacman\n"
    (tmp_path / "dpkg/status").write_text("Package: dpkg\n")
    assert asked() == "apt\n"


# --- what the repositories offer, and what dnf would do --------------------------------------------------------------


def test_offers_are_newest_first_however_dnf_lists_them_and_without_an_epoch_of_zero() -> None:
    lines = [
        "dnf=0",
        *(
            f"available=nvidia-open 3:{version}"
            for version in ("580.105.08-1.el9", "580.95.05-1.el9", "580.95.05-2.el9")
        ),
    ]
    offers = dnf.parse_offers([*lines, "available=nvidia-fabricmanager 0:580.95.05-1"])
    assert [version for name, version in offers.available if name == "nvidia-open"] == [
        "3:580.105.08-1.el9", "3:580.95.05-2.el9", "3:580.95.05-1.el9",
    ]  # fmt: skip
    wanted: dict[str, str | None] = {"nvidia-open": "580.95.05", "nvidia-fabricmanager": "580.95.05"}
    assert chosen(wanted, {}, offers.available) == {
        "nvidia-open": "3:580.95.05-2.el9", "nvidia-fabricmanager": "580.95.05-1",
    }  # fmt: skip
    with pytest.raises(ParseError):
        dnf.parse_offers(["dnf=1"])


TABLE = """
================================================================================
 Package                    Arch        Version                Repository  Size
================================================================================
Installing:
 nvidia-fabricmanager       x86_64      580.95.05-1            cuda       7.3 k
     replacing  nvidia-fabric-manager.x86_64 570.124.06-1
Upgrading:
 kmod-nvidia-open-dkms-with-a-name-that-is-longer-than-its-column
                            x86_64      3:580.95.05-1.el9      cuda       6.7 k
 nvidia-open                x86_64      3:580.95.05-1.el9      cuda       5.8 k
Installing dependencies:
 egl-x11                    x86_64      1.0-1                  cuda        27 k
Removing:
 something-else             x86_64      1:2.0-1                @cuda      589

Transaction Summary
================================================================================
Install  1 Package
Operation aborted.
""".splitlines()
THERE = ["installed=nvidia-open 3:570.124.06-1.el9", "installed=something-else 1:2.0-1"]


def test_a_repository_that_dnf_passes_over_is_no_reason_to_refuse() -> None:
    said = ["Error: Cache-only enabled but no cache for 'gone'", "Ignoring repositories: gone"]
    lines = [f"line={line}" for line in (*said, *TABLE)]
    assert dnf.parse_simulation(["status=1", *lines]).errors == ()
    other = dnf.parse_simulation(["status=1", "line=Error: No such command", *lines])
    assert other.errors == ("No such command",)


def simulated(*said: str) -> Simulation:
    return dnf.parse_simulation(["status=1", *(f"line={line}" for line in said), *THERE])


def test_dnf_s_table_is_read_row_by_row_wrapped_and_replacing_ones_too() -> None:
    read = simulated(*TABLE)
    assert read.comes == (
        ("nvidia-fabricmanager", None, "580.95.05-1"),
        ("kmod-nvidia-open-dkms-with-a-name-that-is-longer-than-its-column", None, EVR),
        ("nvidia-open", "3:570.124.06-1.el9", EVR),
        ("egl-x11", None, "1.0-1"),
    )
    assert read.goes == (("nvidia-fabric-manager", "570.124.06-1"), ("something-else", "1:2.0-1"))
    assert read.errors == ()


def test_the_gate_refuses_what_dnf_would_remove_and_a_branch_that_was_not_allowed() -> None:
    refused = gate(simulated(*TABLE), {"nvidia-open": EVR}, "580", True)
    assert refused is not None
    assert unnamed(refused[0], "remove something-else") == []
    refused = gate(simulated(*TABLE[:12]), {"nvidia-open": EVR}, "580", False)
    assert refused is not None
    assert "would be moved to" in refused[0]
    assert gate(simulated(*TABLE[:12]), {"nvidia-open": EVR}, "580", True) is None


@pytest.mark.parametrize(
    "said, errors",
    [
        (("Error: Unable to find a match: x",), ("Unable to find a match: x",)),
        (("Error: ", " Problem: conflicting requests", "  - nothing provides y needed by x"),
         ("Problem: conflicting requests", "- nothing provides y needed by x")),
        ((" Problem: package x requires y", "  - conflicting requests", "Nothing to do."),
         ("Problem: package x requires y", "- conflicting requests")),
        (("Error: Operation aborted.",), ()),
    ],
)  # fmt: skip
def test_dnf_s_own_words_are_the_errors(said: tuple[str, ...], errors: tuple[str, ...]) -> None:
    assert simulated(*said).errors == errors


def test_a_node_without_epel_is_told_where_dkms_is() -> None:
    said = (" Problem: package nvidia-open requires kmod", "  - nothing provides dkms needed by kmod-nvidia-open-dkms")
    refused = gate(simulated(*said), {"nvidia-open": EVR}, "580", True)
    assert refused is not None
    assert unnamed(refused[1], "dkms", "EPEL") == []
    other = gate(simulated("  - nothing provides dkmsx needed by y", " Problem: x"), {"nvidia-open": EVR}, "580", True)
    assert other is not None
    assert "dnf --assumeno install" in other[1]


def test_another_version_than_the_asked_one_is_told_in_dnf_s_words() -> None:
    refused = gate(simulated(*TABLE[:12]), {"nvidia-open": "3:580.82.07-1.el9"}, "580", True)
    assert refused is not None
    assert "would come at 3:580.95.05-1.el9 and not at" in refused[0]
    assert "apt" not in refused[1]


def test_what_dnf_says_nothing_of_is_not_taken_for_done() -> None:
    asked = ["asked=nvidia-open 3:580.95.05-1.el9", "asked=something-else 1:2.0-1", "asked=nvidia-driver-cuda 3:1-1"]
    read = dnf.parse_simulation(["status=0", *(f"line={line}" for line in TABLE), *THERE, *asked])
    assert read.errors[0] == "it says nothing of nvidia-driver-cuda"


OFFERED = (
    "nvidia-open 580.95.05 3:580.95.05-1.el10", "nvidia-open 590.44.01 3:590.44.01-1.el10",
    "nvidia-driver-cuda 590.44.01 3:590.44.01-1.el10", "nvidia-fabricmanager 590.44.01 0:590.44.01-1",
    "cuda-drivers 580.82.07 0:580.82.07-1", "nvidia-container-toolkit 1.18.0 0:1.18.0-1",
    "nvidia-driver-assistant 0.30.1 0:0.30.1-1", "nvidia-gds-13-0 590.44.01 0:590.44.01-2",
)  # fmt: skip
LEFT_OUT = {
    f"{names}-{version}"
    for names in ("*nvidia*", "libnvsdm*", "cuda-drivers*")
    for version in ("0:580.82.07-1", "0:590.44.01-1", "3:590.44.01-1.el10")
}


def asked_of_dnf(folder: Path, script: str) -> list[str]:
    """Return what a dnf that only has OFFERED is asked by a script, a line each."""
    offered = "\n".join(OFFERED)
    programs = {
        "dnf": f'echo "$*" >> {folder}/asked\ncase "$*" in *repoquery*) cat <<END\n{offered}\nEND\nesac',
        "unshare": "exit 1",
        "rpm": "true",
    }
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    subprocess.run(["sh", "-c", script], env={"PATH": f"{folder}:{os.environ['PATH']}"}, check=True)
    return (folder / "asked").read_text().splitlines()


def left_out(said: str) -> set[str]:
    """Return what a line of dnf's arguments has it leave out."""
    option = "--setopt=*.excludepkgs="
    words = [word.removeprefix(option) for word in said.split() if word.startswith(option)]
    return {each for word in words for each in word.split(",")}


@pytest.mark.simulated
@pytest.mark.parametrize("upstream", ["580.95.05", ""])
def test_what_dnf_would_do_is_asked_without_the_driver_s_other_versions(tmp_path: Path, upstream: str) -> None:
    probe = str(DnfSimulation().command({"nvidia-open": "3:580.95.05-1.el10"}, [], upstream=upstream))
    (said,) = [line for line in asked_of_dnf(tmp_path, probe) if "--assumeno" in line]
    assert left_out(said) == (LEFT_OUT if upstream else set())


@pytest.mark.simulated
@pytest.mark.parametrize("does", [True, False], ids=["dnf does it", "dnf's shell refuses and says nothing"])
def test_what_goes_and_what_comes_are_one_transaction_that_is_looked_at_afterwards(tmp_path: Path, does: bool) -> None:
    """Two names of fabric manager hold the same files: rpm takes neither before the other has gone."""
    programs = {
        "dnf": f'for file; do :; done; case "$*" in *" shell "*) cat "$file" > {tmp_path}/asked\n'
        f"{f'touch {tmp_path}/done' if does else 'true'};; *) exit 1;; esac",
        "rpm": f"there=no; [ ! -e {tmp_path}/done ] || there=yes\n"
        'case "$* $there" in *fabric-manager*no) echo 570.172.08-1;; *fabricmanager*yes) echo 580.95.05-1;; '
        "*) exit 1; esac",
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    asked = "own=x; foreign=y; upstream=580.95.05; names=x"
    asked += "; arguments='nvidia-fabricmanager=580.95.05-1 nvidia-fabric-manager-'"
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", f"{asked}\n{DNF.functions}\ninstall_driver"], env=path, check=False)
    assert (tmp_path / "asked").read_text().splitlines() == [
        "install nvidia-fabricmanager-0:580.95.05-1", "remove nvidia-fabric-manager", "run",
    ]  # fmt: skip
    assert (done.returncode == 0) == does


@pytest.mark.simulated
def test_the_driver_s_packages_come_with_its_other_versions_out_of_dnf_s_sight(tmp_path: Path) -> None:
    asked = "own=x; foreign=y; upstream=580.95.05; arguments='nvidia-open=3:580.95.05-1.el10'; names=nvidia-open"
    lines = asked_of_dnf(tmp_path, f"set -eu; {asked}\n{DNF.functions}\ninstall_driver")
    (said,) = [line for line in lines if " install " in line]
    assert left_out(said) == LEFT_OUT
    assert said.endswith("nvidia-open-3:580.95.05-1.el10")


# As the real dnf prints it, from 580.95.05 to 615.71.09 by lab/world/rhel9.yaml; some rows are left out.
REPLACING = """
 Package                     Arch       Version                  Repo      Size
=================================================================================
Installing:
 nvidia-driver-common        x86_64     3:615.71.09-1.el9        cuda     6.6 k
     replacing  libnvidia-cfg.x86_64 3:580.95.05-1.el9
     replacing  libnvidia-gpucomp.x86_64 3:580.95.05-1.el9
     replacing  libnvidia-ml.x86_64 3:580.95.05-1.el9
Upgrading:
 nvidia-modprobe             x86_64     3:615.71.09-1.el9        cuda     5.6 k
 nvidia-open                 noarch     3:615.71.09-1.el9        cuda     5.7 k
Installing dependencies:
 egl-wayland2                x86_64     1.0.1-1.el9              base     5.5 k
 nvidia-driver-selinux       noarch     0.1-2.el9                cuda     5.5 k

Transaction Summary
"""
BEFORE = dict.fromkeys(
    ("nvidia-open", "nvidia-modprobe", "libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml"), "3:580.95.05-1.el9"
)


def read_table(table: str, asked: Mapping[str, str]) -> Simulation:
    return dnf.parse_simulation(
        ["status=1", *(f"line={line}" for line in table.splitlines()),
         *(f"installed={name} {version}" for name, version in BEFORE.items()),
         *(f"asked={name} {version}" for name, version in asked.items())]
    )  # fmt: skip


def test_libraries_that_a_package_of_the_new_driver_replaces_may_go() -> None:
    asked = {"nvidia-open": "3:615.71.09-1.el9"}
    read = read_table(REPLACING, asked)
    assert {name for name, _ in read.goes} == {"libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml"}
    assert gate(read, asked, "615", True) is None
    # What something else puts in the driver's place is not.
    other = read_table(REPLACING.replace("nvidia-driver-common", "some-other-library"), asked)
    refused = gate(other, asked, "615", True)
    assert refused is not None and "would remove libnvidia-cfg" in refused[0]


@pytest.mark.parametrize("system", ["rocky", "amzn", "sles"])
def test_what_nothing_binds_to_the_driver_moves_with_it(
    system: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-modprobe is required at no version: an upgrade would leave it behind, at the old driver's."""
    host.readings[TransactionJournal] = Journal(None, None, None, False)
    source = tables.driver_source("cuda-repository", system)
    assert source is not None
    family = FAMILIES[source.family]
    older, newer = "580.82.07-1", "580.95.05-1"
    names = ("nvidia-open", "nvidia-modprobe", "kmod-nvidia-open-dkms")
    told: list[Mapping[str, str]] = []

    class Manager:
        def __getattr__(self, name: str) -> Any:
            return getattr(family, name)

        def state(self) -> Any:
            return state(dict.fromkeys(names, older))

        def offers(self, asked: Any, change: Any) -> Offers:
            return Offers(tuple((name, version) for name in asked for version in (newer, older)))

        def refresh(self, repository: str) -> Any:
            return iter(())

        def bound(self, change: Any) -> Any:
            told.append({**change.coming, **change.along})
            return change

        def simulation(self, change: Any) -> Simulation:
            return Simulation((), ())

    monkeypatch.setattr("gpunode.operations.driver_packages.FAMILIES", {source.family: Manager()})
    ctx_host.set(host)
    try:
        commands(
            driver_packages.installed, host, desired={"nvidia-open": "580.95.05"}, branch="580", branch_change=False,
            rollback="required", kernel=None, source=source,
        )  # fmt: skip
    finally:
        ctx_host.reset()
    (coming,) = told or pytest.fail(f"nothing came: {host.refusals}")
    assert coming["nvidia-modprobe"] == newer
    # Which kernel module goes for another the package manager finds out.
    assert source.family != "dnf" or "kmod-nvidia-open-dkms" not in coming


# --- repositories ----------------------------------------------------------------------------------------------------

OTHER = (
    "[other]\nname=x\nbaseurl=http://host/cuda/\nenabled=1\ngpgcheck=0\n[kept]\nbaseurl=https://elsewhere\nenabled=1\n"
)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host({})
    for module in ("repositories", "rpm_repository", "driver_packages", "families.dnf"):
        monkeypatch.setattr(f"gpunode.operations.{module}.host", made)
    return made


def test_a_repository_checks_metadata_always_and_packages_where_they_are_signed() -> None:
    assert {"gpgcheck=1", "repo_gpgcheck=1", "skip_if_unavailable=0"} <= set(TEXT.splitlines())
    unsigned = dnf.repository_text("toolkit", "https://host/$(ARCH)", "/key", False, "http://proxy:1")
    assert {"gpgcheck=0", "repo_gpgcheck=1", "baseurl=https://host/$basearch", "proxy=http://proxy:1"} <= set(
        unsigned.splitlines()
    )


def test_a_trusted_repository_is_left_alone_and_each_deviation_mended(host: Host) -> None:
    host.readings[DnfRepository] = TRUSTED
    assert commands(repositories.repository, host, **ASKED) == []
    for stray in (
        {"fingerprints": ("B" * 40,)}, {"fingerprints": (KEY, "B" * 40)}, {"permissions": "666 root:root"},
        {"source": TEXT.replace("gpgcheck=1", "gpgcheck=0")}, {"refreshed": "older"},
    ):  # fmt: skip
        host.readings[DnfRepository] = AptRepository(**{**vars(TRUSTED), **stray})
        assert len(commands(repositories.repository, host, **ASKED)) == 1, stray


def test_a_second_entry_for_the_same_repository_is_switched_off_and_no_other(host: Host) -> None:
    (step,) = rpm.second_entries("https://host/cuda", [("/etc/yum.repos.d/x.repo", OTHER)])
    assert step.text.splitlines() == [
        "[other]", "enabled=0", "name=x", "baseurl=http://host/cuda/", "gpgcheck=0",
        "[kept]", "baseurl=https://elsewhere", "enabled=1",
    ]  # fmt: skip
    assert rpm.second_entries("https://host/cuda", [("/x.repo", step.text)]) == ()
    host.readings[DnfRepository] = AptRepository(**{**vars(TRUSTED), "others": (("/etc/yum.repos.d/x.repo", OTHER),)})
    assert len(commands(repositories.repository, host, **ASKED)) == 1
    host.readings[DnfRepository] = AptRepository(**{**vars(TRUSTED), "others": (("/x.repo", "baseurl=host/cuda\n"),)})
    assert commands(repositories.repository, host, **ASKED) == []
    assert "is no .repo file" in host.refusals[0]


def test_docker_s_repository_is_below_its_address(host: Host) -> None:
    host.readings[DnfRepository] = TRUSTED
    (command,) = commands(repositories.repository, host, **ASKED, suite="9", components="stable")
    assert "baseurl=https://host/cuda/9/$basearch/stable" in command


# --- holds -----------------------------------------------------------------------------------------------------------


def test_the_whole_set_is_locked_and_the_second_time_there_is_nothing_to_do(host: Host) -> None:
    host.readings[DriverPackagesFact] = state()
    write, note = commands(driver_packages.held, host, family="dnf", hold=True, kernel=False)
    assert base64.b64encode(OURS.encode()).decode() in write and f"gpunode {dnf.LOCKLIST}" in note
    host.readings[DriverPackagesFact] = state(held=tuple(SET), locklist=OURS)
    assert commands(driver_packages.held, host, family="dnf", hold=True, kernel=False) == []
    write, note = commands(driver_packages.held, host, family="dnf", hold=False, kernel=False)
    assert base64.b64encode(THEIRS.encode()).decode() in write


def test_each_of_several_kernels_that_are_there_is_locked(host: Host) -> None:
    lines = ["rpm=0", "locking=yes", f"package=install nvidia-open {EVR}"]
    lines += [f"package=install kernel-core 5.14.0-{each}.el9" for each in (362, 427, 503)]
    read = dnf.parse_driver_packages(lines)
    host.readings[DriverPackagesFact] = read
    write, _ = commands(driver_packages.held, host, family="dnf", hold=True, kernel=True)
    wanted = dnf.locked("", read.to_hold(True), every=read.every)
    assert base64.b64encode(wanted.encode()).decode() in write
    assert [line for line in wanted.splitlines() if "kernel" in line] == [
        f"kernel-core-0:5.14.0-{each}.el9.*" for each in (362, 427, 503)
    ]
    host.readings[DriverPackagesFact] = replace(read, locklist=wanted)
    assert commands(driver_packages.held, host, family="dnf", hold=True, kernel=True) == []
    # Kernels are not held unasked.
    assert "kernel" not in dnf.locked("", read.to_hold(False), every=read.every)


def test_without_the_plugin_a_hold_is_refused_with_the_remedy_and_no_hold_needs_none(host: Host) -> None:
    host.readings[DriverPackagesFact] = state(locklist=None)
    assert commands(driver_packages.held, host, family="dnf", hold=True, kernel=False) == []
    assert "install python3-dnf-plugin-versionlock" in host.refusals[0]
    host.refusals.clear()
    assert commands(driver_packages.held, host, family="dnf", hold=False, kernel=False) == []
    assert host.refusals == []


@pytest.mark.parametrize(
    ("driver", "toolkit", "off", "named"),
    [
        (True, True, True, "driver.hold and toolkit.hold"),
        (False, True, True, "toolkit.hold"),
        (False, False, True, None),
        (True, True, False, None),
    ],
)
def test_a_hold_by_a_plugin_that_is_switched_off_is_refused_before_the_node_is_touched(
    driver: bool, toolkit: bool, off: bool, named: str | None
) -> None:
    asked = settings_from({"driver": {"version": "580.95.05", "hold": driver}, "toolkit": {"hold": toolkit}})
    system = replace(GOOD.operating_system, id="rocky", version_id="9.5")
    node = replace(GOOD, operating_system=system, toolkit=replace(GOOD.toolkit, locking_off=off))
    found = [item for item in refusals(asked, node.machine) if "versionlock" in item.reason]
    assert [item.reason.startswith(f"{named} is asked for") for item in found] == ([True] if named else [])
    assert all("set enabled = 1 there, or " in item.remedy for item in found)


@pytest.mark.parametrize(("enabled", "said"), [("0", "off"), ("1", "yes"), (None, None)])
def test_the_toolkit_s_probe_tells_a_plugin_that_is_off_from_one_that_is_not_there(
    tmp_path: Path, enabled: str | None, said: str | None
) -> None:
    folder, etc = tmp_path / "usr/lib/python3.9/site-packages/dnf-plugins", tmp_path / "etc/dnf/plugins"
    folder.mkdir(parents=True)
    etc.mkdir(parents=True)
    if enabled is not None:
        (folder / "versionlock.py").touch()
        (etc / "versionlock.conf").write_text(f"[main]\nenabled = {enabled}\n")
    probe, _, _ = str(shell_text("components/toolkit/state")).partition("set -f; IFS=$NL\nfor line in $PACKAGES")
    text = f"{DRIVER_PACKAGES}\n{probe}"
    text = text.replace("/usr/lib", f"{tmp_path}/usr/lib").replace("/etc/dnf", f"{tmp_path}/etc/dnf")
    done = subprocess.run(["sh", "-c", f"MANAGER=dnf\n{text}"], capture_output=True, text=True, check=True)
    assert parse_toolkit(done.stdout.splitlines()).locking_off == (said == "off")
    assert done.stdout == (f"locking={said}\n" if said else "")


def test_every_manager_gives_each_function_that_the_transaction_calls() -> None:
    called = (
        "unlocked", "driver_packages", "is_installed", "stated", "saved_file", "cached_file", "fetch", "save_choices",
        "restore_choices", "release", "keep", "install_driver", "remove_driver", "forget",
        "finish_half", "finish_first", "put_back",
    )  # fmt: skip
    for family in FAMILIES.values():
        for name in called:
            assert f"\n{name}() {{" in family.functions, (family.name, name)
        script = driver_transaction(family).functions
        assert subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True).stderr == ""
    assert DNF.saved == "rpms"


def test_module_streams_of_dependencies_in_dnf_s_table_are_no_packages() -> None:
    plain = list(TABLE)
    end = plain.index("Transaction Summary")
    streams = [
        "Enabling module streams:",
        " llvm-toolset                    rhel8",
        " perl                            5.26",
    ]
    assert simulated(*plain[:end], *streams, "", *plain[end:]) == simulated(*plain)


def test_one_package_in_two_architectures_is_no_interruption_and_two_versions_are() -> None:
    line = "package=install nvidia-driver-libs 3:580.95.05-1.el9"
    assert not dnf.parse_driver_packages(["rpm=0", line, line]).interrupted
    assert dnf.parse_driver_packages(["rpm=0", line, line.replace("580.95.05", "580.82.07")]).interrupted
