"""The driver's packages: which a node shall have, at which versions, and what may not happen on the way there."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import FindingClass
from gpunode.base.reading import ParseError
from gpunode.base.template import rendered
from gpunode.components.driver import DriverState, Service, parse_driver
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver_packages import DriverOffers, DriverPackages, DriverSimulation
from gpunode.facts.transaction import TransactionJournal
from gpunode.facts.unit import Unit as UnitFact
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import driver, driver_packages
from gpunode.operations.families import FAMILIES
from gpunode.operations.transaction import target_digest
from gpunode.packages.apt_errors import explained
from gpunode.packages.driver_packages import (
    FOREIGN,
    OWN,
    NotInstallable,
    Offers,
    Simulation,
    belongs,
    brings_kernels,
    chosen,
    driver_branch,
    gate,
    leftovers,
    package_set,
    parse_driver_packages,
    parse_offers,
    parse_simulation,
)
from gpunode.packages.driver_packages import DriverPackages as State
from gpunode.settings import SettingsError, settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.pci import PciGpus
from gpunode.system.transaction import Journal
from gpunode.system.unit import Unit
from tests.support.driver_packages import ASK, CUDA, INSTALLED, NO_DRIVER, OFFERED, UPGRADE
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD, H100, SETTINGS

pytestmark = pytest.mark.pure

DRIVERS = (
    "nvidia-open", "cuda-drivers", "cuda-drivers-570", "nvidia-kernel-open-dkms", "nvidia-fabricmanager-570",
    "libcuda1", "nvidia-driver-pinning-580.95.05", "nvidia-persistenced", "libnvidia-ml1", "libnvidia-compute-580",
    "nvlsm", "linux-modules-nvidia-580-server-open-generic", "firmware-nvidia-gsp", "nvidia-cuda-mps",
)  # fmt: skip
OTHERS = (
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools",
    "nvidia-docker2", "nvidia-cuda-toolkit", "cuda-toolkit-12-9", "containerd", "linux-image-amd64", "nvidia-fs-dkms",
)  # fmt: skip


@pytest.mark.parametrize("name", DRIVERS)
def test_a_package_of_the_driver_is_known_by_its_name(name: str) -> None:
    assert belongs(name)


@pytest.mark.parametrize("name", OTHERS)
def test_container_toolkit_and_cuda_are_not_taken_for_the_driver(name: str) -> None:
    assert not belongs(name)


@pytest.mark.real
@pytest.mark.skipif(shutil.which("awk") is None, reason="needs awk")
def test_awk_on_the_node_and_python_here_draw_the_same_line() -> None:
    listed = "".join(f"{name} 1\n" for name in (*DRIVERS, *OTHERS))
    done = subprocess.run(
        ["awk", "-v", f"own={OWN}", "-v", f"foreign={FOREIGN}", "$1 ~ own && $1 !~ foreign {print $1}"],
        input=listed, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert tuple(done.stdout.split()) == DRIVERS


@pytest.mark.parametrize(
    ("name", "brings"),
    [
        ("linux-image-amd64", True), ("linux-headers-cloud-amd64", True), ("linux-generic", True),
        ("linux-image-generic-hwe-22.04", True), ("linux-aws", True), ("linux-headers-rt-arm64", True),
        ("linux-image-6.1.0-40-amd64", False), ("linux-libc-dev", False), ("linux-base", False),
    ],
)  # fmt: skip
def test_a_package_through_which_kernels_come_is_told_from_one_kernel(name: str, brings: bool) -> None:
    assert brings_kernels(name) is brings


@pytest.mark.parametrize(
    ("version", "branch"),
    [("580.95.05-1", "580"), ("535.261.03-1~deb12u1", "535"), ("1:570.172.08-0ubuntu1", "570"), ("20220217+3", None),
     ("1.17.8-1", None), ("580-1", None)],
)  # fmt: skip
def test_the_branch_shows_in_a_driver_s_version_alone(version: str, branch: str | None) -> None:
    assert driver_branch(version) == branch


NO_KERNEL = Boot("6.1.0-40-amd64")


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"version": "575.57.08"}, "nvidia-fabricmanager-575"),
        ({"branch": "570"}, "nvidia-fabricmanager-570"),
        ({"branch": "580"}, "nvidia-fabricmanager"),
        ({"version": "595.58.03"}, "nvidia-fabricmanager"),
    ],
)
def test_fabric_manager_comes_under_its_branch_s_name_where_there_are_nvswitches(
    asked: dict[str, Any], name: str
) -> None:
    settings = settings_from({"driver": asked})
    rule = asked.get("version") or asked.get("branch")
    wanted = package_set(settings.driver, CUDA, "open", ("nvswitch",), NO_KERNEL)
    # No pinning package beside them: NVIDIA publishes one for some versions only.
    assert wanted == {"nvidia-open": rule, name: rule}
    assert name not in package_set(settings.driver, CUDA, "open", (), NO_KERNEL)
    assert "cuda-drivers" in package_set(settings.driver, CUDA, "proprietary", (), NO_KERNEL)


def test_headers_come_for_the_next_kernel_alone_where_they_are_to_be_installed() -> None:
    kernels = (Kernel("6.1.0-40-amd64", False), Kernel("6.1.0-41-amd64", False), Kernel("6.1.0-39-amd64", False))
    boot = Boot("6.1.0-40-amd64", "6.1.0-41-amd64", "grub", kernels)
    asked = settings_from({"driver": {"branch": "580", "kernel_headers": "install"}}).driver
    wanted = package_set(asked, CUDA, "open", (), boot)
    assert {name for name in wanted if name.startswith("linux-")} == {
        "linux-headers-6.1.0-41-amd64",
    }  # fmt: skip
    required = settings_from({"driver": {"branch": "580"}}).driver
    assert not any(name.startswith("linux-") for name in package_set(required, CUDA, "open", (), boot))
    there = replace(boot, kernels=tuple(replace(kernel, headers=True) for kernel in kernels))
    wanted = package_set(asked, CUDA, "open", (), there)
    assert not any(name.startswith("linux-") for name in wanted)


WANTED = {"nvidia-driver-pinning-580": None, "nvidia-open": "580", "nvidia-fabricmanager": "580"}


def test_the_newest_version_that_every_package_has_is_chosen() -> None:
    assert chosen(WANTED, {}, OFFERED) == {
        "nvidia-driver-pinning-580": "580.95.05-1", "nvidia-open": "580.95.05-1", "nvidia-fabricmanager": "580.95.05-1",
    }  # fmt: skip


def test_a_fabric_manager_that_is_missing_comes_at_the_version_of_the_driver_that_is_there() -> None:
    found = chosen(WANTED, {"nvidia-open": "580.82.07-1", "nvidia-driver-pinning-580": "580.82.07-1"}, OFFERED)
    assert found["nvidia-fabricmanager"] == "580.82.07-1"
    assert found["nvidia-open"] == "580.82.07-1"
    assert found["nvidia-driver-pinning-580"] == "580.82.07-1"


def test_what_is_not_to_be_had_is_refused_with_what_there_is() -> None:
    with pytest.raises(NotInstallable, match=r"nvidia-open is not to be had at 570.*595\.58\.03-1"):
        chosen({"nvidia-open": "570"}, {}, OFFERED)
    with pytest.raises(NotInstallable, match="nvidia-driver-pinning-999 is not to be had at any version"):
        chosen({"nvidia-driver-pinning-999": None, "nvidia-open": "580"}, {}, OFFERED)


@pytest.mark.parametrize("version", ["580.95.05-1;reboot", "580.95.05 -1", "580.95.05-1`x`", "580.95.05-$x", "580.95*"])
def test_a_version_that_no_package_can_have_never_reaches_a_command(version: str) -> None:
    with pytest.raises(NotInstallable, match="which is no package's version"):
        chosen({"nvidia-open": "580.95.05", "x": None}, {}, [("nvidia-open", "580.95.05-1"), ("x", version)])
    with pytest.raises(NotInstallable):
        chosen({"nvidia-open": "580.95.05"}, {}, [("nvidia-open", version)])


def test_packages_at_two_versions_are_not_as_desired() -> None:
    there = State((("nvidia-open", "580.95.05-1"), ("nvidia-fabricmanager", "580.82.07-1"),
                   ("nvidia-driver-pinning-580", "580.82.07-1")))  # fmt: skip
    assert there.missing(WANTED) == ("nvidia-fabricmanager", "nvidia-open")
    one = replace(there, packages=(*there.packages[:1], ("nvidia-fabricmanager", "580.95.05-1"), *there.packages[2:]))
    assert one.missing(WANTED) == ()
    assert one.missing({**WANTED, "nvidia-open": "580.105.08"}) == ("nvidia-open",)


@pytest.mark.parametrize(
    ("rule", "goes"),
    [("580", ["570", "580.95.05"]), ("580.95.05", ["570"]), ("580.105.08", ["570", "580.95.05"]), (None, [])],
)
def test_a_pinning_package_stays_that_lets_the_driver_come(rule: str | None, goes: list[str]) -> None:
    pins = [f"nvidia-driver-pinning-{item}" for item in ("570", "580", "580.95.05")]
    wanted = {"nvidia-open": rule}
    expected = [f"nvidia-driver-pinning-{item}" for item in goes] if rule else pins
    assert list(leftovers(CUDA, wanted, [*pins, "nvidia-open"], rule)) == expected


def test_a_fabric_manager_of_another_name_has_to_go() -> None:
    there = ("nvidia-fabricmanager-570", "nvidia-open")
    assert leftovers(CUDA, WANTED, there) == ("nvidia-fabricmanager-570",)
    assert leftovers(CUDA, {"nvidia-open": "580"}, there) == ()


# --- the second gate -------------------------------------------------------------------------------------------------

NEW = {"nvidia-open": "580.95.05-1"}
FLAVOURS = Simulation((("nvidia-open", None, "580.95.05-1"), ("nvidia-kernel-open-dkms", None, "580.95.05-1")),
                      (("nvidia-kernel-dkms", "580.95.05-1"), ("cuda-drivers", "580.95.05-1")))  # fmt: skip
GATE: list[tuple[str, Simulation, bool, str | None]] = [
    ("a plain install", Simulation((("nvidia-open", None, "580.95.05-1"), ("dkms", None, "3.0-1")), ()), False, None),
    ("another flavour", FLAVOURS, False, None),
    (
        "fabric manager under its new name",
        Simulation((("nvidia-fabricmanager", None, "580.95.05-1"),), (("nvidia-fabricmanager-570", "570.172.08-1"),)),
        True, None,
    ),
    (
        "another pinning package",
        Simulation(
            (("nvidia-driver-pinning-580.95.05", None, "580.95.05-1"),),
            (("nvidia-driver-pinning-570", "570.172.08-1"),),
        ),
        True, None,
    ),
    (
        "a transitional package",
        Simulation((("nvidia-open", None, "580.95.05-1"), ("libnvidia-ml1", None, "595.58.03-1")), ()), True,
        "libnvidia-ml1 would come at 595.58.03-1, which is not of branch 580",
    ),
    (
        "another branch, which is not allowed",
        Simulation((("nvidia-open", "570.172.08-1", "580.95.05-1"),), ()), False, "which is another branch",
    ),
    (
        "another branch, which is allowed",
        Simulation((("nvidia-open", "570.172.08-1", "580.95.05-1"),), ()), True, None,
    ),
    (
        "another version than was resolved",
        Simulation((("nvidia-open", None, "580.82.07-1"),), ()), True, "and not at 580.95.05-1",
    ),
    (
        "a library that goes and has no successor",
        Simulation((("nvidia-open", None, "580.95.05-1"),), (("libnvidia-nscq-570", "570.172.08-1"),)), True,
        "would remove libnvidia-nscq-570 570.172.08-1, and nothing comes in its place",
    ),
    *(
        (
            f"{name} that goes", Simulation((("nvidia-open", None, "580.95.05-1"),), ((name, "1.0-1"),)), True,
            f"would remove {name} 1.0-1, which is no part of the driver",
        )
        for name in ("nvidia-container-toolkit", "libnvidia-container1", "containerd", "containerd.io",
                     "linux-image-6.1.0-40-amd64", "kubelet")
    ),
    (
        "what apt itself would refuse", Simulation((), (), ("Unable to correct problems",)), True,
        "Unable to correct problems",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("simulation", "allowed", "reason"), [row[1:] for row in GATE], ids=[row[0] for row in GATE])
def test_the_second_gate_lets_through_what_was_asked_and_nothing_else(
    simulation: Simulation, allowed: bool, reason: str | None
) -> None:
    found = gate(simulation, NEW, "580", allowed)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert reason in found[0]
        assert found[1]


def test_a_toolkit_s_own_version_is_not_taken_for_a_driver_s_branch() -> None:
    assert gate(Simulation((("nvidia-container-toolkit", "1.17.8-1", "570.1.1-1"),), ()), {}, "580", False) is None


SAID = """status=0
line=Inst libnvidia-ml1 [580.82.07-1] (580.95.05-1 gpunode lab:SIMULATED [amd64]) []
line=Inst nvidia-open:i386 (580.95.05-1  [amd64])
line=Inst linux-headers-6.1.0-40-amd64 (6.1.153-1 Debian-Security:12/oldstable-security [amd64])
line=Remv nvidia-kernel-dkms [580.82.07-1]
line=Purg nvidia-driver-pinning-580 [580.82.07-1] [libnvidia-ml1:amd64 ]
line=W: something"""


def test_what_apt_says_is_read_as_it_writes_it() -> None:
    assert parse_simulation(SAID.splitlines()) == Simulation(
        (("libnvidia-ml1", "580.82.07-1", "580.95.05-1"), ("nvidia-open", None, "580.95.05-1"),
         ("linux-headers-6.1.0-40-amd64", None, "6.1.153-1")),
        (("nvidia-kernel-dkms", "580.82.07-1"), ("nvidia-driver-pinning-580", "580.82.07-1")),
    )  # fmt: skip
    assert parse_simulation(["status=100", "line=E: Unmet dependencies."]).errors == ("Unmet dependencies.",)
    needs = " nvidia-open : Depends: libnvidia-ml1 (= 1) but it is not going to be installed"
    assert parse_simulation(["status=100", f"line={needs}", "line=E: Broken."]).errors == (needs, "Broken.")
    assert parse_simulation(["status=0", f"line={needs}"]).errors == ()
    assert parse_simulation(["status=100"]).errors == ("it exits 100",)


@pytest.mark.parametrize("lines", [[], ["line=Inst x (1 y)"], ["status=x"], ["status=0", "line=Inst x 1.0"],
                                   ["status=0", "line=Inst  (1)"]])  # fmt: skip
def test_an_answer_of_apt_that_is_not_one_is_refused(lines: list[str]) -> None:
    with pytest.raises(ParseError):
        parse_simulation(lines)


_NAME = st.from_regex(r"[a-z0-9][a-z0-9+.-]{1,30}", fullmatch=True)
_VERSION = st.from_regex(r"[0-9][A-Za-z0-9.+~:-]{0,20}", fullmatch=True)


@given(
    st.lists(st.tuples(_NAME, st.none() | _VERSION, _VERSION), max_size=6),
    st.lists(st.tuples(_NAME, _VERSION), max_size=6),
)
def test_any_name_and_version_are_read_back(
    comes: list[tuple[str, str | None, str]], goes: list[tuple[str, str]]
) -> None:
    lines = [
        f"line=Inst {name} {f'[{old}] ' if old else ''}({new} Lab:1/stable, Lab:2 [amd64]) [x:amd64 ]"
        for name, old, new in comes
    ]
    lines += [f"line=Remv {name} [{old}] []" for name, old in goes]
    assert parse_simulation(["status=0", *lines]) == Simulation(tuple(comes), tuple(goes))


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60), max_size=5))
def test_whatever_a_node_answers_is_a_reading_or_a_parse_error(lines: list[str]) -> None:
    for parse in (parse_simulation, parse_driver_packages, parse_offers):
        for answer in (lines, [f"line=Inst {line}" for line in lines], ["status=0", "dpkg=installed", "apt=0", *lines]):
            try:
                parse(answer)
            except ParseError:
                continue


def test_what_dpkg_says_of_packages_and_holds_is_read() -> None:
    lines = ["package=hold nvidia-open 580.95.05-1", "package=install linux-image-amd64 6.1.153-1", "dpkg=installed"]
    assert parse_driver_packages(lines) == State(
        (("linux-image-amd64", "6.1.153-1"), ("nvidia-open", "580.95.05-1")), ("nvidia-open",)
    )
    for wrong in (lines[:-1], [*lines, "package=hold a;b 1"], [*lines, "package=hold --x 1"], [*lines, "package=x 1"]):
        with pytest.raises(ParseError):
            parse_driver_packages(wrong)
    assert parse_offers(["apt=0", "available=a 1", "available=a 0"]).available == (("a", "1"), ("a", "0"))
    with pytest.raises(ParseError):
        parse_offers(["available=a 1"])


# --- the operations --------------------------------------------------------------------------------------------------


NEEDS = " nvidia-open : Depends: nvidia-kernel (= 1) but it is not going to be installed"


def test_a_driver_of_a_runfile_is_replaced_where_a_migration_is_asked_for_and_brought_back_if_need_be(
    host: Host,
) -> None:
    host.readings |= {
        DriverPackages: INSTALLED, DriverOffers: Offers(tuple(OFFERED)), DriverSimulation: Simulation((), ()),
        DriverFact: replace(NO_DRIVER, runfile=True, module_version="570.172.08", module_license="Dual MIT/GPL"),
    }  # fmt: skip
    _, change = commands(driver_packages.installed, host, **ASK, migrate=True)
    assert "systemd-run" in change
    host.readings[DriverFact] = NO_DRIVER
    assert commands(driver_packages.installed, host, **ASK, migrate=True) == []


def test_a_driver_that_is_as_asked_is_left_alone(host: Host) -> None:
    host.readings[DriverPackages] = INSTALLED
    assert commands(driver_packages.installed, host, **ASK) == []
    assert host.noops == ["installed: nvidia-driver-pinning-580 580.82.07-1, nvidia-open 580.82.07-1"]


def test_an_upgrade_is_one_refresh_and_one_transaction(host: Host) -> None:
    host.readings |= {
        DriverFact: NO_DRIVER, DriverPackages: INSTALLED, DriverOffers: Offers(tuple(OFFERED)),
        DriverSimulation: Simulation((("nvidia-open", "580.82.07-1", "580.95.05-1"),), ()),
    }  # fmt: skip
    refresh, change = commands(driver_packages.installed, host, **UPGRADE)
    assert "read_lists apt_get" in refresh and "apt_get install" not in refresh
    assert "systemd-run" in change
    assert host.refusals == []


@pytest.mark.parametrize(
    ("simulation", "reason"),
    [
        (Simulation((("libnvidia-ml1", None, "595.58.03-1"),), ()), "not of branch 580"),
        (Simulation((), (("containerd", "1.6.20-1"),)), "would remove containerd"),
        (Simulation((), (), ("no",)), "apt would refuse: no"),
        (
            Simulation((), (), (NEEDS, "Broken.", "Version '1' for 'libnvidia-ml1' was not found")),
            "apt would refuse: package nvidia-open needs nvidia-kernel (= 1), but it is not going to be installed; the "
            "node's repositories have no libnvidia-ml1 at 1; nothing was changed. To go on, ask for a version that",
        ),
    ],
)
def test_what_the_gate_refuses_ends_after_the_refresh_with_nothing_changed(
    host: Host, simulation: Simulation, reason: str
) -> None:
    host.readings |= {
        DriverPackages: INSTALLED, DriverOffers: Offers(tuple(OFFERED)), DriverSimulation: simulation,
    }  # fmt: skip
    assert len(commands(driver_packages.installed, host, **UPGRADE)) == 1
    (refusal,) = host.refusals
    assert reason in refusal and "nothing was changed. To go on, " in refusal


def test_a_version_that_nobody_offers_is_refused_with_a_remedy(host: Host) -> None:
    host.readings |= {DriverPackages: INSTALLED, DriverOffers: Offers(())}
    assert len(commands(driver_packages.installed, host, **UPGRADE)) == 1
    assert "nothing was changed. Set driver.version, driver.branch or driver.flavour" in host.refusals[0]


def test_a_target_that_was_rolled_back_is_not_tried_again(host: Host) -> None:
    host.readings |= {
        DriverPackages: INSTALLED, DriverOffers: Offers(tuple(OFFERED)), DriverSimulation: Simulation((), ()),
    }  # fmt: skip
    target = target_digest("nvidia-driver-pinning-580=580.82.07-1", "nvidia-open=580.95.05-1")
    host.readings[TransactionJournal] = Journal("failed", target, "no load", False)
    assert len(commands(driver_packages.installed, host, **UPGRADE)) == 1
    assert unnamed(host.refusals[0], "no load") == []


def test_what_was_interrupted_and_finished_by_dpkg_alone_is_proven_by_the_next_run(host: Host) -> None:
    host.readings |= {
        DriverFact: NO_DRIVER, DriverPackages: INSTALLED, DriverOffers: Offers(tuple(OFFERED)),
        DriverSimulation: Simulation((), ()), TransactionJournal: Journal("restored", "x", None, False),
    }  # fmt: skip
    assert len(commands(driver_packages.installed, host, **ASK)) == 2
    host.readings[TransactionJournal] = Journal("done", "x", None, False)
    assert commands(driver_packages.installed, host, **ASK) == []


def test_what_dpkg_left_half_done_is_finished_first(host: Host) -> None:
    host.readings[DriverPackages] = replace(INSTALLED, interrupted=True)
    (finish,) = commands(driver_packages.installed, host, **ASK)
    assert "--configure -a" in finish


def holding(state: State, kernel: bool = False) -> State:
    """Return the state after gpunode has held it."""
    keep = state.to_hold(kernel)
    by_version: dict[str, list[str]] = {}
    for name, version in keep.items():
        by_version.setdefault(version, []).append(name)
    names = [name.replace(".", "[.]").replace("+", "[+]") for name in keep]
    return replace(
        state,
        held=tuple(sorted(keep)),
        preferences=rendered("driver-preferences", by_version=by_version),
        unattended=rendered("driver-unattended-upgrades.conf", names=names),
    )


def test_the_whole_set_is_held_and_the_second_time_there_is_nothing_to_do(host: Host) -> None:
    host.readings[DriverPackages] = INSTALLED
    hold, *writes, note = commands(driver_packages.held, host, family="apt", hold=True, kernel=False)
    assert "'hold=libnvidia-ml1 nvidia-driver-pinning-580 nvidia-open'" in hold and "unhold=" in hold
    assert len(writes) == 2
    # A driver that is undone after the boot takes these files along, which are nobody else's.
    assert f"gpunode {' '.join(FAMILIES['apt'].holding)}" in note and "note_files" in note
    host.readings[DriverPackages] = holding(INSTALLED)
    assert commands(driver_packages.held, host, family="apt", hold=True, kernel=False) == []
    # The kernel alone is added, and goes again, when the settings say so.
    (hold, *writes, note) = commands(driver_packages.held, host, family="apt", hold=True, kernel=True)
    assert "hold=linux-image-amd64" in hold and len(writes) == 2
    host.readings[DriverPackages] = holding(INSTALLED, kernel=True)
    (hold, *writes, note) = commands(driver_packages.held, host, family="apt", hold=True, kernel=False)
    assert "unhold=linux-image-amd64" in hold and len(writes) == 2


def test_a_hold_that_is_not_wanted_any_more_leaves_nothing_behind(host: Host) -> None:
    host.readings[DriverPackages] = holding(INSTALLED)
    unhold, *removals, _ = commands(driver_packages.held, host, family="apt", hold=False, kernel=False)
    assert "'unhold=libnvidia-ml1 nvidia-driver-pinning-580 nvidia-open'" in unhold
    assert ["rm -f" in removal for removal in removals] == [True, True]
    host.readings[DriverPackages] = INSTALLED
    assert commands(driver_packages.held, host, family="apt", hold=False, kernel=False) == []


def test_a_hold_of_somebody_else_s_is_not_released(host: Host) -> None:
    host.readings[DriverPackages] = replace(INSTALLED, held=("nvidia-open",))
    assert commands(driver_packages.held, host, family="apt", hold=False, kernel=False) == []


def test_a_dry_run_of_a_bare_node_says_that_it_will_be_held(host: Host) -> None:
    host.readings[DriverPackages] = State(())
    host.state.is_executing = False
    assert commands(driver_packages.held, host, family="apt", hold=True, kernel=False) == ["true"]
    host.state.is_executing = True
    assert commands(driver_packages.held, host, family="apt", hold=True, kernel=False) == []


LOADED = DriverState((), "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05", uvm_loaded=True)
RUNS, ABSENT = Unit("loaded", "active", "running", "enabled"), Unit("not-found", "inactive", "dead", None)
STOPPED = replace(RUNS, active_state="inactive")


def test_a_service_of_the_driver_is_run_and_an_absent_one_passed_over_unless_it_is_required(host: Host) -> None:
    host.readings |= {DriverFact: LOADED, UnitFact: RUNS}
    ask: dict[str, Any] = {"unit": "nvidia-persistenced.service", "required": False}
    assert commands(driver.service, host, **ask) == []
    host.readings[UnitFact] = STOPPED
    assert commands(driver.service, host, **ask)[-1] == "systemctl start nvidia-persistenced.service"
    host.readings[UnitFact] = ABSENT
    assert commands(driver.service, host, **ask) == []
    assert commands(driver.service, host, **{**ask, "required": True}) != []


def test_a_service_that_would_not_start_before_the_boot_is_only_enabled(host: Host) -> None:
    host.readings |= {DriverFact: replace(LOADED, loaded_version="580.82.07"), UnitFact: STOPPED}
    ask: dict[str, Any] = {"unit": "nvidia-fabricmanager.service", "required": True}
    assert commands(driver.service, host, **ask) == []
    host.readings[UnitFact] = replace(STOPPED, unit_file_state="disabled")
    assert commands(driver.service, host, **ask) == ["systemctl enable nvidia-fabricmanager.service"]


# --- settings, verdict, plan, templates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [{"foo": "1"}, {"NVreg_A": "1 2"}, {"NVreg_A": 1}, {"NVreg_A": "$(x)"}, {"NVreg_A\n": "1"}, {"NVreg_A": ""}, "x",
     [], {"NVreg_A": '1"'}, {f"NVreg_{number}": "1" for number in range(65)}],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_module_parameter_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match=r"driver\.module_parameters"):
        settings_from({"driver": {"module_parameters": value}})


def test_module_parameters_become_lines_that_modprobe_reads() -> None:
    parameters = settings_from(
        {"driver": {"module_parameters": {"NVreg_EnableGpuFirmware": "0", "NVreg_RegistryDwords": "A=0x1;B=0x2"}}}
    ).driver.module_parameters
    text = rendered("nvidia-parameters.conf", parameters=parameters, modules=["nvidia", "nvidia-current"])
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "options nvidia NVreg_EnableGpuFirmware=0", "options nvidia NVreg_RegistryDwords=A=0x1;B=0x2",
        "options nvidia-current NVreg_EnableGpuFirmware=0", "options nvidia-current NVreg_RegistryDwords=A=0x1;B=0x2",
    ]  # fmt: skip


DRIVER = DriverState(
    (("libnvidia-ml1", "580.95.05-1"), ("nvidia-fabricmanager", "580.95.05-1"), ("nvidia-open", "580.95.05-1")),
    "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05", uvm_loaded=True,
    held=("libnvidia-ml1", "nvidia-fabricmanager", "nvidia-open"), kernels=("linux-image-amd64",),
    services=(Service("nvidia-fabricmanager", True, True), Service("nvidia-persistenced", True, True)),
)  # fmt: skip
NODE = replace(GOOD, driver=DRIVER, pci=PciGpus((H100,), 4))


def bad(driver: DriverState, settings: Any = SETTINGS) -> list[tuple[str, FindingClass]]:
    findings = judge(settings, replace(NODE, driver=driver))
    return [(item.what, item.finding_class) for item in findings if item.finding_class is not FindingClass.OK]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"held": ("nvidia-open",)}, "held"),
        ({"packages": (*DRIVER.packages[:1], ("nvidia-fabricmanager", "580.82.07-1"), *DRIVER.packages[2:])},
         "fabric manager"),
        ({"packages": (DRIVER.packages[0], DRIVER.packages[2])}, "fabric manager"),
        ({"services": (Service("nvidia-fabricmanager", False, True), DRIVER.services[1])},
         "service nvidia-fabricmanager"),
        ({"services": DRIVER.services[1:]}, "service nvidia-fabricmanager"),
        ({"services": (DRIVER.services[0], Service("nvidia-persistenced", True, False))},
         "service nvidia-persistenced"),
        ({"services": DRIVER.services[:1]}, None),
    ],
)  # fmt: skip
def test_what_is_loose_or_stopped_or_of_another_version_is_drift(change: dict[str, Any], what: str | None) -> None:
    assert bad(replace(DRIVER, **change)) == ([(what, FindingClass.DRIFT)] if what else [])


def test_what_the_settings_do_not_ask_for_is_not_judged() -> None:
    loose = replace(DRIVER, held=(), services=DRIVER.services[:1])
    asked: dict[str, Any] = {"version": "580.95.05", "hold": False}
    settings = settings_from({"driver": asked, "toolkit": {"version": "1.17.8"}})
    assert bad(loose, settings) == []
    held = settings_from({"driver": {**asked, "hold": True, "hold_kernel": True}, "toolkit": {"version": "1.17.8"}})
    assert bad(DRIVER, held) == [("held", FindingClass.DRIFT)]
    stopped = replace(DRIVER, services=(DRIVER.services[0], Service("nvidia-persistenced", False, False)))
    off = settings_from({"driver": {**asked, "persistenced": False}, "toolkit": {"version": "1.17.8"}})
    assert bad(stopped, off) == []


def test_a_fabric_manager_that_waits_for_the_boot_is_no_drift_beside_the_pending_reboot() -> None:
    pending = replace(
        DRIVER, loaded_version="580.82.07", services=(Service("nvidia-fabricmanager", False, True), DRIVER.services[1])
    )
    assert bad(pending) == [("loaded module", FindingClass.REBOOT_PENDING)]


def test_the_plan_names_holds_and_services() -> None:
    node = replace(NODE, driver=replace(DRIVER, held=(), services=(Service("nvidia-fabricmanager", False, False),)))
    assert [(step.code, step.what, step.disruption.name) for step in plan(SETTINGS, node).steps] == [
        ("driver.held", "held", "nothing"), ("driver.service", "service nvidia-fabricmanager", "nothing"),
    ]  # fmt: skip


def test_the_driver_s_reading_tells_packages_kernels_and_services_apart() -> None:
    found = parse_driver([
        "package=nvidia-open 580.95.05-1", "held=nvidia-open", "package=nvidia-container-toolkit 1.17.8-1",
        "package=linux-image-amd64 6.1.1-1", "package=linux-image-6.1.0-40-amd64 6.1.1-1",
        "service=nvidia-fabricmanager active enabled", "service=nvidia-persistenced failed disabled",
    ])  # fmt: skip
    assert found.packages == (("nvidia-open", "580.95.05-1"),)
    assert (found.kernels, found.held) == (("linux-image-amd64",), ("nvidia-open",))
    assert found.services == (
        Service("nvidia-fabricmanager", True, True), Service("nvidia-persistenced", False, False),
    )  # fmt: skip


@pytest.mark.real
@pytest.mark.skipif(shutil.which("apt-config") is None, reason="apt's own reader is needed")
def test_apt_reads_the_list_for_unattended_upgrades(tmp_path: Any) -> None:
    path = tmp_path / "52gpunode-driver"
    path.write_text(str(holding(INSTALLED).unattended))
    done = subprocess.run(["apt-config", "-c", path, "dump"], capture_output=True, text=True, check=True)
    listed = [line for line in done.stdout.splitlines() if line.startswith("Unattended-Upgrade::Package-Blacklist::")]
    assert [line.split('"')[1] for line in listed][-3:] == [
        "^libnvidia-ml1$", "^nvidia-driver-pinning-580$", "^nvidia-open$",
    ]  # fmt: skip


def test_a_simulation_that_fails_is_asked_down_to_the_package_that_is_missing(tmp_path: Path) -> None:
    """apt-get is SIMULATED: it tells of one package what that needs, as the real one does."""
    (tmp_path / "apt-get").write_text(
        '#!/bin/sh\nfor last in "$@"; do :; done\ncase "$last" in\n'
        "aa=*) echo ' aa : Depends: bb (= 2) but it is not going to be installed';;\n"
        "bb=*) echo ' bb : Depends: c.d (= 1:2-3) but it is not installable';;\n"
        "*) echo \"E: Version '1:2-3' for 'c.d' was not found\";;\nesac\nexit 100\n"
    )
    (tmp_path / "apt-get").chmod(0o755)
    probe = DriverSimulation().command(arguments=["aa=1"], pin="")
    said = subprocess.run(
        ["sh", "-c", str(probe)], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    found = DriverSimulation().process(said.stdout.splitlines())
    assert [item.cause for item in explained(found.errors)] == [
        "package aa needs bb (= 2), but it is not going to be installed",
        "the node's repositories have no c.d at 1:2-3",
    ]


def test_headers_that_came_since_are_a_new_try(host: Host) -> None:
    host.readings |= {
        DriverPackages: INSTALLED, DriverOffers: Offers(tuple(OFFERED)), DriverSimulation: Simulation((), ()),
        DriverFact: NO_DRIVER,
    }  # fmt: skip
    named = ("nvidia-driver-pinning-580=580.82.07-1", "nvidia-open=580.95.05-1")
    target = target_digest(*named, "6.1.0-41 without headers")
    host.readings[TransactionJournal] = Journal("failed", target, "no build", False)
    asked = {**UPGRADE, "kernel": "6.1.0-41"}
    assert len(commands(driver_packages.installed, host, **asked, headers=False)) == 1
    assert unnamed(host.refusals[0], "no build") == []
    assert len(commands(driver_packages.installed, host, **asked, headers=True)) == 2


def test_an_octal_parameter_is_the_number_that_the_kernel_tells() -> None:
    state = replace(GOOD.driver, parameters=(("DeviceFileMode", "432"), ("EnableMSI", "1")))
    assert state.other_parameters({"NVreg_DeviceFileMode": "0660", "NVreg_EnableMSI": "0x1"}) == ()
    assert state.other_parameters({"NVreg_DeviceFileMode": "0666"}) == ("NVreg_DeviceFileMode=432",)
