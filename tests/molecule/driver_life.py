"""The life of a driver from its packages, and the ways in which it must not end: one text for all package managers.

Each scenario calls these in its own order, with what it alone has to say between them; what differs by package manager
stands in driver_packages. SIMULATED: GPUs, NVSwitches, the driver's modules and daemons; package managers are real.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.lab.packages.driver import BROKEN_VERSION
from tests.molecule.conftest import Run, out, tried_before
from tests.molecule.driver_alone import LOADED, ON_DISK, Driver
from tests.molecule.driver_packages import Packages

DAEMONS = "nvidia-fabricmanager nvidia-persistenced"
HOLD = "Hold the NVIDIA driver"
RECORD = "Record what was applied"


def daemons(node: Node) -> list[str]:
    """Return what systemd says of the driver's daemons."""
    return lab_nodes.run(node, f"systemctl is-active {DAEMONS}").stdout.split()


def a_transitional_package_is_refused(packages: Packages, plain: Node, driver: Driver) -> None:
    run = driver.run(plain, branch="575")
    assert run.code == 1
    for words in (*packages.transitional, "nothing was changed"):
        assert words in run.printed
    assert lab_nodes.run(plain, packages.traces).stdout == ""


def a_version_that_is_not_there_is_refused(
    packages: Packages, plain: Node, driver: Driver, version: str = "570.999.01"
) -> None:
    run = driver.run(plain, version=version)
    assert run.code == 1
    for words in packages.unknown:
        assert words in run.printed
    assert lab_nodes.run(plain, packages.installed).stdout == ""


def a_first_driver_that_does_not_load_leaves_nothing(packages: Packages, plain: Node, driver: Driver) -> None:
    failed = driver.run(plain, version=BROKEN_VERSION)
    assert failed.code == 1
    assert f"module {BROKEN_VERSION} is" in failed.printed
    assert lab_nodes.run(plain, packages.traces).stdout == ""
    assert lab_nodes.run(plain, ON_DISK).stdout == ""


def the_set_comes_at_one_version_and_is_held(
    packages: Packages, board: Node, driver: Driver, version: str, others: Collection[str] = ()
) -> None:
    """`others`: what others hold on the node."""
    first = driver.run(board, version=version)
    assert first.code == 0, first.printed
    assert out(board, LOADED) == version
    assert packages.versions(board) == {version}
    assert packages.fabric_manager_of(version) in packages.names(board)
    assert packages.names_held(board) == sorted([*packages.names(board), *others])
    assert daemons(board) == ["active", "active"]


def a_second_run_changes_and_restarts_nothing(
    node: Node, driver: Driver, start_times: Callable[[Node], str], **asked: object
) -> None:
    settled = start_times(node)
    a_run_changes_nothing(driver, node, **asked)
    assert start_times(node) == settled
    assert driver.drift(node, **asked).code == 0


def a_run_changes_nothing(driver: Driver, node: Node, **asked: object) -> None:
    run = driver.run(node, **asked)
    assert (run.code, run.operations("success")) == (0, {}), run.printed


def an_upgrade_within_the_branch_waits_for_the_boot(
    packages: Packages, node: Node, driver: Driver, old: str, **asked: object
) -> None:
    run = driver.run(node, **asked)
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    assert packages.versions(node) == {asked["version"]}
    assert (out(node, LOADED), out(node, ON_DISK)) == (old, asked["version"])
    saved = out(node, f"ls {packages.saved}").split()
    assert len(saved) == len(packages.names(node))
    assert all(old in name for name in saved)


def another_branch_is_refused_until_the_settings_allow_it(
    packages: Packages, node: Node, driver: Driver, **asked: object
) -> Run:
    """Return the run that the settings allowed."""
    before = out(node, packages.installed)
    refused = driver.run(node, **asked)
    assert refused.code == 1
    assert "driver.allow_branch_change = True" in refused.printed
    assert out(node, packages.installed) == before
    run = driver.run(node, **asked, allow_branch_change=True)
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    return run


def fabric_manager_has_moved_along(packages: Packages, board: Node, version: str) -> None:
    """`version`: one of branch 580 or newer; what was there is of an older one."""
    assert packages.versions(board) == {version}
    assert packages.fabric_manager_of(version) in packages.names(board)
    assert packages.fabric_manager_of("570") not in packages.names(board)
    assert packages.names_held(board) == sorted(packages.names(board))


def the_boot_brings_it(node: Node, driver: Driver, loaded: str, **asked: object) -> Run:
    """Boot the node, settle what waited for that, and return the run that did."""
    lab_nodes.reboot(node)
    assert out(node, LOADED) == loaded
    settled = driver.run(node, **asked)
    assert settled.code == 0, settled.printed
    # The boot has loaded the new module: now it is proven, and the way back is given up.
    assert set(settled.operations("success")) - {RECORD} == {"Load the NVIDIA kernel module"}
    assert driver.drift(node, **asked).code == 0
    return settled


def holds_go_and_come_and_somebody_else_s_stays(packages: Packages, node: Node, driver: Driver, version: str) -> None:
    hold, another = packages.hold_another
    out(node, hold)
    run = driver.run(node, version=version, hold=False)
    assert run.code == 0, run.printed
    assert packages.names_held(node) == [another]
    if packages.only_another is not None:
        assert out(node, packages.holds) == packages.only_another
    assert driver.run(node, version=version, hold=False).operations("success") == {}
    back = driver.run(node, version=version)
    assert set(back.operations("success")) == {HOLD, RECORD}
    assert packages.names_held(node) == sorted([*packages.names(node), another])


def a_module_that_does_not_load_is_rolled_back(packages: Packages, node: Node, driver: Driver, version: str) -> None:
    """`version`: what the node has."""
    before = out(node, packages.state)
    out(node, f"systemctl stop {DAEMONS} 2>/dev/null; rmmod nvidia_uvm; rmmod nvidia")
    failed = driver.run(node, version=BROKEN_VERSION, allow_branch_change=True)
    assert failed.code == 1
    assert f"module {BROKEN_VERSION} is" in failed.printed
    assert out(node, packages.state) == before
    assert out(node, LOADED) == version
    out(node, packages.sound)
    again = driver.run(node, version=BROKEN_VERSION, allow_branch_change=True)
    assert again.code == 1
    assert tried_before(again, "driver")


def what_is_there_is_still_what_is_asked(node: Node, driver: Driver, **asked: object) -> None:
    settled = driver.run(node, **asked)
    assert settled.code == 0, settled.printed
    assert driver.drift(node, **asked).code == 0


def a_driver_that_could_not_come_back_is_not_changed(
    packages: Packages, node: Node, driver: Driver, **asked: object
) -> None:
    harm, words, mended = packages.no_way_back
    out(node, f"rm -f /var/lib/gpunode/transactions/driver.json; {harm}")
    before = out(node, packages.installed)
    refused = driver.run(node, **asked)
    assert refused.code == 1
    assert "rollback" in refused.printed
    assert words in refused.printed
    assert out(node, packages.installed) == before
    out(node, mended)


def the_other_flavour_takes_the_place(
    packages: Packages, node: Node, driver: Driver, version: str, others: Collection[str]
) -> None:
    """`others`: what others hold on the node."""
    run = driver.run(node, version=version, flavour="proprietary")
    assert run.code == 0, run.printed
    names = set(packages.names(node))
    assert packages.flavours["proprietary"] <= names
    assert not packages.flavours["open"] & names
    assert packages.names_held(node) == sorted([*names, *others])
