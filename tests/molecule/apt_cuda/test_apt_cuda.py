"""The life of a driver from NVIDIA's repository, and the ways in which it must not end.

The tests of a node follow each other. SIMULATED: GPUs, NVSwitches, the driver's modules and daemons; apt, dpkg, systemd
and the packages are real.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from lab.packages.driver import BROKEN_VERSION
from tests.molecule.conftest import LAB, Run, command, inventory_with

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
UNITS = ("nvidia-fabricmanager", "nvidia-persistenced")
PINS = "/etc/apt/preferences.d/gpunode-driver"
BLACKLIST = "/etc/apt/apt.conf.d/52gpunode-driver"
LOADED = "cat /sys/module/nvidia/version"
ON_DISK = "modinfo -F version nvidia"
SET = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' '*nvidia*' | grep '^installed ' | cut -d' ' -f2-"


@pytest.fixture(scope="module")
def board() -> Node:
    """Return a fresh node with NVSwitches."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="hgx-h100")


@pytest.fixture(scope="module")
def plain() -> Node:
    """Return a fresh node without any."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-2"))


class Driver:
    """Ask for a driver on one node, and for nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def inventory(self, node: Node, **asked: object) -> str:
        return inventory_with(self.folder, {node.name: {**ALONE, "driver": asked}})

    def run(self, node: Node, **asked: object) -> Run:
        path = self.inventory(node, **asked)
        return command("pyinfra", "-y", "--json", "--limit", node.name, path, "deploys/gpu_node.py")

    def drift(self, node: Node, **asked: object) -> Run:
        # The other node is none of this test's business.
        path = Path(self.inventory(node, **asked))
        path.write_text(path.read_text() + f"nodes = [entry for entry in nodes if entry[0] == {node.name!r}]\n")
        return command("gpunode", "drift", str(path))


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def out(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def states(node: Node) -> list[str]:
    return lab_nodes.run(node, f"systemctl is-active {' '.join(UNITS)}").stdout.split()


def versions(node: Node) -> set[str]:
    return {line.split()[1] for line in out(node, SET).splitlines()}


def booted(node: Node) -> None:
    """Reboot the node, and wait until it is up again."""
    started = "systemctl show -p UserspaceTimestampMonotonic --value"
    before = out(node, started)
    lab_nodes.run(node, "systemctl --no-block reboot")
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        now = lab_nodes.run(node, started).stdout.strip()
        up = lab_nodes.run(node, "systemctl is-system-running; systemctl is-active ssh").stdout.split()
        if now and now != before and up in (["running", "active"], ["degraded", "active"]):
            return
        time.sleep(0.3)
    raise AssertionError(f"{node.name} did not come back")


def test_the_set_comes_at_one_version_and_is_held_and_the_second_run_changes_and_restarts_nothing(
    board: Node, driver: Driver, start_times: Callable[[Node], str]
) -> None:
    first = driver.run(board, version="570.124.06")
    assert first.code == 0, first.printed
    assert out(board, LOADED) == "570.124.06"
    assert versions(board) == {"570.124.06-1"}
    assert "nvidia-fabricmanager-570" in out(board, SET)
    assert out(board, "apt-mark showhold").split() == [line.split()[0] for line in out(board, SET).splitlines()]
    assert states(board) == ["active", "active"]
    settled = start_times(board)
    second = driver.run(board, version="570.124.06")
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    assert start_times(board) == settled
    assert driver.drift(board, version="570.124.06").code == 0


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
    out(board, "rm -f /var/cache/apt/archives/*nvidia*.deb")
    run = driver.run(board, branch="570", version="570.172.08")
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    assert versions(board) == {"570.172.08-1"}
    assert (out(board, LOADED), out(board, ON_DISK)) == ("570.124.06", "570.172.08")
    saved = out(board, "ls /var/lib/gpunode/transactions/driver/debs").split()
    assert len(saved) == len(out(board, SET).splitlines())
    assert all("570.124.06-1" in name for name in saved)
    again = driver.run(board, branch="570", version="570.172.08")
    assert (again.code, again.operations("success")) == (0, {}), again.printed


def test_another_branch_is_refused_until_the_settings_allow_it_and_fabric_manager_moves_along(
    board: Node, driver: Driver
) -> None:
    before = out(board, SET)
    refused = driver.run(board, version="580.95.05")
    assert refused.code == 1
    assert "driver.allow_branch_change = True" in refused.printed
    assert out(board, SET) == before
    run = driver.run(board, version="580.95.05", allow_branch_change=True)
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    assert versions(board) == {"580.95.05-1"}
    assert "nvidia-fabricmanager 580.95.05-1" in out(board, SET)
    assert "nvidia-fabricmanager-570" not in out(board, SET)
    held = out(board, "apt-mark showhold").split()
    assert held == [line.split()[0] for line in out(board, SET).splitlines()]
    booted(board)
    assert out(board, LOADED) == "580.95.05"
    assert states(board) == ["active", "active"]
    settled = driver.run(board, version="580.95.05")
    assert settled.code == 0, settled.printed
    # The boot has loaded the new module: now it is proven, and the way back is given up.
    assert set(settled.operations("success")) == {"Load the NVIDIA kernel module", "Record what was applied"}
    assert driver.drift(board, version="580.95.05").code == 0


def test_module_parameters_are_written_and_go_again(board: Node, driver: Driver) -> None:
    path = "/etc/modprobe.d/gpunode-nvidia.conf"
    run = driver.run(board, version="580.95.05", module_parameters={"NVreg_EnableGpuFirmware": "0"})
    assert set(run.operations("success")) == {"Set the NVIDIA module's parameters", "Record what was applied"}
    assert "options nvidia NVreg_EnableGpuFirmware=0" in out(board, f"cat {path}")
    run = driver.run(board, version="580.95.05")
    assert set(run.operations("success")) == {"Remove the NVIDIA module's parameters", "Record what was applied"}
    assert lab_nodes.run(board, f"test -e {path}").returncode != 0


def test_holds_that_are_not_wanted_any_more_leave_nothing_behind_but_somebody_else_s(
    board: Node, driver: Driver
) -> None:
    out(board, "apt-mark hold tar")
    run = driver.run(board, version="580.95.05", hold=False)
    assert run.code == 0, run.printed
    assert out(board, "apt-mark showhold") == "tar"
    assert lab_nodes.run(board, f"ls {PINS} {BLACKLIST}").stdout == ""
    assert driver.run(board, version="580.95.05", hold=False).operations("success") == {}
    back = driver.run(board, version="580.95.05")
    assert set(back.operations("success")) == {"Hold the NVIDIA driver", "Record what was applied"}
    assert "nvidia-open" in out(board, "apt-mark showhold").split()
    out(board, "apt-mark unhold tar")


def test_a_module_that_does_not_load_after_the_boot_is_rolled_back_and_both_reasons_are_told(
    board: Node, driver: Driver
) -> None:
    before = out(board, f"{SET}; apt-mark showhold; apt-mark showauto | grep nvidia; cat {PINS} {BLACKLIST}")
    pending = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert pending.code == 0, pending.printed
    assert out(board, ON_DISK) == BROKEN_VERSION
    booted(board)
    assert lab_nodes.run(board, LOADED).returncode != 0
    failed = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert failed.code == 1
    assert f"the nvidia module on disk ({BROKEN_VERSION}) cannot be loaded" in failed.printed
    assert "it came with the last change of the driver, which is undone" in failed.printed
    assert "the driver of before is back; loaded is 580.95.05" in failed.printed
    assert out(board, LOADED) == "580.95.05"
    assert out(board, f"{SET}; apt-mark showhold; apt-mark showauto | grep nvidia; cat {PINS} {BLACKLIST}") == before
    assert states(board) == ["active", "active"]
    again = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert again.code == 1
    assert f"this was tried before and put back: the module {BROKEN_VERSION} does not load" in again.printed
    assert versions(board) == {"580.95.05-1"}
    settled = driver.run(board, version="580.95.05")
    assert settled.code == 0, settled.printed
    assert driver.drift(board, version="580.95.05").code == 0


def test_a_module_that_does_not_load_at_once_is_rolled_back_at_once(board: Node, driver: Driver) -> None:
    out(board, "rm -f /var/lib/gpunode/transactions/driver.json; rmmod nvidia_uvm; rmmod nvidia")
    failed = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert failed.code == 1
    assert f"the module {BROKEN_VERSION} is installed and does not load" in failed.printed
    assert versions(board) == {"580.95.05-1"}
    assert out(board, LOADED) == "580.95.05"
    assert driver.drift(board, version="580.95.05").code == 0


def test_a_transitional_package_is_refused_by_the_second_gate(plain: Node, driver: Driver) -> None:
    run = driver.run(plain, branch="575")
    assert run.code == 1
    assert "is not of branch 575: a package that is asked for is a transitional one" in run.printed
    assert "nothing was changed" in run.printed
    assert lab_nodes.run(plain, SET).stdout == ""


def test_a_first_driver_that_does_not_load_is_removed_and_another_one_comes(plain: Node, driver: Driver) -> None:
    failed = driver.run(plain, version=BROKEN_VERSION)
    assert failed.code == 1
    assert f"the module {BROKEN_VERSION} is installed and does not load" in failed.printed
    assert lab_nodes.run(plain, SET).stdout == ""
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
    before = out(plain, SET)
    refused = driver.run(plain, version="580.95.05")
    assert refused.code == 1
    assert "rollback would not be possible" in refused.printed
    assert "libnvidia-extra=580.82.07-1" in refused.printed
    assert "driver.rollback = 'best-effort'" in refused.printed
    assert out(plain, SET) == before
    # What could be saved comes back even so.
    out(plain, "rmmod nvidia_uvm; rmmod nvidia")
    failed = driver.run(plain, version=BROKEN_VERSION, allow_branch_change=True, rollback="best-effort")
    assert failed.code == 1
    assert (out(plain, SET), out(plain, LOADED)) == (before, "580.82.07")
    run = driver.run(plain, version="580.95.05", rollback="best-effort")
    assert run.code == 0, run.printed
    log = out(plain, "cat /var/lib/gpunode/transactions/driver.log")
    assert "there will be no way back for libnvidia-extra=580.82.07-1" in log
    assert versions(plain) == {"580.95.05-1", "580.82.07-1"}
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
    healed = driver.run(plain, version="580.82.07")
    assert healed.code == 0, healed.printed
    assert "of an earlier run was interrupted; it is undone first" in healed.printed
    assert versions(plain) == {"580.82.07-1"}
    assert out(plain, "dpkg --audit") == ""
    again = driver.run(plain, version="580.82.07")
    assert (again.code, again.operations("success")) == (0, {}), again.printed
