"""The life of a driver from an archive of Ubuntu's shape, on a board with NVSwitches.

SIMULATED: that the node is Ubuntu at all, its kernel, GPUs, modules and packages; apt, dpkg and systemd are real.
"""

from __future__ import annotations

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.lab.packages.archive import UBUNTU_KERNEL
from tests.molecule.apt_distro.archive_nodes import LOADED, SET, Driver, ubuntu, versions
from tests.molecule.conftest import LAB, out

pytestmark = pytest.mark.life

DRIVER = ("libnvidia-compute-{}-server", "nvidia-compute-utils-{}-server", "nvidia-fabricmanager-{}",
          "nvidia-headless-no-dkms-{}-server-open", "nvidia-utils-{}-server")  # fmt: skip
MODULES = ("linux-modules-nvidia-{}-server-open-" + UBUNTU_KERNEL,)


@pytest.fixture(scope="module")
def board() -> Node:
    """Return a fresh node with NVSwitches."""
    return ubuntu(lab_nodes.recreate(lab_nodes.node(LAB, "gpu-2"), gpu="hgx-h100", gpus=2))


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("inventory"))


def named(branch: str) -> set[str]:
    return {name.format(branch) for name in (*DRIVER, *MODULES)}


def test_the_headless_driver_comes_with_built_modules_and_fabric_manager_and_twice_is_nothing(
    board: Node, driver: Driver
) -> None:
    first = driver.run(board, version="570.172.08")
    assert first.code == 0, first.printed
    assert set(versions(board)) == named("570")
    assert out(board, LOADED) == "570.172.08"
    assert out(board, "systemctl is-active nvidia-fabricmanager nvidia-persistenced").split() == ["active"] * 2
    assert "dkms" not in out(board, "dpkg-query -W -f '${Package} '").split()
    second = driver.run(board, version="570.172.08")
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    drift = driver.drift(board, version="570.172.08")
    assert drift.code == 0, drift.printed


def test_another_branch_is_refused_then_allowed_and_fabric_manager_and_modules_move_along(
    board: Node, driver: Driver
) -> None:
    before = out(board, SET)
    refused = driver.run(board, branch="580")
    assert refused.code == 1
    assert "driver.allow_branch_change = True" in refused.printed
    assert out(board, SET) == before
    run = driver.run(board, branch="580", allow_branch_change=True)
    assert run.code == 0, run.printed
    assert set(versions(board)) == named("580")
    assert versions(board)["nvidia-fabricmanager-580"] == "580.95.05-0ubuntu0.24.04.1"
    assert set(out(board, "apt-mark showhold").split()) == named("580")
    lab_nodes.reboot(board)
    settled = driver.run(board, branch="580")
    assert settled.code == 0, settled.printed
    assert out(board, LOADED) == "580.95.05"
    assert out(board, "systemctl is-active nvidia-fabricmanager nvidia-persistenced").split() == ["active"] * 2
    assert driver.drift(board, branch="580").code == 0


def test_a_version_whose_modules_the_archive_no_longer_has_is_undone(board: Node, driver: Driver) -> None:
    before = out(board, SET)
    failed = driver.run(board, version="580.82.07")
    assert failed.code == 1
    assert "580.82.07 is installed, but for kernel" in failed.printed
    assert "on disk is 580.95.05" in failed.printed
    assert out(board, SET) == before
    assert driver.drift(board, version="580.95.05").code == 0
