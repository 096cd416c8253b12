"""The life of a driver by dnf, and the ways in which it must not end (driver_life has the text).
 SIMULATED: the distribution, GPUs, NVSwitches, the driver's modules and daemons; dnf, rpm,
versionlock, module streams and systemd are real.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule import driver_life as life
from tests.molecule.conftest import out
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import DNF, STREAM

pytestmark = pytest.mark.life

LABS_CUDA = (
    "printf '[x]\\nname=x\\nbaseurl=http://127.0.0.1:8900/dnf/cuda/rhel9/x86_64\\ngpgcheck=1\\n'"
    " > /etc/yum.repos.d/x.repo"
)
GONE = "/etc/yum.repos.d/gone.repo"


def test_a_transitional_package_is_refused_by_the_second_gate(plain: Node, driver: Driver) -> None:
    life.a_transitional_package_is_refused(DNF, plain, driver)


def test_a_version_that_is_not_there_is_refused_with_those_that_are(plain: Node, driver: Driver) -> None:
    life.a_version_that_is_not_there_is_refused(DNF, plain, driver)


def test_a_first_driver_that_does_not_load_leaves_neither_packages_nor_its_stream(plain: Node, driver: Driver) -> None:
    life.a_first_driver_that_does_not_load_leaves_nothing(DNF, plain, driver)


def test_another_branch_s_stream_does_not_hinder_and_the_set_comes_at_one_version_and_is_locked(
    board: Node, driver: Driver, start_times: Callable[[Node], str]
) -> None:
    # Of a repository that gpunode has not been told of yet.
    out(board, f"{LABS_CUDA}; dnf -q -y module enable nvidia-driver:595-open; rm /etc/yum.repos.d/x.repo")
    # Of somebody's, and gone: it never could be read.
    out(board, f"printf '[gone]\\nname=x\\nbaseurl=http://127.0.0.1:1/x\\n' > {GONE}")
    life.the_set_comes_at_one_version_and_is_held(DNF, board, driver, "570.124.06")
    assert "stream=570-open" in out(board, STREAM)
    out(board, f"rm {GONE}")
    life.a_second_run_changes_and_restarts_nothing(board, driver, start_times, version="570.124.06")


def test_an_upgrade_of_the_system_does_not_move_what_is_locked(board: Node) -> None:
    # Within the stream there is a newer version, and without the locks it would come.
    loose = lab_nodes.run(board, "dnf --assumeno --disableplugin=versionlock upgrade").stdout
    assert "3:570.172.08-1.el9" in loose
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.0"
    out(board, "dnf -q -y upgrade")
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.1"
    assert DNF.versions(board) == {"570.124.06"}


def test_an_upgrade_within_the_branch_moves_the_whole_set_and_waits_for_the_boot(board: Node, driver: Driver) -> None:
    asked = {"branch": "570", "version": "570.172.08"}
    life.an_upgrade_within_the_branch_waits_for_the_boot(DNF, board, driver, "570.124.06", **asked)
    assert "570.172.08" in out(board, DNF.holds)
    life.a_run_changes_nothing(driver, board, **asked)


def test_another_branch_is_refused_until_the_settings_allow_it_and_fabric_manager_moves_along(
    board: Node, driver: Driver
) -> None:
    life.another_branch_is_refused_until_the_settings_allow_it(DNF, board, driver, version="580.95.05")
    life.fabric_manager_has_moved_along(DNF, board, "580.95.05")
    assert "stream=580-open" in out(board, STREAM)
    life.the_boot_brings_it(board, driver, "580.95.05", version="580.95.05")


def test_locks_that_are_not_wanted_any_more_leave_nothing_behind_but_somebody_else_s(
    board: Node, driver: Driver
) -> None:
    life.holds_go_and_come_and_somebody_else_s_stays(DNF, board, driver, "580.95.05")


def test_a_module_that_does_not_load_is_rolled_back_from_saved_files_with_stream_and_locks(
    board: Node, driver: Driver
) -> None:
    life.a_module_that_does_not_load_is_rolled_back(DNF, board, driver, "580.95.05")
    life.what_is_there_is_still_what_is_asked(board, driver, version="580.95.05")


def test_a_driver_that_could_not_come_back_is_not_changed(board: Node, driver: Driver) -> None:
    life.a_driver_that_could_not_come_back_is_not_changed(DNF, board, driver, version="580.82.07")


def test_the_other_flavour_takes_the_place_of_the_one_that_is_there(board: Node, driver: Driver) -> None:
    life.the_other_flavour_takes_the_place(DNF, board, driver, "580.95.05", others=["curl"])
    assert "stream=580-dkms" in out(board, STREAM)
