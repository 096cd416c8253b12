"""A node with two of Arch's kernels: each has its module.

Which kernels a node has is read as on Arch: /usr/lib/modules/RELEASE/pkgbase and /boot/vmlinuz-PACKAGE. SIMULATED: the
kernels, which are those files alone, the distribution, GPUs and the driver's modules; pacman is real.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.lab.pacman_repository import LTS_RELEASE
from tests.molecule import driver_life as life
from tests.molecule.conftest import command, out
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import PACMAN

# The branch of which Arch had a proprietary module for either kernel.
ASKED: dict[str, object] = {"version": "580.95.05", "flavour": "proprietary"}
BOTH = "nvidia 580.95.05-14\nnvidia-lts 580.95.05-2\nnvidia-utils 580.95.05-1"
LTS_MODULE = f"modinfo -k {LTS_RELEASE} -F version nvidia"
_LTS = f"""
mkdir -p /usr/lib/modules/{LTS_RELEASE} /boot/grub; echo linux-lts > /usr/lib/modules/{LTS_RELEASE}/pkgbase
touch /boot/vmlinuz-linux /boot/vmlinuz-linux-lts
printf "menuentry 'Arch' {{\n linux /boot/vmlinuz-linux root=x\n}}\n" > /boot/grub/grub.cfg
"""


@pytest.fixture(scope="module")
def node(plain: Node) -> Node:
    """Return a fresh node with linux, which runs and boots next, and linux-lts."""
    out(plain, _LTS)
    return plain


def told(driver: Driver, node: Node) -> dict[str, Any]:
    """Return what drift tells of the spare kernel's module, and its exit code as `code`."""
    run = command("gpunode", "drift", "--json", driver.inventory(node, ASKED))
    findings = json.loads(run.stdout)["hosts"][node.name]["findings"]
    (found,) = [item for item in findings if item["what"] == f"module for kernel {LTS_RELEASE}"]
    return {**found, "code": run.code}


def test_each_of_two_kernels_gets_its_module_and_a_second_run_changes_nothing(node: Node, driver: Driver) -> None:
    first = driver.run(node, **ASKED)
    assert first.code == 0, first.printed
    assert out(node, PACMAN.installed) == BOTH
    assert out(node, LTS_MODULE) == out(node, "modinfo -F version nvidia") == "580.95.05"
    # Of either kernel another build would have no module.
    assert {"linux", "linux-lts", "nvidia", "nvidia-lts"} <= set(PACMAN.names_held(node))
    life.a_run_changes_nothing(driver, node, **ASKED)
    assert (told(driver, node)["code"], told(driver, node)["actual"]) == (0, "580.95.05")


def test_a_spare_kernel_without_its_module_is_told_with_its_package_and_no_run_changes_the_driver_for_it(
    node: Node, driver: Driver
) -> None:
    out(node, "pacman -R --noconfirm nvidia-lts")
    assert lab_nodes.run(node, LTS_MODULE).returncode != 0
    found = told(driver, node)
    assert (found["code"], found["actual"]) == (0, "none")
    assert "nvidia-lts" in found["remedy"]
    assert "has no GPU" in found["cause"]
    before = out(node, PACMAN.installed)
    run = driver.run(node, **ASKED)
    # What is gone need not be held any more.
    assert (run.code, set(run.operations("success")) - {life.RECORD}) == (0, {life.HOLD}), run.printed
    assert out(node, PACMAN.installed) == before
    life.a_run_changes_nothing(driver, node, **ASKED)


def test_a_module_of_the_next_kernel_that_was_removed_is_found_and_comes_with_that_of_the_other(
    node: Node, driver: Driver
) -> None:
    out(node, "pacman -R --noconfirm nvidia")
    assert driver.drift(node, **ASKED).code == 2
    healed = driver.run(node, **ASKED)
    assert healed.code == 0, healed.printed
    assert out(node, PACMAN.installed) == BOTH
    assert out(node, LTS_MODULE) == "580.95.05"
    assert driver.drift(node, **ASKED).code == 0
