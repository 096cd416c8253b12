"""zypper and rpm: what they print is read as they print it, and what they are told is what was meant."""

from __future__ import annotations

import base64
import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base import tables
from gpunode.base.reading import ParseError
from gpunode.facts.driver_packages import DriverPackages as DriverPackagesFact
from gpunode.facts.families import by_manager
from gpunode.facts.families.zypper import DRIVER_PACKAGES, ZypperOffers
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.preflight.platform import system_refusals
from gpunode.operations import driver_packages
from gpunode.operations.families import FAMILIES, ZYPPER, DriverChange
from gpunode.operations.families.zypper_shell import ZYPP
from gpunode.operations.keeping import KEEPING, digest_of_text
from gpunode.operations.script import script
from gpunode.operations.zypper import REPOSITORIES
from gpunode.packages.driver_packages import Offers, Simulation, chosen, driver_branch, gate, package_set
from gpunode.packages.driver_packages.names import NAME, belongs, brings_kernels
from gpunode.packages.families import rpm, zypper, zypper_errors
from gpunode.packages.families.zypper import LOCKS
from gpunode.packages.installed_packages import satisfies
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, grub_next
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

(SOURCE,) = (row for row in tables.driver_sources() if "sles" in row.systems)
SET = {"nvidia-open": "580.95.05-1", "nvidia-compute-G06": "580.95.05-1", "nvidia-fabricmanager": "580.95.05-1"}
THEIRS = zypper.lock("curl") + "\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: vim*\n\n"


# --- which packages, systems and repositories ------------------------------------------------------------------------


def test_the_set_is_made_of_suse_s_names_and_fabric_manager_s_rpm_name() -> None:
    asked = settings_from({"driver": {"version": "570.172.08"}}).driver
    others = ("nvidia-compute-utils-G06", "nvidia-persistenced", "nvidia-modprobe")
    assert package_set(asked, SOURCE, "open", ["nvswitch"], Boot("6.4.0-150600.23.65-default")) == dict.fromkeys(
        (*others, "nvidia-open-driver-G06-kmp-default", "nvidia-fabric-manager"), "570.172.08"
    )
    assert package_set(asked, SOURCE, "proprietary", [], Boot("x")) == dict.fromkeys(
        (*others, "nvidia-driver-G06-kmp-default"), "570.172.08"
    )
    asked = settings_from({"driver": {"branch": "550"}}).driver
    assert set(package_set(asked, SOURCE, "proprietary", [], Boot("x"))) == {
        "nvidia-compute-utils-G06", "nvidia-driver-G06-kmp-default",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("os_id", "version", "folder"),
    [("sles", "15.6", "sles15"), ("sles", "15.7", "sles15"), ("opensuse-leap", "15.6", "opensuse15")],
)
def test_suse_s_releases_are_of_nvidia_s_folders(os_id: str, version: str, folder: str) -> None:
    found = tables.distribution(os_id, version)
    assert found is not None
    assert (found.family, found.repository, found.containerd) == ("zypper", folder, True)


def test_what_was_not_looked_at_is_refused_with_the_reason() -> None:
    for os_id, version in (("sle-micro", "5.5"), ("opensuse-microos", "20251101")):
        assert tables.distribution(os_id, version) is None
        assert tables.reason_to_refuse(os_id, version)


def test_docker_s_repository_is_refused_with_the_way_out() -> None:
    sles = OperatingSystem("sles", "15.6", None, ("suse",), "SLES 15 SP6", "x86_64", "6.4.0", False)
    (refusal,) = system_refusals(settings_from({"containerd": {"source": "docker-repository"}}), sles)
    assert refusal.code == "preflight.system-without-docker-s-containerd" and "SLES 15 SP6" in refusal.reason
    assert "containerd.source = 'distribution'" in str(refusal)
    assert not list(system_refusals(settings_from({}), sles))


def test_the_rpm_repositories_keys_are_pinned() -> None:
    asked = settings_from({}).repositories
    assert asked.on("cuda", "zypper").key_fingerprint == "610C7B14E068A878070DA4E99CD0A493D42D0685"
    assert asked.on("toolkit", "zypper").url.endswith("/rpm/$basearch")


def test_a_module_that_is_built_for_kernels_is_of_its_driver_s_version_and_branch() -> None:
    version = "580.95.05_k6.4.0_150600.23.65-150600.3.63.1"
    assert driver_branch(version) == "580"
    assert satisfies(version, "580.95.05")
    assert not satisfies(version, "580.95.04")
    for name in ("nvidia-open-driver-G06-signed-cuda-kmp-default", "kernel-firmware-nvidia-gspx-G06"):
        assert belongs(name), name
    assert not belongs("kernel-firmware-nvidia")
    assert [name for name in ("kernel-default", "kernel-default-devel", "kernel-macros", "kernel-firmware-all")
            if brings_kernels(name)] == ["kernel-default", "kernel-default-devel", "kernel-macros"]  # fmt: skip


def test_a_repository_checks_metadata_always_and_packages_where_they_are_signed() -> None:
    text = zypper.repository_text("cuda", "https://host/$(ARCH)", "/key", True)
    assert {"gpgcheck=1", "repo_gpgcheck=1", "pkg_gpgcheck=1", "gpgkey=file:///key", "baseurl=https://host/$basearch"} \
        <= set(text.splitlines())  # fmt: skip
    assert "pkg_gpgcheck=0" in zypper.repository_text("toolkit", "https://host", "/key", False)


def test_a_proxy_is_told_by_the_address_and_the_second_entry_is_the_same_without() -> None:
    text = zypper.repository_text("cuda", "https://host/cuda", "/key", True, "http://proxy:3128")
    assert "baseurl=https://host/cuda?proxy=proxy&proxyport=3128" in text.splitlines()
    other = "[x]\nbaseurl=https://host/cuda/?proxy=other\nenabled=1\n"
    assert len(rpm.second_entries("https://host/cuda", [("/etc/zypp/repos.d/x.repo", other)])) == 1


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("os_release", "asked"),
    [
        ('ID="sles"\nID_LIKE="suse"\n', "zypper"), ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper"),
        ('ID="fedora"\n', "dnf5"), ('ID="rocky"\nNAME="not suse"\n', "dnf"),
    ],
)  # fmt: skip
def test_zypper_is_asked_on_suse_alone_whatever_is_installed(tmp_path: Path, os_release: str, asked: str) -> None:
    (tmp_path / "os-release").write_text(os_release)
    for name in ("rpm", "zypper", "dnf", "dnf5"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    text = by_manager(apt="echo apt", dnf="echo dnf", dnf5="echo dnf5", zypper="echo zypper", pacman="echo pacman")
    text = text.replace("/var/lib", str(tmp_path)).replace("/etc/os-release", str(tmp_path / "os-release"))
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert subprocess.run(["sh", "-c", text], env=path, capture_output=True, text=True).stdout == f"{asked}\n"


# --- locks -----------------------------------------------------------------------------------------------------------


def test_our_locks_come_and_go_and_leave_the_rest_to_the_byte() -> None:
    text, ours = zypper.locked(THEIRS, (), SET)
    assert text.startswith(THEIRS)
    assert ours == tuple(sorted(SET))
    assert zypper.locked(text, ours, SET) == (text, ours)
    assert zypper.locked(text, ours, {}) == (THEIRS, ())
    fewer, left = zypper.locked(text, ours, ["nvidia-open"])
    assert (fewer, left) == (THEIRS + zypper.lock("nvidia-open"), ("nvidia-open",))


def test_what_others_lock_needs_none_of_ours_and_is_not_taken_away() -> None:
    theirs = zypper.lock("nvidia-*") + zypper.lock("curl")
    assert zypper.locked(theirs, (), ["nvidia-open"]) == (theirs, ())
    # One of ours, and then a person locks the same.
    text, ours = zypper.locked("", (), ["nvidia-open"])
    both = zypper.lock("nvidia-open") + text
    assert zypper.locked(both, ours, {}) == (zypper.lock("nvidia-open"), ())
    # What zypper locks in part only, or by another kind, is no lock of the package.
    for entry in (zypper.lock("nvidia-open").rstrip("\n") + "\nversion: > 590\n\n",
                  zypper.lock("nvidia-open").replace("package", "patch")):  # fmt: skip
        assert zypper.locked(entry, (), ["nvidia-open"])[1] == ("nvidia-open",)


names = st.from_regex(NAME, fullmatch=True).filter(lambda name: len(name) < 30)


@given(st.lists(names, unique=True, max_size=5), st.sets(names, max_size=5))
def test_locks_of_ours_are_the_same_the_second_time_and_gone_without_a_trace(theirs: list[str], keep: set[str]) -> None:
    text = "".join(zypper.lock(name) for name in theirs)
    locked, ours = zypper.locked(text, (), keep)
    assert set(ours) == keep - set(theirs)
    assert zypper.locked(locked, ours, keep) == (locked, ours)
    assert zypper.locked(locked, ours, ()) == (text, ())


INSTALLED = ("nvidia-open 580.95.05-1", "nvidia-compute-G06 580.95.05-1", "curl 1.1-1", "kernel-default 6.4.0-1.1",
             "nvidia-container-toolkit 1-1")  # fmt: skip


def sh(folder: Path, text: str) -> list[str]:
    (folder / "rpm").write_text("#!/bin/sh\n" + "".join(f"echo 'have {line}'\n" for line in INSTALLED))
    (folder / "rpm").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", f"{DRIVER_PACKAGES.replace('/etc/zypp', str(folder))}\n{text}"],
        env={"PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("entry", "held"),
    [
        (None, []), ("", []), (zypper.lock("nvidia-open"), ["nvidia-open"]),
        (zypper.lock("nvidia-*"), ["nvidia-compute-G06", "nvidia-open"]),
        (zypper.lock("curl") + zypper.lock("kernel-default"), ["kernel-default"]),
        (zypper.lock("nvidia-ope?"), ["nvidia-open"]),
        (zypper.lock("nvidia.open"), []),
        ("type: package\nsolvable_name: compute\n", ["nvidia-compute-G06"]),
        ("type: package\nmatch_type: glob\nsolvable_name: nvidia-open\nversion: < 590\n", []),
        ("type: patch\nmatch_type: glob\nsolvable_name: nvidia-open\n", []),
        # What nobody wrote for us to understand must not make all the others unheld.
        (zypper.lock("nvidia-[open") + zypper.lock("nvidia-open"), ["nvidia-open"]),
    ],
)  # fmt: skip
def test_a_package_is_held_by_the_lock_that_fits_it(tmp_path: Path, entry: str | None, held: list[str]) -> None:
    if entry is not None:
        (tmp_path / "locks").write_text(entry)
    lines = [line.split() for line in sh(tmp_path, "of_driver")]
    assert sorted(name for _, name, _ in lines) == ["kernel-default", "nvidia-compute-G06", "nvidia-open"]
    assert sorted(name for want, name, _ in lines if want == "hold") == held


@pytest.mark.simulated
def test_what_the_driver_is_locked_by_is_lifted_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text(zypper.lock("nvidia-op*") + THEIRS + zypper.lock("cuda-drivers-x"))
    said = sh(tmp_path, "unlocking nvidia-open")
    assert [line for line in said if line.startswith("solvable_name")] == ["solvable_name: curl", "solvable_name: vim*"]


def test_locks_and_which_are_ours_are_read_from_the_probe() -> None:
    locks, ours = (base64.b64encode(text.encode()).decode() for text in (THEIRS, "nvidia-open\n"))
    lines = ["rpm=0", "zypper=yes", "package=hold nvidia-open 580.95.05-1", f"locks={locks}", f"ours={ours}"]
    read = DriverPackagesFact.parse(lines)
    assert isinstance(read, zypper.LockedPackages)
    assert (read.locks, read.ours, read.held) == (THEIRS, ("nvidia-open",), ("nvidia-open",))
    assert DriverPackagesFact.parse(lines[:3]).locks == ""  # type: ignore[attr-defined]


def test_a_module_for_two_kernels_is_no_interruption_and_two_drivers_are_one() -> None:
    kmp = [f"package=install nvidia-open-driver-G06-signed-cuda-kmp-default 580.95.05_k{n}-1" for n in (1, 2)]
    assert not zypper.parse_driver_packages(["rpm=0", *kmp]).interrupted
    two = ["package=install nvidia-open 580.95.05-1", "package=install nvidia-open 580.82.07-1"]
    assert zypper.parse_driver_packages(["rpm=0", *two]).interrupted


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host({})
    for module in ("gpunode.operations.driver_packages", "gpunode.operations.families.zypper"):
        monkeypatch.setattr(f"{module}.host", made)
    return made


def state(locks: str = THEIRS, ours: tuple[str, ...] = ()) -> zypper.LockedPackages:
    return zypper.LockedPackages(tuple(sorted(SET.items())), (), locks=locks, ours=ours)


def test_a_name_is_ours_before_its_lock_is_there_and_until_it_is_gone(host: Host) -> None:
    text, ours = zypper.locked(THEIRS, (), SET)
    host.readings[DriverPackagesFact] = state()
    *written, note = commands(driver_packages.held, host, family="zypper", hold=True, kernel=False)
    assert f"gpunode {zypper.LOCKS} {zypper.OURS}" in note
    assert [zypper.OURS in command for command in written] == [True, False]
    assert base64.b64encode(text.encode()).decode() in written[1]
    host.readings[DriverPackagesFact] = state(text, ours)
    assert commands(driver_packages.held, host, family="zypper", hold=True, kernel=False) == []
    *gone, _ = commands(driver_packages.held, host, family="zypper", hold=False, kernel=False)
    assert [zypper.OURS in command for command in gone] == [False, True]
    assert base64.b64encode(THEIRS.encode()).decode() in gone[0]
    # A file that zypper made for our locks alone goes with them.
    host.readings[DriverPackagesFact] = state(*zypper.locked("", (), SET))
    *alone, _ = commands(driver_packages.held, host, family="zypper", hold=False, kernel=False)
    assert ['rm -f "$path"' in command for command in alone] == [True, True]


# --- what the repositories offer, and what zypper would do -----------------------------------------------------------


def answered(text: str, status: int = 0, *more: str) -> list[str]:
    return [f"status={status}", f"xml={base64.b64encode(text.encode()).decode()}", *more]


def solvable(name: str, version: str, **more: str) -> str:
    fields = {"type": "package", "name": name, "edition": version, "arch": "x86_64", "summary": 'a "®" & <b>', **more}
    return f"<solvable {' '.join(f'{key}={quoteattr(value)}' for key, value in fields.items())}>\n</solvable>"


def summary(**groups: list[str]) -> str:
    inner = "".join(f"<{tag.replace('_', '-')}>{''.join(items)}</{tag.replace('_', '-')}>"
                    for tag, items in groups.items())  # fmt: skip
    return f"<?xml version='1.0'?>\n<stream>\n<install-summary>{inner}</install-summary>\n</stream>\n"


def test_offers_are_newest_first_and_what_is_only_installed_is_not_offered() -> None:
    found = "".join(
        f'<solvable status="x" name="nvidia-open" kind="{kind}" edition="{edition}" arch="x" repository="{where}"/>'
        for edition, kind, where in (
            ("580.95.05-1", "package", "cuda"), ("580.105.08-1", "package", "cuda"), ("580.95.05-2", "package", "cuda"),
            ("590.48.01-1", "package", "(System Packages)"), ("1-1", "patch", "cuda"),
        )
    )  # fmt: skip
    offers = zypper.parse_offers(answered(f"<stream><search-result>{found}</search-result></stream>"))
    assert [version for _, version in offers.available] == ["580.105.08-1", "580.95.05-2", "580.95.05-1"]
    assert chosen({"nvidia-open": "580.95"}, {}, offers.available) == {"nvidia-open": "580.95.05-2"}
    assert zypper.parse_offers(answered("<stream></stream>", 104)).available == ()
    kind = 'name="nvlsm" kind="package"'
    odd = f'<stream><solvable {kind} edition="2025a-1"/><solvable {kind} edition="1-1"/></stream>'
    assert [version for _, version in zypper.parse_offers(answered(odd)).available] == ["1-1", "2025a-1"]
    with pytest.raises(ParseError, match="another program is at work"):
        zypper.parse_offers(answered("<stream></stream>", 7))


def test_a_dry_run_tells_what_comes_from_what_and_what_goes() -> None:
    text = summary(
        to_upgrade=[solvable("nvidia-open", "580.95.05-1", **{"edition-old": "570.124.06-1"})],
        to_downgrade=[solvable("curl", "1.0-1", **{"edition-old": "1.1-1"})],
        to_install=[solvable("nvidia-open-driver-G06", "580.95.05-1"), solvable("x", "1", type="patch")],
        to_remove=[solvable("nvidia-fabric-manager", "570.124.06-1")],
        support_unknown=[solvable("nvidia-open", "580.95.05-1")],
    )  # fmt: skip
    read = zypper.parse_simulation(answered(f"noise of a library\n{text}more noise", 102))
    assert read.comes == (
        ("nvidia-open", "570.124.06-1", "580.95.05-1"), ("curl", "1.1-1", "1.0-1"),
        ("nvidia-open-driver-G06", None, "580.95.05-1"),
    )  # fmt: skip
    assert (read.goes, read.errors, read.manager) == ((("nvidia-fabric-manager", "570.124.06-1"),), (), "zypper")


PROBLEM = """<stream><message type="info">x</message><prompt id="1"><description>Problem: conflicting requests
 Solution 1: remove lock to allow installation of a
Problem: nothing provides dkms needed by nvidia-open-driver-G06-1.x86_64
  not installable providers: y
 Solution 1: do not install
</description><text>Choose</text></prompt></stream>"""


def test_zypper_s_problems_are_the_errors_without_their_solutions() -> None:
    assert zypper.parse_simulation(answered(PROBLEM, 4)).errors == (
        "Problem: conflicting requests",
        "Problem: nothing provides dkms needed by nvidia-open-driver-G06-1.x86_64 not installable providers: y",
    )
    said = "<stream><message type='error'>No provider of 'x=1' found.</message></stream>"
    assert zypper.parse_simulation(answered(said, 104)).errors == ("No provider of 'x=1' found.",)
    (error,) = zypper.parse_simulation(answered("<stream></stream>", 5)).errors
    assert unnamed(error, "exits 5", "root") == []


def test_what_zypper_says_nothing_of_is_not_taken_for_done() -> None:
    there = ["installed=curl 1.1-1", "asked=curl 1.1-1", "asked=nvidia-open 580.95.05-1"]
    assert zypper.parse_simulation(answered("<stream></stream>", 0, *there)).errors == (
        "it says nothing of nvidia-open",
    )


@pytest.mark.parametrize(
    "lines",
    [
        [], ["status=x"], ["status=0", "xml=%%%"], answered("no XML at all"), answered("<stream><unclosed></stream>"),
        answered('<!DOCTYPE x [<!ENTITY a "a">]><stream>&a;</stream>'),
        answered(summary(to_install=[solvable("a;b", "1")])), answered(summary(to_install=[solvable("a", "$(x)")])),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_zypper_s_is_refused(lines: list[str]) -> None:
    with pytest.raises(ParseError):
        zypper.parse_simulation(lines)


versions = st.from_regex(r"[0-9][0-9.]{0,8}-[0-9]{1,3}", fullmatch=True)


@given(st.dictionaries(names, st.tuples(st.none() | versions, versions), max_size=8), st.dictionaries(names, versions))
def test_whatever_would_come_and_go_is_read_back(
    comes: dict[str, tuple[str | None, str]], goes: dict[str, str]
) -> None:
    upgrades = [solvable(name, new, **{"edition-old": old}) for name, (old, new) in comes.items() if old]
    installs = [solvable(name, new) for name, (old, new) in comes.items() if not old]
    removes = [solvable(name, old) for name, old in goes.items()]
    read = zypper.parse_simulation(answered(summary(to_upgrade=upgrades, to_install=installs, to_remove=removes)))
    assert {name: (old, new) for name, old, new in read.comes} == comes
    assert dict(read.goes) == goes
    assert read.errors == ()


@given(st.binary(max_size=300), st.integers(0, 255))
def test_whatever_arrives_is_an_answer_or_refused_and_nothing_else(text: bytes, status: int) -> None:
    lines = [f"status={status}", f"xml={base64.b64encode(b'<stream>' + text + b'</stream>').decode()}"]
    for parse in (zypper.parse_simulation, zypper.parse_offers):
        with suppress(ParseError):
            parse(lines)


def simulated(*comes: tuple[str, str | None, str], goes: tuple[tuple[str, str], ...] = ()) -> Simulation:
    return Simulation(comes, goes, manager="zypper", trial="zypper install --dry-run")


def test_the_gate_refuses_another_branch_and_lets_a_built_module_go_for_dkms_and_g06_for_g07() -> None:
    wanted = {"nvidia-open": "580.95.05-1"}
    kmp = ("nvidia-open-driver-G06-signed-cuda-kmp-default", "580.82.07_k6.4.0-1")
    comes = (("nvidia-open", None, "580.95.05-1"), ("nvidia-open-driver-G06", None, "580.95.05-1"))
    assert gate(simulated(*comes, goes=(kmp,)), wanted, "580", False) is None
    refused = gate(simulated(*comes, goes=(("curl", "1-1"),)), wanted, "580", False)
    assert refused is not None and "remove curl" in refused[0]
    refused = gate(simulated(comes[0], ("nvidia-compute-G07", None, "590.48.01-1")), wanted, "580", True)
    assert refused is not None and "branch 580" in refused[0]
    newer = (("nvidia-open", "580.95.05-1", "590.48.01-1"), ("nvidia-compute-G07", None, "590.48.01-1"))
    change = simulated(*newer, goes=(("nvidia-compute-G06", "580.95.05-1"),))
    assert gate(change, {"nvidia-open": "590.48.01-1"}, "590", True) is None
    assert gate(change, {"nvidia-open": "590.48.01-1"}, "590", False) is not None


def test_a_library_of_another_version_of_the_branch_is_refused_and_another_branch_left_to_the_gate() -> None:
    asked, mixed = ("nvidia-open", None, "580.82.07-1"), ("nvidia-compute-G06", None, "580.95.05-1")
    (error,) = zypper.only_at("580.82.07", simulated(asked, mixed)).errors
    assert "nvidia-compute-G06 580.95.05-1" in error
    for fine in (("nvidia-compute-G06", None, "580.82.07-1"), ("nvidia-compute-G06", None, "595.58.03-1"),
                 ("nvlsm", None, "2025.06.6-1"), ("nvidia-container-toolkit", None, "580.95-1")):  # fmt: skip
        assert zypper.only_at("580.82.07", simulated(asked, fine)).errors == ()


class NewestFirst(Host):
    """A node whose zypper takes of three packages, each of which needs the next at its version or newer, the newest."""

    CHAIN = ("nvidia-open-driver-G06", "nvidia-compute-G06", "libnvidia-ml")
    OFFERED = ("595.71.05-1", "580.173.02-1", "580.95.05-1")

    def get_fact(self, fact: type, **asked: object) -> object:
        if fact is ZypperOffers:
            return Offers(tuple((name, version) for name in self.CHAIN for version in self.OFFERED))
        coming = asked["coming"]
        assert isinstance(coming, dict)
        # What is asked for counts; of the rest the first that is new enough, which is the newest.
        return simulated(*((name, None, coming.get(name, self.OFFERED[0])) for name in self.CHAIN))


def test_a_node_that_came_by_the_metapackage_sees_no_change() -> None:
    wanted = package_set(settings_from({"driver": {"branch": "580"}}).driver, SOURCE, "open", [], Boot("x"))
    there = {name: "580.95.05-1" for name in (*wanted, "nvidia-open")}
    state = zypper.LockedPackages(tuple(sorted(there.items())), ())
    host = Host({DriverPackagesFact: state, TransactionJournal: Journal(None, None, None, False)})
    asked = {"branch": "580", "branch_change": False, "rollback": "required", "kernel": None, "source": SOURCE}
    ctx_host.set(host)
    try:
        assert commands(driver_packages.installed, host, desired=wanted, **asked) == []
    finally:
        ctx_host.reset()
    assert host.noops == [f"installed: {', '.join(f'{name} 580.95.05-1' for name in wanted)}"], host.refusals


def test_all_that_would_come_newer_is_named_at_the_version_that_is_asked_for() -> None:
    change = DriverChange({"nvidia-open-driver-G06": "580.95.05-1"}, (), "580.95.05")
    ctx_host.set(NewestFirst({}))
    try:
        assert ZYPPER.bound(change).coming == dict.fromkeys(NewestFirst.CHAIN, "580.95.05-1")
        # What the repositories do not have at that version stays for the gate to judge.
        absent = replace(change, upstream="580.99.01")
        assert ZYPPER.bound(absent) == absent
    finally:
        ctx_host.reset()
    for other in (FAMILIES["dnf"], FAMILIES["apt"], FAMILIES["pacman"]):
        assert other.bound(change) == change


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("imported", "other", "gone"),
    [(True, False, True), (False, False, False), (True, True, False)],
    ids=["ours alone", "somebody else's", "needed by another repository"],
)
def test_a_key_leaves_rpm_s_database_with_the_last_repository_that_brought_it(
    tmp_path: Path, imported: bool, other: bool, gone: bool
) -> None:
    for folder in ("etc/pki/rpm-gpg", "etc/zypp/repos.d", "var/lib/gpunode/zypper", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    for label in ("cuda", *(["toolkit"] if other else [])):
        (tmp_path / f"etc/pki/rpm-gpg/gpunode-{label}.asc").touch()
        (tmp_path / f"etc/zypp/repos.d/gpunode-{label}.repo").touch()
    # Not of a repository of ours, whatever its name.
    (tmp_path / "etc/pki/rpm-gpg/gpunode-lab.asc").touch()
    if imported:
        (tmp_path / "var/lib/gpunode/zypper/cuda.imported").write_text("d42d0685\n")
    programs = {
        "gpg": f"printf 'pub:\\nfpr:::::::::{'A' * 32}D42D0685:\\n'",
        "rpm": 'case "$1" in -q) printf "gpg-pubkey-d42d0685-1\\ngpg-pubkey-0-1\\n";; '
        f'*) echo "$*" > {tmp_path}/told;; esac',
    }
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    text = REPOSITORIES.FORGET.replace("/etc/", f"{tmp_path}/etc/").replace("/var/", f"{tmp_path}/var/")
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "name": "cuda", "key": "unused"}
    subprocess.run(["sh", "-euc", text], env=path, check=True)
    told = (tmp_path / "told").read_text() if (tmp_path / "told").exists() else ""
    assert told == ("-e gpg-pubkey-d42d0685-1\n" if gone else "")
    assert (tmp_path / "var/lib/gpunode/zypper/toolkit.imported").exists() == (imported and other)
    assert not (tmp_path / "var/lib/gpunode/zypper/cuda.imported").exists()


# --- exit codes, and what zypper says --------------------------------------------------------------------------------


@pytest.mark.simulated
@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102, 103, 104, 105, 106, 107, 255])
def test_what_only_tells_of_more_to_do_is_a_success_and_all_else_a_failure(tmp_path: Path, code: int) -> None:
    (tmp_path / "zypper").write_text(f"#!/bin/sh\nexit {code}\n")
    (tmp_path / "zypper").chmod(0o755)
    done = subprocess.run(
        ["sh", "-euc", f"{ZYPP}\nzypp install x; echo done"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout == "done\n") == (code in zypper_errors.GOOD)
    if code not in zypper_errors.GOOD:
        (told,) = zypper_errors.explained(done.stderr.splitlines())
        assert ("it was killed (signal 127)" if code == 255 else f"it exits {code} (") in told.cause
        assert told.remedy


@pytest.mark.parametrize(
    ("line", "cause", "remedy"),
    [
        ("System management is locked by the application with pid 773 (packagekitd).",
         "packagekitd (process 773) holds zypper's lock", "ZYPP_LOCK_TIMEOUT"),
        (" - Signature verification failed for repomd.xml", "signed by a key that the node does not trust",
         "do not trust that key blindly"),
        ("gpunode: signed by another key than the pinned one: the repository cuda; nothing was installed",
         "signed by a key", "key_fingerprint"),
        ("Warning: Digest verification failed for file 'x-1.x86_64.rpm'", "x-1.x86_64.rpm is not the file", "do not"),
        ("File './x-1.rpm' not found on medium 'https://mirror/cuda'", "x-1.rpm is gone from https://mirror/cuda",
         "synchronized"),
        ("Error message: Failed to connect to 127.0.0.1 port 1 after 0 ms: Couldn't connect to server",
         "cannot be reached", "proxy"),
        ("Problem: nothing provides dkms needed by nvidia-open-driver-G06-580.95.05-1.x86_64",
         "package nvidia-open-driver-G06-580.95.05-1.x86_64 needs dkms", "Development Tools"),
        ("warning: %post(failing-1-1.noarch) scriptlet failed, exit status 3",
         "the script %post of package failing-1-1.noarch failed (exit status 3)", "make.log"),
        ("No provider of 'nvidia-open=999' found.", "have no nvidia-open=999", "SUSEConnect"),
    ],
)  # fmt: skip
def test_what_zypper_says_is_told_with_cause_and_remedy(line: str, cause: str, remedy: str) -> None:
    (told,) = zypper_errors.explained(["x", line, "gpunode: zypper exits 4"])
    assert cause in told.cause
    assert remedy in told.remedy


def test_the_same_words_of_dnf_s_are_not_told_as_zypper_s() -> None:
    said = "  - nothing provides dkms needed by kmod-nvidia-open-dkms-3:580.95.05-1.el9.noarch"
    assert zypper_errors.explained([said, "Error: Transaction failed"]) == ()
    assert len(zypper_errors.explained([said, "gpunode: zypper exits 4"])) == 1


@given(st.lists(st.text(max_size=200), max_size=8))
def test_words_that_nobody_knows_are_no_error(lines: list[str]) -> None:
    assert len(zypper_errors.explained(lines)) <= 3


def test_the_family_says_what_it_keeps_and_needs() -> None:
    assert (ZYPPER.saved, ZYPPER.holding_tools, "gpg2" in ZYPPER.tools) == ("rpms", (), True)
    # Both go to one folder on the way: their names must differ.
    assert len({path.rpartition("/")[2] for path in ZYPPER.holding}) == 2


@pytest.mark.simulated
def test_of_what_a_killed_zypper_left_twice_the_one_that_came_last_stays(tmp_path: Path, host: Host) -> None:
    listed = ("100 nvidia-open nvidia-open-580.82.07-1.x86_64", "200 nvidia-open nvidia-open-580.95.05-1.x86_64",
              "50 kernel-default kernel-default-6.4.0-1.x86_64", "60 kernel-default kernel-default-6.4.0-2.x86_64",
              "70 nvidia-driver-G06-kmp-default a", "80 nvidia-driver-G06-kmp-default b",
              "90 nvidia-compute-G06 nvidia-compute-G06-580.95.05-1.x86_64")  # fmt: skip
    lines = "".join(f"echo '{line}'\n" for line in listed)
    (tmp_path / "rpm").write_text(f'#!/bin/sh\ncase "$1" in -qa) {lines} ;; *) echo "$*" >> {tmp_path}/told;; esac\n')
    (tmp_path / "zypper").write_text("#!/bin/sh\n")
    for name in ("rpm", "zypper"):
        (tmp_path / name).chmod(0o755)
    (command,) = ZYPPER.finish()
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", command.get_raw_value()], env=path, check=True)
    assert (tmp_path / "told").read_text() == "-e --nodeps nvidia-open-580.82.07-1.x86_64\n"


# --- which kernel boots next -----------------------------------------------------------------------------------------

# In the shape that grub2-mkconfig gives it on SLES: the root on btrfs, older kernels in a submenu.
GRUB = """
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
else
   set default="${saved_entry}"
fi
menuentry 'SLES 15-SP6'  --class sles --class os $menuentry_id_option 'gnulinux-simple-1' {
	linux	/boot/vmlinuz-6.4.0-150600.23.65-default root=UUID=1 ${extra_cmdline} quiet
	initrd	/boot/initrd-6.4.0-150600.23.65-default
}
submenu 'Advanced options for SLES 15-SP6' --hotkey=1 $menuentry_id_option 'gnulinux-advanced-1' {
	menuentry 'SLES 15-SP6, with Linux 6.4.0-150600.21-default' --hotkey=2 $menuentry_id_option 'gnulinux-21' {
		linux	/boot/vmlinuz-6.4.0-150600.21-default root=UUID=1
	}
}
"""


@pytest.mark.parametrize(
    ("environment", "release"),
    [
        ("", "6.4.0-150600.23.65-default"),
        ("saved_entry=SLES 15-SP6", "6.4.0-150600.23.65-default"),
        ("saved_entry=Advanced options for SLES 15-SP6>SLES 15-SP6, with Linux 6.4.0-150600.21-default",
         "6.4.0-150600.21-default"),
        ("saved_entry=SLES 15-SP6\nnext_entry=gnulinux-advanced-1>gnulinux-21", "6.4.0-150600.21-default"),
    ],
)  # fmt: skip
def test_grub_s_choice_is_read_from_suse_s_configuration(environment: str, release: str) -> None:
    assert grub_next(GRUB, environment) == release


@pytest.mark.real
@pytest.mark.parametrize("cut_off", [False, True])
def test_locks_are_lifted_for_the_change_alone_and_a_lifted_lock_is_nobody_s_loss(
    tmp_path: Path, cut_off: bool
) -> None:
    """zypper is SIMULATED: it looks at the locks, and is killed where that is the case."""
    locks, checkpoint = tmp_path / "locks", tmp_path / "checkpoint"
    locks.write_text("\nsolvable_name: nvidia-open\n\n")
    checkpoint.mkdir()
    text = f"""
umask 077; checkpoint={checkpoint}
{KEEPING}
{ZYPPER.functions.replace(LOCKS, str(locks))}
driver_packages() {{ :; }}
unlocking() {{ echo lifted; }}
zypper_at_work() {{ cp {locks} {tmp_path}/seen; {"kill -9 $$" if cut_off else ":"}; }}
if [ "$1" = undo ]; then put_files_back; exit; fi
keep_file {locks} {digest_of_text(locks.read_text())}
without_locks nvidia-open zypper_at_work
"""

    def run(verb: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script(text), "sh", verb], capture_output=True, text=True, check=False, timeout=30
        )

    done = run("change")
    assert (done.returncode == 0) != cut_off, done.stderr
    assert (tmp_path / "seen").read_text() == "lifted\n"
    assert (locks.read_text() == "lifted\n") == cut_off
    done = run("undo")
    assert (done.returncode, done.stderr, locks.read_text()) == (0, "", "\nsolvable_name: nvidia-open\n\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "locks", "seen"]
