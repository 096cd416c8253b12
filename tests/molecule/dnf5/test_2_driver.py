"""The life of a driver by dnf 5 (driver_life has the text).
 SIMULATED: the distribution, GPUs, NVSwitches, the driver's modules and daemons; dnf 5,
rpm, versionlock and systemd are real.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule import driver_life as life
from tests.molecule.conftest import out
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import DNF5

pytestmark = pytest.mark.life

GONE = "/etc/yum.repos.d/gone.repo"


def test_a_version_that_is_not_there_is_refused_with_those_that_are(board: Node, driver: Driver) -> None:
    life.a_version_that_is_not_there_is_refused(DNF5, board, driver, "580.999.01")


def test_the_set_comes_at_one_version_though_newer_ones_are_there_and_is_locked(
    board: Node, driver: Driver, start_times: Callable[[Node], str]
) -> None:
    # Of somebody's, and gone: it never could be read.
    out(board, f"printf '[gone]\\nname=x\\nbaseurl=http://127.0.0.1:1/x\\n' > {GONE}")
    life.the_set_comes_at_one_version_and_is_held(DNF5, board, driver, "580.82.07")
    out(board, f"rm {GONE}")
    life.a_second_run_changes_and_restarts_nothing(board, driver, start_times, version="580.82.07")


def test_an_upgrade_of_the_system_does_not_move_what_is_locked(board: Node) -> None:
    unlocked = (
        "sed 's/evr/no/' /etc/dnf/versionlock.toml > /run/loose && mount --bind /run/loose /etc/dnf/versionlock.toml"
    )
    loose = lab_nodes.run(board, f"unshare --mount sh -c '{unlocked}; dnf5 --assumeno upgrade'").stdout
    assert "3:595" in loose
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.0"
    out(board, "dnf5 -q -y upgrade")
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.1"
    assert DNF5.versions(board) == {"580.82.07"}


def test_an_upgrade_within_the_branch_moves_the_whole_set_and_waits_for_the_boot(board: Node, driver: Driver) -> None:
    life.an_upgrade_within_the_branch_waits_for_the_boot(DNF5, board, driver, "580.82.07", version="580.95.05")
    life.a_run_changes_nothing(driver, board, version="580.95.05")
    life.the_boot_brings_it(board, driver, "580.95.05", version="580.95.05")


def test_locks_that_are_not_wanted_any_more_leave_nothing_behind_but_somebody_else_s(
    board: Node, driver: Driver
) -> None:
    # dnf writes the whole list anew for that, and ours are known all the same.
    life.holds_go_and_come_and_somebody_else_s_stays(DNF5, board, driver, "580.95.05")
    out(board, "dnf5 -q versionlock delete curl")


def test_a_module_that_does_not_load_is_rolled_back_from_saved_files_with_its_locks(
    board: Node, driver: Driver
) -> None:
    life.a_module_that_does_not_load_is_rolled_back(DNF5, board, driver, "580.95.05")
    life.what_is_there_is_still_what_is_asked(board, driver, version="580.95.05")


def test_the_other_flavour_takes_the_place_of_the_one_that_is_there(board: Node, driver: Driver) -> None:
    life.the_other_flavour_takes_the_place(DNF5, board, driver, "580.95.05", others=[])


def test_a_downgrade_moves_the_whole_set(board: Node, driver: Driver) -> None:
    run = driver.run(board, version="580.82.07")
    assert run.code == 0, run.printed
    assert DNF5.versions(board) == {"580.82.07"}
    out(board, DNF5.sound)
