"""A driver that is to be absent: what the settings may ask for beside, what goes, what waits, and what comes back.

SIMULATED: apt, dpkg, modprobe and NVIDIA's uninstaller (simulated_dpkg.py).
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import FindingClass
from gpunode.components.driver import DriverState
from gpunode.node.plan import plan
from gpunode.node.preflight import cautions, refusals
from gpunode.node.reboot import RunningBoot, obstacles
from gpunode.node.verdict import judge
from gpunode.operations import driver_removal, reboot
from gpunode.operations.driver_removal import removal_transaction
from gpunode.operations.families import APT, FAMILIES
from gpunode.packages.driver_packages import Simulation
from gpunode.settings import SettingsError, settings_from
from gpunode.system.boot import Boot, Kernel
from tests.support.driver_removal import ASKED, PACKAGED, _node
from tests.support.messages import unnamed
from tests.support.preflight import B200, H100, P100, machine
from tests.support.simulated_dpkg import SimulatedDpkg
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

OLD = "580.82.07"
WITHOUT: dict[str, Any] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
ABSENT: dict[str, Any] = {"driver": {"source": "absent"}, **WITHOUT}
AT_REBOOT: dict[str, Any] = {**ABSENT, "disruption": {"allow": "reboot"}}
NONE = DriverState((), None, None, None, None, None)


# --- settings and preflight ------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_what_needs_the_driver_cannot_be_asked_for_beside_its_absence() -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from({"driver": {"source": "absent"}, "mps": {"enabled": True}, "mig": {"config": "all-disabled"}})
    said = str(caught.value)
    for name in ("cuda.enabled", "toolkit.enabled", "mps.enabled", "mig.config"):
        assert f"{name} = " in said
    assert "set cuda.enabled = False" in said
    settings_from(ABSENT)


@pytest.mark.pure
def test_a_node_whose_driver_is_to_go_needs_no_gpu_no_headers_and_no_branch() -> None:
    boot = Boot("6.1.0", "6.1.0", "link", (Kernel("6.1.0", headers=False),), secure_boot=True)
    assert refusals(settings_from(ABSENT), machine(gpus=(), boot=boot)) == ()
    assert refusals(settings_from(ABSENT), machine(gpus=(H100,), driver=replace(PACKAGED, runfile=True))) == ()


@pytest.mark.pure
def test_what_is_to_go_need_neither_drive_the_gpus_nor_be_maintained() -> None:
    old = replace(PACKAGED, module_version="340.108", loaded_version=None, loaded_flavour=None)
    there = machine(gpus=(B200, P100), driver=old)
    assert refusals(settings_from(ABSENT), there) == ()
    assert [item for item in cautions(settings_from(ABSENT), there) if item.component == "driver"] == []
    present = {**ABSENT, "driver": {"source": "present"}}
    assert refusals(settings_from(present), there) != ()
    assert [item for item in cautions(settings_from(present), there) if item.component == "driver"] != []


@pytest.mark.pure
def test_the_driver_of_a_tegra_board_is_not_removed() -> None:
    tegra = replace(GOOD.operating_system, tegra=True)
    assert [item.component for item in refusals(settings_from(ABSENT), machine(tegra, ()))] == ["driver"]


# --- verdict and plan ------------------------------------------------------------------------------------------------


def _judged(settings: dict[str, Any], driver: DriverState) -> list[tuple[str, FindingClass]]:
    found = judge(settings_from(settings), replace(GOOD, driver=driver))
    return [(item.what, item.finding_class) for item in found if item.finding_class is not FindingClass.OK]


@pytest.mark.pure
def test_a_node_whose_driver_is_to_be_absent_does_not_miss_one() -> None:
    assert _judged(ABSENT, NONE) == []
    assert plan(settings_from(ABSENT), replace(GOOD, driver=NONE)).steps == ()


@pytest.mark.pure
def test_what_is_there_is_drift_and_pending_where_it_is_loaded_and_the_settings_allow_no_reboot() -> None:
    idle = replace(PACKAGED, loaded_version=None)
    assert _judged(ABSENT, idle) == [("installed by", FindingClass.DRIFT)]
    assert _judged(AT_REBOOT, PACKAGED) == [("installed by", FindingClass.DRIFT)]
    assert _judged(ABSENT, PACKAGED) == [("installed by", FindingClass.REBOOT_PENDING)]
    assert _judged(ABSENT, replace(NONE, loaded_version=OLD)) == [("loaded module", FindingClass.REBOOT_PENDING)]
    # A module that somebody put there by hand is told, not removed.
    assert _judged(ABSENT, replace(NONE, module_version=OLD)) == [("module on disk", FindingClass.DRIFT)]


@pytest.mark.pure
def test_the_plan_says_what_goes_what_that_disturbs_and_what_waits() -> None:
    def steps(settings: dict[str, Any], driver: DriverState) -> list[tuple[str, str, bool]]:
        found = plan(settings_from(settings), replace(GOOD, driver=driver)).steps
        return [(step.action, step.disruption.name, step.pending) for step in found]

    idle = "remove the driver of the packages"
    boots = f"{idle}, and boot the node where its module is in use"
    assert steps(ABSENT, replace(PACKAGED, loaded_version=None)) == [(idle, "nothing", False)]
    assert steps(ABSENT, PACKAGED) == [(boots, "reboot", True)]
    assert steps(AT_REBOOT, PACKAGED) == [(boots, "reboot", False)]
    loaded = replace(NONE, loaded_version=OLD)
    assert steps(ABSENT, loaded) == [("boot the node without the driver", "reboot", True)]


# --- the operation ---------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_a_driver_that_is_there_goes_in_one_transaction_and_then_there_is_nothing_to_do(host: Host) -> None:
    _node(host, PACKAGED)
    assert len(commands(driver_removal.removed, host, **ASKED)) == 1
    _node(host, replace(NONE, runfile=True))
    assert len(commands(driver_removal.removed, host, **ASKED)) == 1
    _node(host, NONE)
    assert commands(driver_removal.removed, host, **ASKED) == []
    assert len(host.noops) == 1 and not host.refusals


@pytest.mark.pure
def test_a_loaded_driver_waits_until_a_reboot_is_allowed(host: Host) -> None:
    _node(host, PACKAGED)
    assert commands(driver_removal.removed, host, **{**ASKED, "allowed": False}) == []
    assert host.noops[0].startswith("pending: the module 580.95.05 is loaded")
    _node(host, replace(PACKAGED, loaded_version=None))
    assert len(commands(driver_removal.removed, host, **{**ASKED, "allowed": False})) == 1


@pytest.mark.pure
def test_what_others_need_of_the_driver_stays(host: Host) -> None:
    _node(host, PACKAGED, Simulation((), (("nvidia-open", "1"), ("cuda-12-9", "1"))))
    assert commands(driver_removal.removed, host, **ASKED) == []
    assert "cuda-12-9 would go" in host.refusals[0] and "nothing was changed" in host.refusals[0]


@pytest.mark.pure
def test_a_driver_that_was_removed_and_is_loaded_is_booted_out_of_whatever_the_next_boot_has() -> None:
    # Nothing keeps nouveau out of its next boot.
    boot = Boot("6.1.0", "6.1.0", "link", (Kernel("6.1.0", headers=False),))
    bare = replace(GOOD, driver=replace(NONE, loaded_version=OLD), boot=boot)
    running = RunningBoot("aaaa", 5_000_000)
    assert obstacles(bare, running) != ()
    assert obstacles(bare, running, absent=True) == ()
    # Not twice for the same.
    assert "before" in obstacles(bare, replace(running, tried="none"), absent=True)[0]
    assert reboot._difference(bare.driver, {}, absent=True) != ""
    # What waits is not booted for.
    assert reboot._difference(PACKAGED, {}, absent=True) == ""
    assert reboot._difference(NONE, {}, absent=True) == ""


# The package manager in the manner of each, SIMULATED: what it prints when it is asked, and what it is told.
MANAGERS = {
    "apt": (
        "apt-get",
        'case "$*" in *autoremove*) printf "Reading package lists...\\nRemv dkms [3.0]\\nRemv gcc [12] []\\n";; esac',
        "purge dkms gcc",
    ),
    "dnf": ("dnf", 'case "$*" in *"repoquery --unneeded"*) printf "gcc\\ndkms\\ngcc\\n";; esac', "remove dkms gcc"),
    "dnf5": ("dnf5", 'case "$*" in *"repoquery --unneeded"*) printf "gcc\\ndkms\\n";; esac', "remove dkms gcc"),
    "zypper": (
        "zypper",
        'case "$*" in *"packages --unneeded"*) printf "%s\\n" "Loading repository data..." '
        '"S | Repository | Name | Version | Arch" "--+--+--+--+--" "i | @System | dkms | 3.0 | noarch" '
        '"i+ | @System | gcc  | 12 | x86_64" "v | base | other | 1 | x86_64";; esac',
        "remove dkms gcc",
    ),
    "pacman": (
        "pacman", 'case "$*" in "-Qdtq") printf "dkms\\ngcc\\n";; esac', "-R dkms gcc",
    ),
}  # fmt: skip


@pytest.mark.simulated
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_tells_what_nobody_needs_any_more_and_removes_just_that(family: str, tmp_path: Path) -> None:
    program, answers, told = MANAGERS[family]
    (tmp_path / program).write_text(f'#!/bin/sh\necho "$*" >> "$CALLS"\n{answers}\n')
    (tmp_path / program).chmod(0o755)
    text = f"{FAMILIES[family].functions}\nunneeded | sort\necho --\nremove_unneeded dkms gcc >&2"
    done = subprocess.run(
        ["sh", "-c", text], capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": f"{tmp_path}/calls"},
    )  # fmt: skip
    assert done.stdout.split() == ["dkms", "gcc", "--"], done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[-1].endswith(told), calls


# --- the transaction -------------------------------------------------------------------------------------------------


class Machine(SimulatedDpkg):
    """Hold a node whose driver is taken away."""

    def remove(self, rollback: str = "required") -> subprocess.CompletedProcess[str]:
        """Run the transaction as operations.driver_removal.removed asks for it."""
        driver = [name for name in self.packages if name.startswith("nvidia-")]
        variables = {
            "arguments": " ".join(f"{name}-" for name in driver), "expected": "", "names": "", "upstream": "",
            "kernel": "", "own": "^nvidia-.*$", "foreign": "^$", "rollback": rollback, "holding": "", "pin": "",
            "sources": "", "runfiles": f"{self.state}/runfiles", "before_version": "", "before_install": "",
            "before_uninstall": "--silent", "uninstall": "--silent", "installer_log": "/var/log/nvidia-installer.log",
            "proof": "packages",
        }  # fmt: skip
        return self.transact(removal_transaction(APT), variables)

    @property
    def enabled(self) -> str:
        """Return the units that start at boot."""
        path = self.state / "enabled"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    """Return a node with a driver, loaded and served, two packages that came along with it, and one of an older day."""
    made = Machine(tmp_path, nvidia_open=f"{OLD}-1", nvidia_smi=f"{OLD}-1", dkms="3.0", gcc="12", old_tool="1")
    made.write("along", "dkms nvidia-open", "gcc dkms", "old-tool gone-long-ago")
    made.load()
    made.write("enabled", "nvidia-persistenced")
    return made


@pytest.mark.simulated
def test_the_driver_goes_with_what_came_along_for_it_and_nothing_else(node: Machine) -> None:
    (node.state / "runfiles").mkdir()
    (node.state / "runfiles/NVIDIA-Linux-x86_64-570.1.run").touch()
    done = node.remove()
    assert (done.returncode, node.journal) == (0, "done"), done.stderr
    assert set(node.packages) == {"old-tool"}
    assert (node.loaded, node.enabled) == (None, "")
    assert list((node.state / "runfiles").iterdir()) == []


@pytest.mark.simulated
def test_a_module_in_use_stays_in_memory_and_that_is_told(node: Machine) -> None:
    (node.state / "in-use").touch()
    done = node.remove()
    assert (done.returncode, node.journal, node.loaded) == (0, "done", OLD)
    assert "gpunode: caution: nvidia " in done.stderr
    assert set(node.packages) == {"old-tool"}


@pytest.mark.simulated
def test_a_removal_that_dies_halfway_is_undone_with_holds_module_and_services(node: Machine) -> None:
    before = node.packages
    (node.state / "apt-dies").touch()
    done = node.remove()
    assert (done.returncode, node.journal) == (1, "restored")
    assert (node.packages, node.loaded, node.enabled) == (before, OLD, "nvidia-persistenced"), done.stderr
    assert node.remove().returncode == 0


@pytest.mark.simulated
def test_a_loss_of_power_between_the_end_of_a_removal_and_its_last_word_brings_all_back(node: Machine) -> None:
    before = node.packages
    (node.state / "runfiles").mkdir()
    (node.state / "runfiles/NVIDIA-Linux-x86_64-570.1.run").touch()
    (node.state / "cut-before-done").touch()
    done = node.remove()
    assert (done.returncode, node.journal) == (-9, "began")
    # What cannot be had back has not gone yet: it is of no use to the driver, and nobody could undo it.
    assert set(node.packages) == {"dkms", "gcc", "old-tool"} and list((node.state / "runfiles").iterdir()) != []
    done = node.run("undo")
    assert (done.returncode, node.journal) == (0, "restored"), done.stderr
    assert (node.packages, node.loaded, node.enabled) == (before, OLD, "nvidia-persistenced")
    assert node.remove().returncode == 0 and set(node.packages) == {"old-tool"}


@pytest.mark.simulated
def test_a_driver_that_could_not_come_back_stays_unless_the_settings_go_on(node: Machine) -> None:
    node.write("repository")
    done = node.remove()
    assert (done.returncode, node.journal) == (1, None)
    assert unnamed(done.stderr, "driver.rollback = 'best-effort'") == []
    assert "nvidia-open" in node.packages and node.loaded == OLD
    assert node.remove(rollback="best-effort").returncode == 0


@pytest.mark.simulated
def test_a_runfile_s_driver_and_packages_over_it_go_together(node: Machine) -> None:
    uninstaller = node.root / "usr/bin/nvidia-uninstall"
    uninstaller.parent.mkdir(parents=True)
    uninstaller.write_text('#!/bin/sh\necho "$*" > "$STATE/uninstalled"; rm "$0"\n')
    uninstaller.chmod(0o755)
    done = node.remove()
    assert (done.returncode, node.journal, set(node.packages)) == (0, "done", {"old-tool"}), done.stderr
    assert (node.state / "uninstalled").read_text() == "--silent\n"


@pytest.mark.simulated
def test_a_runfile_s_driver_goes_alone_and_its_services_start_at_no_boot(tmp_path: Path) -> None:
    node = Machine(tmp_path, old_tool="1")
    node.write("enabled", "nvidia-persistenced")
    uninstaller = node.root / "usr/bin/nvidia-uninstall"
    uninstaller.parent.mkdir(parents=True)
    uninstaller.write_text('#!/bin/sh\nrm "$0"\n')
    uninstaller.chmod(0o755)
    done = node.remove()
    assert (done.returncode, node.journal, node.enabled) == (0, "done", ""), done.stderr


@pytest.mark.simulated
def test_an_uninstaller_that_fails_has_its_words_in_our_error_and_the_packages_stay(node: Machine) -> None:
    uninstaller = node.root / "usr/bin/nvidia-uninstall"
    uninstaller.parent.mkdir(parents=True)
    uninstaller.write_text('#!/bin/sh\necho "cannot remove that" >&2; exit 3\n')
    uninstaller.chmod(0o755)
    before = node.packages
    done = node.remove()
    assert (done.returncode, node.packages) == (1, before)
    assert "nvidia-uninstall exits 3" in done.stderr and "cannot remove that" in done.stderr
