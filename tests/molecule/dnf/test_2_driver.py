"""The life of a driver by dnf, and the ways in which it must not end.

The tests follow each other. SIMULATED: the distribution, GPUs, NVSwitches, the driver's modules and daemons; dnf, rpm,
versionlock, module streams and systemd are real.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from lab.packages.driver import BROKEN_VERSION
from tests.molecule.conftest import LAB
from tests.molecule.driver_alone import LOADED, ON_DISK, Driver, out

UNITS = "nvidia-fabricmanager nvidia-persistenced"
LOCKS = "/etc/dnf/plugins/versionlock.list"
STREAM = "cat /etc/dnf/modules.d/nvidia-driver.module"
LABS_CUDA = (
    "printf '[x]\\nname=x\\nbaseurl=http://127.0.0.1:8900/dnf/cuda/rhel9/x86_64\\ngpgcheck=1\\n'"
    " > /etc/yum.repos.d/x.repo"
)
GONE = "/etc/yum.repos.d/gone.repo"
SET = "rpm -qa --qf '%{NAME} %{VERSION}\\n' '*nvidia*' 'cuda-drivers*' | sort"


@pytest.fixture(scope="module")
def plain() -> Node:
    """Return a fresh node without NVSwitches: there is no fabric manager of the transitional version."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="h100-80gb")


@pytest.fixture(scope="module")
def board() -> Node:
    """Return the node made anew, with NVSwitches: for the tests after those of `plain`."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="hgx-h100")


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def versions(node: Node) -> set[str]:
    return {line.split()[1] for line in out(node, SET).splitlines()}


def names(node: Node) -> list[str]:
    return [line.split()[0] for line in out(node, SET).splitlines()]


def locked(node: Node) -> list[str]:
    entries = [line for line in out(node, f"cat {LOCKS}").splitlines() if line and not line.startswith("#")]
    return sorted(entry.rpartition(":")[0].rpartition("-")[0] for entry in entries)


def test_a_transitional_package_is_refused_by_the_second_gate(plain: Node, driver: Driver) -> None:
    run = driver.run(plain, branch="575")
    assert run.code == 1
    assert "dnf would refuse" in run.printed
    # Which of the two that it needs dnf names first is its own affair.
    assert "package nvidia-open-3:575.64.05-1.el9.x86_64 requires" in run.printed
    assert ">= 3:580" in run.printed
    assert "is filtered out by modular filtering" in run.printed
    assert "nothing was changed" in run.printed
    assert lab_nodes.run(plain, SET).stdout == ""
    # What dnf was asked, it was asked of a stream that the node itself has not been given.
    assert lab_nodes.run(plain, STREAM).returncode != 0


def test_a_version_that_is_not_there_is_refused_with_those_that_are(plain: Node, driver: Driver) -> None:
    run = driver.run(plain, version="570.999.01")
    assert run.code == 1
    assert "nvidia-open is not to be had at 570.999.01" in run.printed
    assert "3:570.172.08-1.el9" in run.printed


def test_a_first_driver_that_does_not_load_leaves_neither_packages_nor_its_stream(plain: Node, driver: Driver) -> None:
    failed = driver.run(plain, version=BROKEN_VERSION)
    assert failed.code == 1
    assert f"the module {BROKEN_VERSION} is installed and does not load" in failed.printed
    assert lab_nodes.run(plain, SET).stdout == ""
    assert lab_nodes.run(plain, STREAM).returncode != 0
    assert lab_nodes.run(plain, ON_DISK).stdout == ""


def test_another_branch_s_stream_does_not_hinder_and_the_set_comes_at_one_version_and_is_locked(
    board: Node, driver: Driver, start_times: Callable[[Node], str]
) -> None:
    # Of a repository that gpunode has not been told of yet.
    out(board, f"{LABS_CUDA}; dnf -q -y module enable nvidia-driver:595-open; rm /etc/yum.repos.d/x.repo")
    # Of somebody's, and gone: it never could be read.
    out(board, f"printf '[gone]\\nname=x\\nbaseurl=http://127.0.0.1:1/x\\n' > {GONE}")
    first = driver.run(board, version="570.124.06")
    assert first.code == 0, first.printed
    out(board, f"rm {GONE}")
    assert out(board, LOADED) == "570.124.06"
    assert "stream=570-open" in out(board, STREAM)
    assert versions(board) == {"570.124.06"}
    assert "nvidia-fabric-manager" in names(board)
    assert locked(board) == names(board)
    assert lab_nodes.run(board, f"systemctl is-active {UNITS}").stdout.split() == ["active", "active"]
    settled = start_times(board)
    second = driver.run(board, version="570.124.06")
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    assert start_times(board) == settled
    assert driver.drift(board, version="570.124.06").code == 0


def test_an_upgrade_of_the_system_does_not_move_what_is_locked(board: Node) -> None:
    # Within the stream there is a newer version, and without the locks it would come.
    loose = lab_nodes.run(board, "dnf --assumeno --disableplugin=versionlock upgrade").stdout
    assert "3:570.172.08-1.el9" in loose
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.0"
    out(board, "dnf -q -y upgrade")
    assert out(board, "rpm -q --qf '%{VERSION}' curl") == "1.1"
    assert versions(board) == {"570.124.06"}


def test_an_upgrade_within_the_branch_moves_the_whole_set_and_waits_for_the_boot(board: Node, driver: Driver) -> None:
    run = driver.run(board, branch="570", version="570.172.08")
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    assert versions(board) == {"570.172.08"}
    assert (out(board, LOADED), out(board, ON_DISK)) == ("570.124.06", "570.172.08")
    saved = out(board, "ls /var/lib/gpunode/transactions/driver/rpms").split()
    assert len(saved) == len(names(board))
    assert all("570.124.06-1" in name for name in saved)
    assert "570.172.08" in out(board, f"cat {LOCKS}")
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
    assert versions(board) == {"580.95.05"}
    assert "nvidia-fabricmanager" in names(board)
    assert "nvidia-fabric-manager" not in names(board)
    assert "stream=580-open" in out(board, STREAM)
    assert locked(board) == names(board)
    lab_nodes.reboot(board)
    assert out(board, LOADED) == "580.95.05"
    assert driver.run(board, version="580.95.05").code == 0
    assert driver.drift(board, version="580.95.05").code == 0


def test_locks_that_are_not_wanted_any_more_leave_nothing_behind_but_somebody_else_s(
    board: Node, driver: Driver
) -> None:
    out(board, f"echo 'curl-0:1.1-1.el9.*' >> {LOCKS}")
    run = driver.run(board, version="580.95.05", hold=False)
    assert run.code == 0, run.printed
    assert out(board, f"cat {LOCKS}") == "curl-0:1.1-1.el9.*"
    assert driver.run(board, version="580.95.05", hold=False).operations("success") == {}
    back = driver.run(board, version="580.95.05")
    assert set(back.operations("success")) == {"Hold the NVIDIA driver", "Record what was applied"}
    assert locked(board) == sorted([*names(board), "curl"])


def test_a_module_that_does_not_load_is_rolled_back_from_saved_files_with_stream_and_locks(
    board: Node, driver: Driver
) -> None:
    before = out(board, f"{SET}; {STREAM}; cat {LOCKS}")
    out(board, "systemctl stop nvidia-persistenced nvidia-fabricmanager; rmmod nvidia_uvm; rmmod nvidia")
    failed = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert failed.code == 1
    assert f"the module {BROKEN_VERSION} is installed and does not load" in failed.printed
    assert out(board, f"{SET}; {STREAM}; cat {LOCKS}") == before
    assert out(board, LOADED) == "580.95.05"
    assert out(board, "dnf -q check") == ""
    again = driver.run(board, version=BROKEN_VERSION, allow_branch_change=True)
    assert again.code == 1
    assert "this was tried before and put back" in again.printed
    settled = driver.run(board, version="580.95.05")
    assert settled.code == 0, settled.printed
    assert driver.drift(board, version="580.95.05").code == 0


def test_a_driver_that_could_not_come_back_is_not_changed(board: Node, driver: Driver) -> None:
    # A package that no repository has: made of one that is there, under another name.
    out(board, "rm -f /var/lib/gpunode/transactions/driver.json")
    spec = (
        "Name: nvidia-extra\\nVersion: 580.95.05\\nRelease: 1\\nSummary: x\\nLicense: x\\nBuildArch: noarch\\n"
        "%%description\\nx\\n%%files\\n"
    )
    out(board, f"printf '{spec}' > /root/x.spec && rpmbuild -bb --quiet --define '_rpmdir /root' /root/x.spec")
    out(board, "rpm -i /root/noarch/nvidia-extra-*.rpm")
    before = out(board, SET)
    refused = driver.run(board, version="580.82.07")
    assert refused.code == 1
    assert "rollback would not be possible" in refused.printed
    assert "nvidia-extra=580.95.05-1" in refused.printed
    assert out(board, SET) == before
    out(board, "rpm -e nvidia-extra")


def test_the_other_flavour_takes_the_place_of_the_one_that_is_there(board: Node, driver: Driver) -> None:
    run = driver.run(board, version="580.95.05", flavour="proprietary")
    assert run.code == 0, run.printed
    assert "cuda-drivers" in names(board)
    assert "kmod-nvidia-latest-dkms" in names(board)
    assert "nvidia-open" not in names(board)
    assert "kmod-nvidia-open-dkms" not in names(board)
    assert "stream=580-dkms" in out(board, STREAM)
    assert locked(board) == sorted([*names(board), "curl"])
