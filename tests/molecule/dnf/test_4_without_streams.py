"""A driver from a repository without module streams, as RHEL 10 has it: what binds the set to one version is gpunode.

In this repository the metapackages are content with newer versions of what they need. SIMULATED: the distribution (the
node says that it is Rocky Linux 10, whose dnf is a 4 like the others'), GPUs, the driver's packages; dnf, rpm and
versionlock are real.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import LAB
from tests.molecule.dnf.test_2_driver import locked, names, versions
from tests.molecule.driver_alone import Driver, out

ROCKY_10 = "sed -i 's/9\\.6/10.0/; s/el9/el10/' /etc/os-release"


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node that says that it is Rocky Linux 10."""
    fresh = lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="hgx-h100")
    out(fresh, ROCKY_10)
    return fresh


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def test_all_packages_come_at_the_asked_version_though_newer_ones_are_there(node: Node, driver: Driver) -> None:
    run = driver.run(node, version="580.82.07")
    assert run.code == 0, run.printed
    assert "rhel10" in out(node, "cat /etc/yum.repos.d/gpunode-cuda.repo")
    assert lab_nodes.run(node, "dnf -q -C module list nvidia-driver").returncode != 0
    assert "3:595" in out(node, "dnf -q -C repoquery --showduplicates libnvidia-ml")
    assert versions(node) == {"580.82.07"}
    assert "nvidia-fabricmanager" in names(node)
    assert locked(node) == names(node)
    again = driver.run(node, version="580.82.07")
    assert (again.code, again.operations("success")) == (0, {}), again.printed


def test_an_upgrade_of_the_system_moves_none_of_it(node: Node, driver: Driver) -> None:
    loose = lab_nodes.run(node, "dnf --assumeno --disableplugin=versionlock upgrade").stdout
    assert "3:595" in loose
    out(node, "dnf -q -y upgrade")
    assert versions(node) == {"580.82.07"}
    run = driver.run(node, version="580.95.05")
    assert run.code == 0, run.printed
    assert versions(node) == {"580.95.05"}
    assert out(node, "dnf -q check") == ""
