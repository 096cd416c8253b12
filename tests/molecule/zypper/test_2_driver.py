"""The life of a driver by zypper, and the ways in which it must not end (driver_life has the text).
 SIMULATED: the distribution, GPUs, NVSwitches, the driver's modules and daemons; zypper,
rpm, locks and systemd are real.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule import driver_life as life
from tests.molecule.conftest import out, third_tier
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import ZYPPER

pytestmark = [third_tier, pytest.mark.life]


def test_a_transitional_package_is_refused_by_the_second_gate(plain: Node, driver: Driver) -> None:
    life.a_transitional_package_is_refused(ZYPPER, plain, driver)


def test_a_version_that_is_not_there_is_refused_with_those_that_are(plain: Node, driver: Driver) -> None:
    life.a_version_that_is_not_there_is_refused(ZYPPER, plain, driver)


def test_the_set_comes_at_one_version_though_somebody_locked_a_name_and_is_locked(
    board: Node, driver: Driver, start_times: Callable[[Node], str]
) -> None:
    # zypper takes a lock of what is not there for a ban on it.
    out(board, "zypper -n addlock nvidia-compute-G06 curl-nope")
    life.the_set_comes_at_one_version_and_is_held(ZYPPER, board, driver, "570.124.06", others=["curl-nope"])
    life.a_second_run_changes_and_restarts_nothing(board, driver, start_times, version="570.124.06")
    # That one is not ours: no hold of ours was needed where it was.
    assert "nvidia-compute-G06" not in out(board, "cat /var/lib/gpunode/zypper-locks").split()
    out(board, "zypper -n removelock nvidia-compute-G06 curl-nope")
    assert set(driver.run(board, version="570.124.06").operations("success")) == {life.HOLD}


def test_neither_an_upgrade_of_the_system_nor_a_hand_moves_what_is_locked(board: Node) -> None:
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.0"
    said = out(board, "zypper -n update")
    assert "nvidia-compute-utils-G06" in said.partition("will NOT be installed")[2]
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.1"
    by_hand = lab_nodes.run(board, "zypper -n --no-refresh install nvidia-compute-utils-G06=570.172.08-1")
    assert by_hand.returncode == 4
    assert "locked" in by_hand.stdout
    assert ZYPPER.versions(board) == {"570.124.06"}


def test_an_upgrade_within_the_branch_moves_the_whole_set_and_waits_for_the_boot(board: Node, driver: Driver) -> None:
    asked = {"branch": "570", "version": "570.172.08"}
    life.an_upgrade_within_the_branch_waits_for_the_boot(ZYPPER, board, driver, "570.124.06", **asked)
    life.a_run_changes_nothing(driver, board, **asked)


def test_another_branch_is_refused_until_the_settings_allow_it_and_fabric_manager_moves_along(
    board: Node, driver: Driver
) -> None:
    life.another_branch_is_refused_until_the_settings_allow_it(ZYPPER, board, driver, version="580.95.05")
    life.fabric_manager_has_moved_along(ZYPPER, board, "580.95.05")
    life.the_boot_brings_it(board, driver, "580.95.05", version="580.95.05")


def test_locks_that_are_not_wanted_any_more_leave_nothing_behind_but_somebody_else_s(
    board: Node, driver: Driver
) -> None:
    life.holds_go_and_come_and_somebody_else_s_stays(ZYPPER, board, driver, "580.95.05")


def test_a_module_that_does_not_load_is_rolled_back_from_saved_files_with_its_locks(
    board: Node, driver: Driver
) -> None:
    life.a_module_that_does_not_load_is_rolled_back(ZYPPER, board, driver, "580.95.05")
    life.what_is_there_is_still_what_is_asked(board, driver, version="580.95.05")


def test_a_driver_that_could_not_come_back_is_not_changed(board: Node, driver: Driver) -> None:
    life.a_driver_that_could_not_come_back_is_not_changed(ZYPPER, board, driver, version="580.82.07")


def test_the_other_flavour_takes_the_place_of_the_one_that_is_there(board: Node, driver: Driver) -> None:
    life.the_other_flavour_takes_the_place(ZYPPER, board, driver, "580.95.05", others=["curl"])
