"""A driver from a repository without module streams, as RHEL 10 has it: what binds the set to one version is gpunode.

In this repository the metapackages are content with newer versions of what they need. SIMULATED: the distribution (the
node says that it is Rocky Linux 10, whose dnf is a 4 like the others'), GPUs, the driver's packages; dnf, rpm and
versionlock are real.
"""

from __future__ import annotations

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule import driver_life as life
from tests.molecule.conftest import out
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import DNF

ROCKY_10 = "sed -i 's/9\\.6/10.0/; s/el9/el10/' /etc/os-release"


@pytest.fixture(scope="module")
def node(board: Node) -> Node:
    """Return a fresh node that says that it is Rocky Linux 10."""
    out(board, ROCKY_10)
    return board


def test_all_packages_come_at_the_asked_version_though_newer_ones_are_there(node: Node, driver: Driver) -> None:
    life.the_set_comes_at_one_version_and_is_held(DNF, node, driver, "580.82.07")
    assert "rhel10" in out(node, "cat /etc/yum.repos.d/gpunode-cuda.repo")
    assert lab_nodes.run(node, "dnf -q -C module list nvidia-driver").returncode != 0
    assert "3:595" in out(node, "dnf -q -C repoquery --showduplicates libnvidia-ml")
    life.a_run_changes_nothing(driver, node, version="580.82.07")


def test_an_upgrade_of_the_system_moves_none_of_it(node: Node, driver: Driver) -> None:
    loose = lab_nodes.run(node, "dnf --assumeno --disableplugin=versionlock upgrade").stdout
    assert "3:595" in loose
    out(node, "dnf -q -y upgrade")
    assert DNF.versions(node) == {"580.82.07"}
    run = driver.run(node, version="580.95.05")
    assert run.code == 0, run.printed
    assert DNF.versions(node) == {"580.95.05"}
    out(node, DNF.sound)
