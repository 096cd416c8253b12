"""The life of a driver by apt from NVIDIA's repository, and how it must not end (driver_life has the text).
 SIMULATED: GPUs, NVSwitches, the driver's modules and daemons; apt, dpkg, systemd and the
packages are real.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.lab.packages.driver import BROKEN_VERSION
from tests.molecule import driver_life as life
from tests.molecule.conftest import out, tried_before
from tests.molecule.driver_alone import LOADED, ON_DISK, Driver
from tests.molecule.driver_interruption import the_next_run_undoes_it_and_installs
from tests.molecule.driver_packages import APT

pytestmark = pytest.mark.life


def test_a_transitional_package_is_refused_by_the_second_gate(plain: Node, driver: Driver) -> None:
    life.a_transitional_package_is_refused(APT, plain, driver)


def test_a_first_driver_that_does_not_load_is_removed_and_another_one_comes(plain: Node, driver: Driver) -> None:
    life.a_first_driver_that_does_not_load_leaves_nothing(APT, plain, driver)
    good = driver.run(plain, version="580.82.07")
    assert good.code == 0, good.printed
    assert out(plain, LOADED) == "580.82.07"


EXTRA = """
mkdir -p /root/extra/DEBIAN && printf 'Package: libnvidia-extra\\nVersion: 580.82.07-1\\nArchitecture: all\\n' \
  > /root/extra/DEBIAN/control && printf 'Maintainer: x <x@example.org>\\nDescription: SIMULATED\\n' \
  >> /root/extra/DEBIAN/control && dpkg-deb -b /root/extra /root/extra.deb && dpkg -i /root/extra.deb
"""


def test_a_driver_that_could_not_come_back_is_changed_only_where_the_settings_say_so(
    plain: Node, driver: Driver
) -> None:
    out(plain, EXTRA)
    before = out(plain, APT.installed)
    refused = driver.run(plain, version="580.95.05")
    assert refused.code == 1
    assert "rollback" in refused.printed
    assert "libnvidia-extra=580.82.07-1" in refused.printed
    assert "driver.rollback = 'best-effort'" in refused.printed
    assert out(plain, APT.installed) == before
    # What could be saved comes back even so. The other one had to go, as another branch has none of that name.
    out(plain, "rmmod nvidia_uvm; rmmod nvidia")
    failed = driver.run(plain, version=BROKEN_VERSION, allow_branch_change=True, rollback="best-effort")
    assert failed.code == 1
    saved = "\n".join(line for line in before.splitlines() if not line.startswith("libnvidia-extra "))
    assert (out(plain, APT.installed), out(plain, LOADED)) == (saved, "580.82.07")
    out(plain, "dpkg -i /root/extra.deb")
    run = driver.run(plain, version="580.95.05", rollback="best-effort")
    assert run.code == 0, run.printed
    log = out(plain, "cat /var/lib/gpunode/transactions/driver.log")
    assert "libnvidia-extra=580.82.07-1" in log
    assert APT.versions(plain) == {"580.95.05", "580.82.07"}
    out(plain, "dpkg --purge libnvidia-extra")


def test_a_change_that_was_killed_halfway_is_undone_and_done_by_the_next_run(plain: Node, driver: Driver) -> None:
    # dpkg meets its end when all is unpacked and nothing configured, and the transaction with it.
    trap = "/etc/dpkg/dpkg.cfg.d/lab-kill"
    kill = "grep -q -e --configure /proc/$PPID/cmdline && systemctl kill --signal=KILL gpunode-driver || true"
    out(plain, f"echo 'pre-invoke={kill}' > {trap}")
    killed = driver.run(plain, version="580.82.07")
    assert killed.code == 1
    assert out(plain, "dpkg-query -W -f '${db:Status-Status} ${Version}' nvidia-open") == "unpacked 580.82.07-1"
    out(plain, f"rm {trap}")
    the_next_run_undoes_it_and_installs(APT, plain, driver, "580.82.07")


def test_the_set_comes_at_one_version_and_is_held_and_the_second_run_changes_and_restarts_nothing(
    board: Node, driver: Driver, start_times: Callable[[Node], str]
) -> None:
    life.the_set_comes_at_one_version_and_is_held(APT, board, driver, "570.124.06")
    life.a_second_run_changes_and_restarts_nothing(board, driver, start_times, version="570.124.06")


def test_an_upgrade_of_the_system_does_not_move_what_is_held(board: Node) -> None:
    assert "nvidia" not in out(board, "apt-get -s dist-upgrade")
    assert "^libnvidia-ml1$" in out(board, "apt-config dump Unattended-Upgrade::Package-Blacklist")
    # The same without the holds, and without the two kinds of pins: then the newest branch would come.
    loose = "sed 's/^Status: hold /Status: install /' /var/lib/dpkg/status > /run/loose"
    options = "-o Dir::State::status=/run/loose -o Dir::Cache::pkgcache= -o Dir::Etc::PreferencesParts=/nonexistent"
    assert "Inst nvidia-open [570.124.06-1] (595.58.03-1" in out(board, f"{loose}; apt-get -s {options} dist-upgrade")
    # The pins alone would do, should somebody release the holds.
    assert "nvidia" not in out(
        board, "apt-get -s -o Dir::State::status=/run/loose -o Dir::Cache::pkgcache= dist-upgrade"
    )


def test_an_upgrade_within_the_branch_moves_the_whole_set_and_waits_for_the_boot(board: Node, driver: Driver) -> None:
    # Nothing in apt's cache: what is saved for a rollback comes from the repository.
    out(board, "rm -f /var/cache/apt/archives/*.deb")
    asked = {"branch": "570", "version": "570.172.08"}
    life.an_upgrade_within_the_branch_waits_for_the_boot(APT, board, driver, "570.124.06", **asked)
    life.a_run_changes_nothing(driver, board, **asked)


def test_another_branch_is_refused_until_the_settings_allow_it_and_fabric_manager_moves_along(
    board: Node, driver: Driver
) -> None:
    # Its preferences are a configuration file, which would go on pinning 570 after the package.
    pin = "nvidia-driver-pinning-570"
    out(board, f"apt-get -q -y install {pin}; apt-mark hold {pin}; test -f /etc/apt/preferences.d/nvidia-driver-pin")
    life.another_branch_is_refused_until_the_settings_allow_it(APT, board, driver, version="580.95.05")
    assert out(board, f"dpkg-query -W {pin} 2>/dev/null; ls /etc/apt/preferences.d") == "gpunode-driver"
    life.fabric_manager_has_moved_along(APT, board, "580.95.05")
    settled = life.the_boot_brings_it(board, driver, "580.95.05", version="580.95.05")
    # That a change of branch is allowed is asked no more.
    assert life.RECORD in settled.operations("success")
    assert life.daemons(board) == ["active", "active"]


def test_module_parameters_are_written_and_go_again(board: Node, driver: Driver) -> None:
    path = "/etc/modprobe.d/gpunode-nvidia.conf"
    run = driver.run(board, version="580.95.05", module_parameters={"NVreg_EnableGpuFirmware": "0"})
    assert set(run.operations("success")) == {"Set the NVIDIA module's parameters", life.RECORD}
    assert "options nvidia NVreg_EnableGpuFirmware=0" in out(board, f"cat {path}")
    run = driver.run(board, version="580.95.05")
    assert set(run.operations("success")) == {"Remove the NVIDIA module's parameters", life.RECORD}
    assert lab_nodes.run(board, f"test -e {path}").returncode != 0


def test_holds_that_are_not_wanted_any_more_leave_nothing_behind_but_somebody_else_s(
    board: Node, driver: Driver
) -> None:
    life.holds_go_and_come_and_somebody_else_s_stays(APT, board, driver, "580.95.05")
    out(board, "apt-mark unhold tar")


def test_a_module_that_does_not_load_after_the_boot_is_rolled_back_and_both_reasons_are_told(
    board: Node, driver: Driver
) -> None:
    before = out(board, APT.state)
    pending = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert pending.code == 0, pending.printed
    assert out(board, ON_DISK) == BROKEN_VERSION
    lab_nodes.reboot(board)
    assert lab_nodes.run(board, LOADED).returncode != 0
    failed = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert failed.code == 1
    assert f"({BROKEN_VERSION})" in failed.printed
    assert "undone" in failed.printed
    assert "loaded is 580.95.05" in failed.printed
    assert out(board, LOADED) == "580.95.05"
    assert out(board, APT.state) == before
    assert life.daemons(board) == ["active", "active"]
    again = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert again.code == 1
    assert tried_before(again, "driver") and f"module {BROKEN_VERSION}" in again.printed
    assert APT.versions(board) == {"580.95.05"}
    life.what_is_there_is_still_what_is_asked(board, driver, version="580.95.05")


def test_a_module_that_does_not_load_at_once_is_rolled_back_at_once(board: Node, driver: Driver) -> None:
    out(board, "rm -f /var/lib/gpunode/transactions/driver.json")
    life.a_module_that_does_not_load_is_rolled_back(APT, board, driver, "580.95.05")
    assert driver.drift(board, version="580.95.05").code == 0
