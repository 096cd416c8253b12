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
from gpunode.components.driver.state import DriverState
from gpunode.node.verdict import judge
from gpunode.operations.driver_transaction import driver_transaction
from gpunode.operations.families import APT, FAMILIES
from gpunode.settings import settings_from
from tests.support.driver_removal import PACKAGED
from tests.support.messages import unnamed
from tests.support.simulated_dpkg import SimulatedDpkg
from tests.support.verify import GOOD

OLD = "580.82.07"
WITHOUT: dict[str, Any] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
ABSENT: dict[str, Any] = {"driver": {"source": "absent"}, **WITHOUT}
ALLOW = {"disruption": {"allow": "reboot"}}
NONE = DriverState((), None, None, None, None, None)


def _judged(driver: DriverState, **more: Any) -> list[tuple[str, FindingClass]]:
    found = judge(settings_from({**ABSENT, **more}), replace(GOOD, driver=driver))
    return [(item.what, item.finding_class) for item in found if item.finding_class is not FindingClass.OK]


@pytest.mark.pure
def test_what_is_there_is_drift_and_pending_where_it_is_loaded_and_the_settings_allow_no_reboot() -> None:
    assert _judged(NONE) == []
    assert _judged(replace(PACKAGED, loaded_version=None)) == [("installed by", FindingClass.DRIFT)]
    assert _judged(PACKAGED, **ALLOW) == [("installed by", FindingClass.DRIFT)]
    assert _judged(PACKAGED) == [("installed by", FindingClass.REBOOT_PENDING)]
    assert _judged(replace(NONE, loaded_version=OLD)) == [("loaded module", FindingClass.REBOOT_PENDING)]
    # A module that somebody put there by hand is told, not removed.
    assert _judged(replace(NONE, module_version=OLD)) == [("module on disk", FindingClass.DRIFT)]


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
        return self.transact(driver_transaction(APT, "driver_removal"), variables)

    def uninstaller(self, text: str) -> None:
        """Have a .run file's uninstaller, which does as the text says."""
        path = self.root / "usr/bin/nvidia-uninstall"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

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
    node.uninstaller('echo "$*" > "$STATE/uninstalled"; rm "$0"')
    done = node.remove()
    assert (done.returncode, node.journal, set(node.packages)) == (0, "done", {"old-tool"}), done.stderr
    assert (node.state / "uninstalled").read_text() == "--silent\n"


@pytest.mark.simulated
def test_a_runfile_s_driver_goes_alone_and_its_services_start_at_no_boot(tmp_path: Path) -> None:
    node = Machine(tmp_path, old_tool="1")
    node.write("enabled", "nvidia-persistenced")
    node.uninstaller('rm "$0"')
    done = node.remove()
    assert (done.returncode, node.journal, node.enabled) == (0, "done", ""), done.stderr


@pytest.mark.simulated
def test_an_uninstaller_that_fails_has_its_words_in_our_error_and_the_packages_stay(node: Machine) -> None:
    node.uninstaller('echo "cannot remove that" >&2; exit 3')
    before = node.packages
    done = node.remove()
    assert (done.returncode, node.packages) == (1, before)
    assert unnamed(done.stderr, "nvidia-uninstall exits 3", "cannot remove that") == []
