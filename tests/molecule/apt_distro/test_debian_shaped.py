"""The life of a driver from an archive of Debian's shape.

SIMULATED: GPUs, modules and packages (Debian's names, and the module nvidia-current); apt, dpkg and systemd are real.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.apt_distro.archive_nodes import LOADED, OURS, SET, Driver, debian, numbered, versions
from tests.molecule.conftest import LAB, out

pytestmark = pytest.mark.life


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node with GPUs."""
    return debian(lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="h100-80gb", gpus=2))


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("inventory"))


def test_the_driver_comes_at_one_version_and_is_held_and_the_second_run_changes_nothing(
    node: Node, driver: Driver
) -> None:
    first = driver.run(node, version="535.247.01", flavour="open")
    assert first.code == 0, first.printed
    assert out(node, LOADED) == "535.247.01"
    there = versions(node)
    assert there["nvidia-persistenced"] == "535.171.04-1~deb12u1"
    assert numbered(node) == {"535.247.01-1~deb12u1"}
    assert "nvidia-open-kernel-dkms" in there and "nvidia-kernel-dkms" not in there
    assert set(out(node, "apt-mark showhold").split()) == {*there, "libcuda1"} - {"glx-alternative-nvidia"}
    # By the node's own mirror, and by the key that the node trusts it by.
    assert "Components: contrib non-free non-free-firmware\nSigned-By: /usr/share/keyrings/lab-archive.asc" in out(
        node, f"cat {OURS}"
    )
    second = driver.run(node, version="535.247.01", flavour="open")
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    assert driver.drift(node, version="535.247.01", flavour="open").code == 0


def test_parameters_reach_the_module_under_the_name_that_debian_gives_it(node: Node, driver: Driver) -> None:
    asked: dict[str, Any] = {
        "version": "535.247.01",
        "flavour": "open",
        "module_parameters": {"NVreg_EnableGpuFirmware": "0"},
    }
    assert driver.run(node, **asked).code == 0
    assert "options nvidia-current-open NVreg_EnableGpuFirmware=0" in out(
        node, "cat /etc/modprobe.d/gpunode-nvidia.conf"
    )
    assert "softdep nvidia-current-open post: nvidia_uvm" in out(node, "cat /etc/modprobe.d/gpunode-nvidia-uvm.conf")


def test_an_upgrade_within_the_branch_waits_for_the_boot(node: Node, driver: Driver) -> None:
    # The archive has no open module at that version: refused, and nothing is changed.
    before = out(node, SET)
    refused = driver.run(node, version="535.261.03", flavour="open")
    assert refused.code == 1
    assert "535.261.03" in refused.printed
    assert out(node, SET) == before
    run = driver.run(node, version="535.261.03", flavour="proprietary")
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    there = versions(node)
    assert there["nvidia-kernel-dkms"] == there["nvidia-smi"] == "535.261.03-1"
    # Nothing but gpunode tells apt that two flavours are one too many.
    assert "nvidia-open-kernel-dkms" not in there
    lab_nodes.reboot(node)
    settled = driver.run(node, version="535.261.03", flavour="proprietary")
    assert settled.code == 0, settled.printed
    assert out(node, LOADED) == "535.261.03"
    assert driver.drift(node, version="535.261.03", flavour="proprietary").code == 0


def test_another_branch_is_refused_until_the_settings_allow_it(node: Node, driver: Driver) -> None:
    before = out(node, SET)
    refused = driver.run(node, branch="550", flavour="proprietary")
    assert refused.code == 1
    assert "driver.allow_branch_change = True" in refused.printed
    assert out(node, SET) == before
    run = driver.run(node, branch="550", flavour="proprietary", allow_branch_change=True)
    assert run.code == 0, run.printed
    assert versions(node)["nvidia-smi"] == "550.163.01-2"
    lab_nodes.reboot(node)
    assert driver.run(node, branch="550", flavour="proprietary").code == 0
    assert out(node, LOADED) == "550.163.01"


def test_with_nvidia_s_repository_trusted_for_cuda_the_driver_still_comes_from_the_archive(
    node: Node, driver: Driver
) -> None:
    # libnvidia-ml1, nvidia-persistenced and nvidia-kernel-dkms are names of both, and NVIDIA's are newer.
    asked: dict[str, Any] = {"branch": "550", "flavour": "proprietary"}
    beside: dict[str, object] = {"cuda": {"version": "12.8"}}
    run = driver.run(node, beside, **asked)
    assert run.code == 0, run.printed
    assert "libnvidia-ml1 | 595.58.03-1" in out(node, "apt-cache madison libnvidia-ml1 | tr -s ' '")
    # Damaged, so that there is something to install.
    out(node, "dpkg --purge --force-depends nvidia-smi libnvidia-ml1")
    healed = driver.run(node, beside, **asked)
    assert healed.code == 0, healed.printed
    assert numbered(node) == {"550.163.01-2"}


def test_another_source_takes_the_place_of_the_archive_and_nothing_of_it_is_left(node: Node, driver: Driver) -> None:
    asked: dict[str, Any] = {"source": "cuda-repository", "version": "580.95.05", "flavour": "proprietary"}
    run = driver.run(node, **asked, allow_branch_change=True)
    assert run.code == 0, run.printed
    assert {*numbered(node), versions(node)["nvidia-modprobe"]} == {"580.95.05-1"}
    assert lab_nodes.run(node, f"test -e {OURS}").returncode != 0
    assert "550.163.01" not in out(node, "cat /etc/apt/preferences.d/gpunode-driver")
    lab_nodes.reboot(node)
    settled = driver.run(node, **asked)
    assert settled.code == 0, settled.printed
    assert out(node, LOADED) == "580.95.05"


def test_back_to_the_archive_nothing_of_nvidia_s_repository_is_trusted_any_more(node: Node, driver: Driver) -> None:
    asked: dict[str, Any] = {"version": "550.163.01", "flavour": "proprietary"}
    run = driver.run(node, **asked, allow_branch_change=True)
    assert run.code == 0, run.printed
    there = versions(node)
    assert "cuda-drivers" not in there and not any("pinning" in name for name in there)
    assert numbered(node) == {"550.163.01-2"}
    assert "gpunode-cuda" not in out(node, "ls /etc/apt/sources.list.d /usr/share/keyrings")
    lab_nodes.reboot(node)
    settled = driver.run(node, **asked)
    assert settled.code == 0, settled.printed
    assert driver.drift(node, **asked).code == 0


def test_nvswitches_are_refused_where_the_archive_has_no_fabric_manager(driver: Driver) -> None:
    board = lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="hgx-h100")
    refused = driver.run(board, version="535.247.01")
    assert refused.code == 1
    assert "fabric manager" in refused.printed
    assert "set driver.source = 'cuda-repository'" in refused.printed
