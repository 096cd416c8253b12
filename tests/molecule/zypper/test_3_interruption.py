"""A change of the driver that ends in its middle: zypper is killed, or the power is lost, while rpm is at work.

The tests follow each other. It strikes by a file trigger of rpm's, once nvidia-smi of the new driver is on the disk:
zypper calls rpm package by package, so that some are of the new version then, and some of the old. SIMULATED: the
distribution, GPUs, the driver's packages, and the loss of power, which is a container that ends without a shutdown;
zypper, rpm and systemd are real.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import LAB, only_slow
from tests.molecule.dnf.test_3_interruption import FAULT, POWER_LOST, seen_state, strike
from tests.molecule.driver_alone import LOADED, ON_DISK, Driver, out
from tests.molecule.zypper.test_2_driver import LOCKS, SET, names, versions

pytestmark = only_slow
OLD, NEW = "580.82.07", "580.95.05"
STATE = f"{SET}; cat {LOCKS}"
KILLED = "pkill -KILL -x zypper"


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node on which a fault can strike in the middle of a transaction of rpm's."""
    fresh = lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="h100-80gb")
    out(fresh, f"cat > /root/fault.spec <<'END'\n{FAULT}END\n")
    out(fresh, "rpmbuild -bb --quiet --define '_rpmdir /root' /root/fault.spec && rpm -i /root/noarch/lab-fault-*.rpm")
    return fresh


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def whole(node: Node, version: str) -> None:
    """Assert that the node has one driver, all of one version."""
    assert versions(node) == {version}
    assert len(names(node)) == len(set(names(node)))
    assert "satisfied" in out(node, "zypper -n --no-refresh verify")
    assert out(node, ON_DISK) == version


def test_zypper_that_is_killed_in_the_middle_leaves_the_driver_and_the_locks_of_before(
    node: Node, driver: Driver
) -> None:
    assert driver.run(node, version=OLD).code == 0
    before = out(node, STATE)
    strike(node, KILLED)
    failed = driver.run(node, version=NEW)
    assert failed.code == 1
    assert "putting back what was there before" in failed.printed
    assert "zypper failed: it was killed (signal 9)" in failed.printed
    assert out(node, "ls /run/struck") == "/run/struck"
    assert out(node, STATE) == before
    whole(node, OLD)
    assert out(node, LOADED) == OLD
    assert driver.drift(node, version=OLD).code == 0


def test_a_loss_of_power_in_the_middle_is_undone_by_the_next_run_which_then_installs(
    node: Node, driver: Driver
) -> None:
    booted = lab_nodes.booted(node)
    strike(node, POWER_LOST)
    failed = driver.run(node, version=NEW)
    assert failed.code == 1
    deadline = time.monotonic() + 60
    while lab_nodes.booted(node) in ("", booted) or seen_state(node) not in ("running", "degraded"):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    # Some packages are of each version, and the locks are lifted: nothing of this is whole.
    assert versions(node) == {OLD, NEW}
    healed = driver.run(node, version=NEW)
    assert healed.code == 0, healed.printed
    assert "of an earlier run was interrupted; it is undone first" in healed.printed
    whole(node, NEW)
    again = driver.run(node, version=NEW)
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    assert driver.drift(node, version=NEW).code == 0
