"""A change of the driver that ends in its middle: dnf is killed, or the power is lost, while rpm is at work.

The tests follow each other. It strikes by a file trigger of rpm's, once nvidia-smi of the new driver is on the disk and
the old packages are still in rpm's database. SIMULATED: the distribution, GPUs, the driver's packages, and the loss of
power, which is a container that ends without a shutdown; dnf, rpm and systemd are real.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import LAB
from tests.molecule.dnf.test_2_driver import LOCKS, SET, STREAM, names, versions
from tests.molecule.driver_alone import LOADED, ON_DISK, Driver, out
from tests.molecule.interruption.faults import CUT

OLD, NEW = "580.82.07", "580.95.05"
STATE = f"{SET}; {STREAM}; cat {LOCKS}"
FAULT = r"""
Name: lab-fault
Version: 1
Release: 1
Summary: SIMULATED fault of gpunode's lab
License: x
BuildArch: noarch
%description
x
%filetriggerin -- /usr/bin/nvidia-smi
[ ! -x /run/at-rpm ] || { mv /run/at-rpm /run/struck; /run/struck; }
%files
"""
_KILLED = "pkill -KILL -x dnf"
# The connection first, so that the run need not wait until the node counts as silent.
POWER_LOST = f"{CUT}; systemctl reboot --force --force; sleep 60"


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


def strike(node: Node, body: str) -> None:
    """Let the fault strike once, in the next transaction that brings nvidia-smi."""
    out(node, f"rm -f /run/struck; printf '#!/bin/sh\\n%s\\n' '{body}' > /run/at-rpm && chmod 755 /run/at-rpm")


def whole(node: Node, version: str) -> None:
    """Assert that the node has one driver, all of one version, in the order that rpm and dnf want."""
    assert versions(node) == {version}
    assert len(names(node)) == len(set(names(node)))
    assert out(node, "dnf -q check") == ""
    assert out(node, ON_DISK) == version


def test_a_first_installation_that_is_killed_in_the_middle_leaves_nothing_and_the_next_run_installs(
    node: Node, driver: Driver
) -> None:
    strike(node, _KILLED)
    failed = driver.run(node, version=OLD)
    assert failed.code == 1
    assert "Traceback" not in failed.printed
    assert out(node, f"ls /run/struck; {SET}") == "/run/struck"
    run = driver.run(node, version=OLD)
    assert run.code == 0, run.printed
    whole(node, OLD)
    assert driver.drift(node, version=OLD).code == 0


def test_dnf_that_is_killed_in_the_middle_leaves_the_driver_of_before(node: Node, driver: Driver) -> None:
    before = out(node, STATE)
    strike(node, _KILLED)
    failed = driver.run(node, version=NEW)
    assert failed.code == 1
    assert "putting back what was there before" in failed.printed
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
    assert "run again when the node answers" in failed.printed
    deadline = time.monotonic() + 60
    while lab_nodes.booted(node) in ("", booted) or seen_state(node) not in ("running", "degraded"):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    # Both versions of some packages are there: nothing of this is whole.
    assert versions(node) == {OLD, NEW}
    healed = driver.run(node, version=NEW)
    assert healed.code == 0, healed.printed
    assert "of an earlier run was interrupted; it is undone first" in healed.printed
    whole(node, NEW)
    again = driver.run(node, version=NEW)
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    assert driver.drift(node, version=NEW).code == 0


def seen_state(node: Node) -> str:
    return lab_nodes.run(node, "systemctl is-system-running").stdout.strip()
