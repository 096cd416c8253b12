"""dnf and rpm: what they are asked and told on a node. tests/cases has what is read of them and written for them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.probe import shell_text
from gpunode.components.runtimes.toolkit.state import parse_toolkit
from gpunode.facts.driver import DriverPackages as DriverPackagesFact
from gpunode.facts.families import by_manager
from gpunode.facts.families.dnf import DRIVER_PACKAGES, DnfRepository, DnfSimulation
from gpunode.node.preflight import refusals
from gpunode.operations import driver_packages, repositories
from gpunode.operations.driver_transaction import driver_transaction
from gpunode.operations.families import DNF, FAMILIES
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.simulation import Simulation, gate
from gpunode.packages.families import dnf, dnf5, rpm, zypper
from gpunode.settings import settings_from
from tests.support.dnf import ASKED, KEY, TEXT, TRUSTED
from tests.support.messages import unnamed
from tests.support.programs import programs, sh
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

EVR = "3:580.95.05-1.el9"
SET = {"nvidia-open": EVR, "libnvidia-ml": EVR, "nvidia-fabricmanager": "580.95.05-1"}
THEIRS = "# somebody's\ncurl-0:1.1-1.el9.*\n"
OURS = dnf.locked(THEIRS, SET)


def state(packages: Mapping[str, str] = SET, held: tuple[str, ...] = (), locklist: str | None = THEIRS) -> Any:
    return dnf.LockedPackages(tuple(sorted(packages.items())), held, locklist=locklist)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_keys_and_addresses_are_the_rpm_repositories_where_nothing_is_set() -> None:
    asked = settings_from({"repositories": {"cuda": {"url": "https://mirror/cuda"}}}).repositories
    cuda = asked.on("cuda", "dnf")
    assert (cuda.url, cuda.key_fingerprint) == ("https://mirror/cuda", "610C7B14E068A878070DA4E99CD0A493D42D0685")
    assert asked.on("cuda", "zypper").key_fingerprint == cuda.key_fingerprint
    assert asked.on("cuda", "apt").key_fingerprint == "EB693B3035CD5710E231E123A4B469963BF863CC"
    assert {asked.on("toolkit", family).url.partition("/rpm")[2] for family in ("dnf", "zypper")} == {"/$basearch"}
    assert asked.on("docker", "dnf").key_fingerprint != asked.on("docker", "apt").key_fingerprint
    mine = settings_from({"repositories": {"docker": {"key_fingerprint": "A" * 40}}}).repositories
    assert mine.on("docker", "dnf").key_fingerprint == "A" * 40


# --- which manager, which packages are held --------------------------------------------------------------------------


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("os_release", "dpkg", "arch", "manager"),
    [
        # dpkg as a tool on RHEL: its list is there, and empty; and rpm as a tool on Arch and on Debian.
        ('ID="rocky"\nID_LIKE="rhel fedora"\nNAME="not suse"\n', "", False, "dnf"),
        ('ID="rocky"\n', "", True, "pacman"),
        ("ID=arch\n", "Package: dpkg\n", True, "apt"),
        ("ID=fedora\n", None, False, "dnf5"),
        ('ID="fedora"\n', None, False, "dnf5"),
        ('ID="sles"\nID_LIKE="suse"\n', None, False, "zypper"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', None, False, "zypper"),
    ],
)
def test_the_manager_that_is_asked_keeps_the_node_s_packages_whatever_else_is_installed(
    tmp_path: Path, os_release: str, dpkg: str | None, arch: bool, manager: str
) -> None:
    (tmp_path / "os-release").write_text(os_release)
    for name, text in (("dpkg/status", dpkg), ("pacman/local/ALPM_DB_VERSION", "9\n" if arch else None)):
        (tmp_path / name).parent.mkdir(parents=True)
        if text is not None:
            (tmp_path / name).write_text(text)
    programs(tmp_path, dict.fromkeys(("rpm", "zypper", "dnf", "dnf5"), ""))
    text = by_manager(**{name: f"echo {name}" for name in ("apt", "dnf", "dnf5", "zypper", "pacman")})
    text = text.replace("/var/lib", str(tmp_path)).replace("/etc/os-release", str(tmp_path / "os-release"))
    done = sh(tmp_path, text)
    assert (done.stdout, done.stderr) == (f"{manager}\n", "")


def versionlock(folder: Path, text: str, plugin: bool, enabled: str = "1", entry: str = "") -> str:
    """Return a probe's text for a node with versionlock's files below a folder."""
    python, etc = folder / "usr/lib/python3.9/site-packages/dnf-plugins", folder / "etc/dnf/plugins"
    python.mkdir(parents=True)
    etc.mkdir(parents=True)
    if plugin:
        (python / "versionlock.py").touch()
    (etc / "versionlock.conf").write_text(f"[main]\nenabled = {enabled}\n")
    (etc / "versionlock.list").write_text(f"{entry}\n")
    return text.replace("/usr/lib", f"{folder}/usr/lib").replace("/etc/dnf", f"{folder}/etc/dnf")


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
    programs(tmp_path, {"rpm": "cat <<END\n" + "\n".join(RPM) + "\nEND"})
    done = sh(tmp_path, f"{versionlock(tmp_path, DRIVER_PACKAGES, plugin, entry=entry)}\nof_driver")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(name for _, name, _ in lines) == ["libnvidia-ml", "nvidia-open"], done.stderr
    assert sorted(name for want, name, _ in lines if want == "hold") == held


@pytest.mark.parametrize(("enabled", "said"), [("0", "off"), ("1", "yes"), (None, None)])
def test_the_toolkit_s_probe_tells_a_plugin_that_is_off_from_one_that_is_not_there(
    tmp_path: Path, enabled: str | None, said: str | None
) -> None:
    text, mark = str(shell_text("components/runtimes/toolkit/state")), "set -f; IFS=$NL\nfor line in $PACKAGES"
    probe, _, _ = text.partition(mark)
    text = versionlock(tmp_path, f"{DRIVER_PACKAGES}\n{probe}", enabled is not None, enabled or "1")
    done = sh(tmp_path, f"MANAGER=dnf\n{text}")
    assert parse_toolkit(done.stdout.splitlines()).locking_off == (said == "off")
    assert done.stdout.splitlines()[:1] == ([f"locking={said}"] if said else [])


@pytest.mark.parametrize(
    ("driver", "toolkit", "off", "named"),
    [
        (True, True, True, ["driver.hold and toolkit.hold"]),
        (False, True, True, ["toolkit.hold"]),
        (False, False, True, None),
        (True, True, False, None),
    ],
)
def test_a_hold_by_a_plugin_that_is_switched_off_is_refused_before_the_node_is_touched(
    driver: bool, toolkit: bool, off: bool, named: list[str] | None
) -> None:
    asked = settings_from({"driver": {"version": "580.95.05", "hold": driver}, "toolkit": {"hold": toolkit}})
    system = replace(GOOD.operating_system, id="rocky", version_id="9.5")
    node = replace(GOOD, operating_system=system, toolkit=replace(GOOD.toolkit, locking_off=off))
    found = [item for item in refusals(asked, node) if "versionlock" in item.reason]
    assert [unnamed(f"{item.reason} {item.remedy}", *(named or ()), "enabled = 1") for item in found] == (
        [[]] if named else []
    )
    assert all(driver or "driver.hold" not in item.reason for item in found)


# --- what dnf would do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parse", [dnf.parse_simulation, dnf5.parse_simulation])
def test_a_silence_is_no_consent_but_for_what_is_there(parse: Any) -> None:
    there = ["installed=curl 1:2.0-1", "asked=curl 1:2.0-1"]
    table = ["line=Upgrading:", f"line= nvidia-open x86_64 {EVR} cuda 5.8 k", f"asked=nvidia-open {EVR}"]
    assert parse(["status=0", *there, *table]).errors == ()
    silent = parse(["status=0", *there, *table, "line=terminated", "asked=nvidia-driver-cuda 3:1-1"]).errors
    assert unnamed(silent[0], "nvidia-driver-cuda") == [] and "terminated" in silent[1:]
    assert unnamed(silent[0], "curl", "nvidia-open") == ["curl", "nvidia-open"]


def simulated(*comes: tuple[str, str | None, str], goes: str = "", **more: Any) -> Simulation:
    return Simulation(comes, ((goes, "1:2.0-1"),) if goes else (), manager="dnf", trial="dnf --assumeno", **more)


OTHER_BRANCH = ("nvidia-open", "3:570.124.06-1.el9", EVR)


@pytest.mark.parametrize(
    ("simulation", "allowed", "desired", "named"),
    [
        (simulated(OTHER_BRANCH), True, EVR, None),
        (simulated(OTHER_BRANCH), False, EVR, ("3:570.124.06-1.el9", EVR, "driver.allow_branch_change")),
        (simulated(OTHER_BRANCH), True, "3:580.82.07-1.el9", (EVR, "not at 3:580.82.07-1.el9", "dnf")),
        (simulated(OTHER_BRANCH, goes="something-else"), True, EVR, ("remove something-else",)),
        (simulated(OTHER_BRANCH, goes="libnvidia-cfg"), True, EVR, ("remove libnvidia-cfg",)),
        # A library that a package of the new driver replaces may go.
        (simulated(OTHER_BRANCH, goes="libnvidia-cfg", replaced=("libnvidia-cfg",)), True, EVR, None),
        (simulated(errors=("x",)), True, EVR, ("dnf --assumeno",)),
        (simulated(errors=("x",), remedy="EPEL"), True, EVR, ("EPEL",)),
    ],
)
def test_the_gate_refuses_what_dnf_would_remove_another_branch_and_another_version(
    simulation: Simulation, allowed: bool, desired: str, named: tuple[str, ...] | None
) -> None:
    found = gate(simulation, {"nvidia-open": desired}, "580", allowed)
    assert (found is None) == (named is None)
    assert unnamed(" ".join(found or ()), *(named or ())) == []


@pytest.mark.parametrize(("lacking", "known"), [("dkms", True), ("dkmsx", False)])
def test_a_node_without_epel_is_told_where_dkms_is(lacking: str, known: bool) -> None:
    lines = [" Problem: package nvidia-open requires kmod", f"  - nothing provides {lacking} needed by kmod-nvidia"]
    read = dnf.parse_simulation(["status=1", *(f"line={line}" for line in lines)])
    assert (read.remedy is not None) == known
    assert not known or unnamed(read.remedy, "dkms", "EPEL") == []


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


def asked_of_dnf(folder: Path, script: str, about: str) -> tuple[str, set[str]]:
    """Return the one line about something that a dnf which only has OFFERED is asked, and what it is to leave out."""
    offered = "\n".join(OFFERED)
    dnf = f'echo "$*" >> {folder}/asked\ncase "$*" in *repoquery*) cat <<END\n{offered}\nEND\nesac'
    programs(folder, {"dnf": dnf, "unshare": "exit 1", "rpm": "true"})
    sh(folder, script).check_returncode()
    (said,) = [line for line in (folder / "asked").read_text().splitlines() if about in line]
    option = "--setopt=*.excludepkgs="
    words = [word.removeprefix(option) for word in said.split() if word.startswith(option)]
    return said, {each for word in words for each in word.split(",")}


@pytest.mark.simulated
@pytest.mark.parametrize("upstream", ["580.95.05", ""])
def test_what_dnf_would_do_is_asked_without_the_driver_s_other_versions(tmp_path: Path, upstream: str) -> None:
    probe = str(DnfSimulation().command({"nvidia-open": "3:580.95.05-1.el10"}, [], upstream=upstream))
    assert asked_of_dnf(tmp_path, probe, "--assumeno")[1] == (LEFT_OUT if upstream else set())


@pytest.mark.simulated
def test_the_driver_s_packages_come_with_its_other_versions_out_of_dnf_s_sight(tmp_path: Path) -> None:
    asked = "own=x; foreign=y; upstream=580.95.05; arguments='nvidia-open=3:580.95.05-1.el10'; names=nvidia-open"
    said, left_out = asked_of_dnf(tmp_path, f"set -eu; {asked}\n{DNF.functions}\ninstall_driver", " install ")
    assert left_out == LEFT_OUT
    assert said.endswith("nvidia-open-3:580.95.05-1.el10")


@pytest.mark.simulated
@pytest.mark.parametrize("does", [True, False], ids=["dnf does it", "dnf's shell refuses and says nothing"])
def test_what_goes_and_what_comes_are_one_transaction_that_is_looked_at_afterwards(tmp_path: Path, does: bool) -> None:
    """Two names of fabric manager hold the same files: rpm takes neither before the other has gone."""
    bodies = {
        "dnf": f'for file; do :; done; case "$*" in *" shell "*) cat "$file" > {tmp_path}/asked\n'
        f"{f'touch {tmp_path}/done' if does else 'true'};; *) exit 1;; esac",
        "rpm": f"there=no; [ ! -e {tmp_path}/done ] || there=yes\n"
        'case "$* $there" in *fabric-manager*no) echo 570.172.08-1;; *fabricmanager*yes) echo 580.95.05-1;; '
        "*) exit 1; esac",
    }
    programs(tmp_path, bodies)
    asked = "own=x; foreign=y; upstream=580.95.05; names=x"
    asked += "; arguments='nvidia-fabricmanager=580.95.05-1 nvidia-fabric-manager-'"
    done = sh(tmp_path, f"{asked}\n{DNF.functions}\ninstall_driver")
    assert (tmp_path / "asked").read_text().splitlines() == [
        "install nvidia-fabricmanager-0:580.95.05-1", "remove nvidia-fabric-manager", "run",
    ]  # fmt: skip
    assert (done.returncode == 0) == does


@pytest.mark.parametrize("system", ["rocky", "amzn", "sles"])
def test_what_nothing_binds_to_the_driver_moves_with_it(
    system: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-modprobe is required at no version: an upgrade would leave it behind, at the old driver's."""
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
    commands(
        driver_packages.installed, host, desired={"nvidia-open": "580.95.05"}, branch="580", branch_change=False,
        rollback="required", kernel=None, source=source,
    )  # fmt: skip
    (coming,) = told or pytest.fail(f"nothing came: {host.refusals}")
    assert coming["nvidia-modprobe"] == newer
    # Which kernel module goes for another the package manager finds out.
    assert source.family != "dnf" or "kmod-nvidia-open-dkms" not in coming


# --- repositories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "signed", "proxy", "lines"),
    [
        (dnf, True, None, {"gpgcheck=1", "repo_gpgcheck=1", "gpgkey=file:///key", "skip_if_unavailable=0"}),
        (dnf, False, "http://proxy:1", {"gpgcheck=0", "repo_gpgcheck=1", "proxy=http://proxy:1"}),
        (zypper, True, None, {"gpgcheck=1", "repo_gpgcheck=1", "pkg_gpgcheck=1", "gpgkey=file:///key"}),
        (zypper, False, None, {"gpgcheck=1", "repo_gpgcheck=1", "pkg_gpgcheck=0"}),
    ],
)
def test_a_repository_checks_metadata_always_and_packages_where_they_are_signed(
    family: Any, signed: bool, proxy: str | None, lines: set[str]
) -> None:
    text = family.repository_text("toolkit", "https://host/$(ARCH)", "/key", signed, proxy)
    assert {*lines, "[gpunode-toolkit]", "baseurl=https://host/$basearch", "enabled=1"} <= set(text.splitlines())


@pytest.mark.parametrize(
    "stray",
    [
        {"fingerprints": ("B" * 40,)}, {"fingerprints": (KEY, "B" * 40)}, {"permissions": "666 root:root"},
        {"source": TEXT.replace("gpgcheck=1", "gpgcheck=0")}, {"refreshed": "older"}, {},
    ],
)  # fmt: skip
def test_a_trusted_repository_is_left_alone_and_each_deviation_mended(stray: dict[str, Any], host: Host) -> None:
    host.readings[DnfRepository] = replace(TRUSTED, **stray)
    assert len(commands(repositories.DNF.trusted, host, **ASKED)) == bool(stray)


def test_a_second_entry_for_the_same_repository_is_switched_off_and_no_other(host: Host) -> None:
    path = "/etc/yum.repos.d/x.repo"
    other = "[other]\nname=x\nbaseurl=http://host/cuda/\nenabled=1\ngpgcheck=0\n"
    other += "[kept]\nbaseurl=https://elsewhere\nenabled=1\n"
    (step,) = rpm.second_entries("https://host/cuda", [(path, other)])
    assert step.text.splitlines() == [
        "[other]", "enabled=0", "name=x", "baseurl=http://host/cuda/", "gpgcheck=0",
        "[kept]", "baseurl=https://elsewhere", "enabled=1",
    ]  # fmt: skip
    assert rpm.second_entries("https://host/cuda", [(path, step.text)]) == ()
    host.readings[DnfRepository] = replace(TRUSTED, others=((path, other),))
    assert len(commands(repositories.DNF.trusted, host, **ASKED)) == 1
    host.readings[DnfRepository] = replace(TRUSTED, others=((path, "baseurl=host/cuda\n"),))
    assert commands(repositories.DNF.trusted, host, **ASKED) == []
    assert path in host.refusals[0]


def test_docker_s_repository_is_below_its_address(host: Host) -> None:
    host.readings[DnfRepository] = TRUSTED
    (command,) = commands(repositories.DNF.trusted, host, **ASKED, suite="9", components="stable")
    assert "baseurl=https://host/cuda/9/$basearch/stable" in command


# --- holds -----------------------------------------------------------------------------------------------------------


def held(host: Host, state: Any, hold: bool = True, kernel: bool = False) -> list[str]:
    host.readings[DriverPackagesFact] = state
    return commands(driver_packages.held, host, family="dnf", hold=hold, kernel=kernel)


def test_the_whole_set_is_locked_and_the_second_time_there_is_nothing_to_do(host: Host) -> None:
    write, note = held(host, state())
    assert encoded(OURS) in write and f"gpunode {dnf.LOCKLIST}" in note
    there = state(held=tuple(SET), locklist=OURS)
    assert held(host, there) == []
    write, note = held(host, there, hold=False)
    assert encoded(THEIRS) in write


def test_each_of_several_kernels_that_are_there_is_locked(host: Host) -> None:
    lines = ["rpm=0", "locking=yes", f"package=install nvidia-open {EVR}"]
    read = dnf.parse_driver_packages([*lines, *(f"package=install kernel-core 5.14.0-{n}.el9" for n in (362, 427))])
    wanted = dnf.locked("", read.to_hold(True), every=read.every)
    assert wanted.count("\nkernel-core-") == 2
    write, _ = held(host, read, kernel=True)
    assert encoded(wanted) in write
    assert held(host, replace(read, locklist=wanted), kernel=True) == []
    # Kernels are not held unasked.
    assert "kernel" not in dnf.locked("", read.to_hold(False), every=read.every)


def test_without_the_plugin_a_hold_is_refused_with_the_remedy_and_no_hold_needs_none(host: Host) -> None:
    assert held(host, state(locklist=None), hold=False) == [] and host.refusals == []
    assert held(host, state(locklist=None)) == []
    assert unnamed(host.refusals[0], "python3-dnf-plugin-versionlock") == []


def test_every_manager_gives_each_function_that_the_transaction_calls(tmp_path: Path) -> None:
    called = (
        "unlocked", "driver_packages", "is_installed", "stated", "saved_file", "cached_file", "fetch", "save_choices",
        "restore_choices", "release", "keep", "install_driver", "remove_driver", "forget",
        "finish_half", "finish_first", "put_back",
    )  # fmt: skip
    for family in FAMILIES.values():
        assert [name for name in called if f"\n{name}() {{" not in family.functions] == [], family.name
        script = f"set -n\n{driver_transaction(family).functions}"
        assert sh(tmp_path, script).stderr == ""
    assert DNF.saved == "rpms"
