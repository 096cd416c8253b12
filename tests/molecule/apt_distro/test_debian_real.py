"""Debian's real driver packages, of the real archive, on a node without a GPU: they install, and that is no success.

Nothing of them is SIMULATED; there is no kernel in the node, so that DKMS has nothing to build for (scenario dkms).
"""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.apt_distro.archive_nodes import OURS, SET, Driver, ended, versions
from tests.molecule.conftest import LAB, out

ASKED: dict[str, Any] = {"flavour": "proprietary", "without_gpu": "install"}


@pytest.fixture(scope="module")
def bare() -> Node:
    """Return a fresh node without a GPU."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-2"), gpus=0)


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("inventory"))


def test_a_node_without_a_gpu_is_refused_until_the_settings_say_otherwise(bare: Node, driver: Driver) -> None:
    refused = driver.run(bare, flavour="proprietary")
    assert refused.code == 1
    assert "no NVIDIA GPU is on the PCI bus" in refused.printed
    assert "set driver.without_gpu = 'install'" in refused.printed
    assert out(bare, f"{SET}; ls /etc/apt/sources.list.d") == "debian.sources"


def test_debian_s_real_packages_install_and_the_verdict_is_no_gpu(bare: Node, driver: Driver) -> None:
    run = driver.run(bare, **ASKED)
    assert run.code == 1
    assert "unsupported: driver: GPU is no GPU, desired an NVIDIA GPU on the PCI bus" in run.printed
    assert ended(run, "Error") == ["Verify the node"], run.printed
    there = versions(bare)
    assert {"nvidia-kernel-dkms", "nvidia-smi", "libnvidia-ml1", "firmware-nvidia-gsp"} <= set(there)
    assert there["nvidia-kernel-dkms"].startswith("535.")
    assert not any(name.startswith("xserver-xorg") for name in there), "a node has no use for X"
    # The firmware is in a component that the node's own entry does not enable.
    assert "Components: non-free-firmware\n" in out(bare, f"cat {OURS}") + "\n"
    assert lab_nodes.run(bare, "nvidia-smi").returncode == 9
    assert f"nvidia-current/{there['nvidia-kernel-dkms'].split('-')[0]}: added" in out(bare, "dkms status")
    # The alternatives system is no part of the driver.
    assert set(there) - {"glx-alternative-nvidia"} <= set(out(bare, "apt-mark showhold").split())


def test_a_second_run_changes_nothing_and_drift_says_the_same(bare: Node, driver: Driver) -> None:
    again = driver.run(bare, **ASKED)
    assert (again.code, ended(again, "Success")) == (1, []), again.printed
    drift = driver.drift(bare, **ASKED)
    assert drift.code == 2
    assert "gpu-2: unsupported, 9 of 10 as desired" in drift.printed, drift.printed


def test_an_entry_of_the_node_s_own_makes_gpunode_s_go(bare: Node, driver: Driver) -> None:
    out(bare, "sed -i 's/non-free$/non-free non-free-firmware/' /etc/apt/sources.list.d/debian.sources")
    run = driver.run(bare, **ASKED)
    assert ended(run, "Success") == ["Read the components of Debian's archive that hold the driver"]
    assert lab_nodes.run(bare, f"test -e {OURS}").returncode != 0


def test_what_the_archive_lacks_is_refused_before_anything_is_changed(bare: Node, driver: Driver) -> None:
    before = out(bare, SET)
    plan = driver.plan(bare, **ASKED, branch="580")
    assert plan.code == 2
    assert "nvidia-kernel-dkms at 535." in plan.printed
    run = driver.run(bare, **ASKED, branch="580")
    assert run.code == 1
    assert "at 580; the repositories have 535." in run.printed
    assert out(bare, SET) == before
