"""A change of the driver that ends in its middle: its package manager is killed, or the power is lost, as rpm works.

It strikes by a file trigger of rpm's, once nvidia-smi of the new driver is on the disk and old packages are still in
rpm's database. SIMULATED: GPUs, the driver's packages, and the loss of power, which is a container that ends without a
shutdown; package managers, rpm and systemd are real.
"""

from __future__ import annotations

import time

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import out
from tests.molecule.driver_alone import LOADED, ON_DISK, Driver
from tests.molecule.driver_life import a_run_changes_nothing
from tests.molecule.driver_packages import Packages
from tests.molecule.interruption.faults import CUT

OLD, NEW = "580.82.07", "580.95.05"
_FAULT = r"""
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
# The connection first, so that the run need not wait until the node counts as silent.
_POWER_LOST = f"{CUT}; systemctl reboot --force --force; sleep 60"


def can_be_struck(node: Node) -> Node:
    """Return a node on which a fault can strike in the middle of a transaction of rpm's."""
    out(node, f"cat > /root/fault.spec <<'END'\n{_FAULT}END\n")
    out(node, "rpmbuild -bb --quiet --define '_rpmdir /root' /root/fault.spec && rpm -i /root/noarch/lab-fault-*.rpm")
    return node


def _strike(node: Node, body: str) -> None:
    """Let the fault strike once, in the next transaction that brings nvidia-smi."""
    out(node, f"rm -f /run/struck; printf '#!/bin/sh\\n%s\\n' '{body}' > /run/at-rpm && chmod 755 /run/at-rpm")


def is_whole(packages: Packages, node: Node, version: str) -> None:
    """Assert that the node has one driver, all of one version, in the order that its package manager wants."""
    assert packages.versions(node) == {version}
    names = packages.names(node)
    assert len(names) == len(set(names))
    out(node, packages.sound)
    assert out(node, ON_DISK) == version


def killed_at_the_first_it_leaves_nothing_and_the_next_run_installs(
    packages: Packages, node: Node, driver: Driver, program: str
) -> None:
    _strike(node, f"pkill -KILL -x {program}")
    failed = driver.run(node, version=OLD)
    assert failed.code == 1
    assert "Traceback" not in failed.printed
    assert out(node, f"ls /run/struck; {packages.installed}") == "/run/struck"
    run = driver.run(node, version=OLD)
    assert run.code == 0, run.printed
    is_whole(packages, node, OLD)
    assert driver.drift(node, version=OLD).code == 0


def killed_it_leaves_the_driver_of_before(
    packages: Packages, node: Node, driver: Driver, program: str, *said: str
) -> None:
    """`said`: what else the run says of it."""
    before = out(node, packages.state)
    _strike(node, f"pkill -KILL -x {program}")
    failed = driver.run(node, version=NEW)
    assert failed.code == 1
    for words in ("putting back what was there before", *said):
        assert words in failed.printed
    assert out(node, "ls /run/struck") == "/run/struck"
    assert out(node, packages.state) == before
    is_whole(packages, node, OLD)
    assert out(node, LOADED) == OLD
    assert driver.drift(node, version=OLD).code == 0


def a_loss_of_power_is_undone_by_the_next_run_which_then_installs(
    packages: Packages, node: Node, driver: Driver
) -> None:
    booted = lab_nodes.booted(node)
    _strike(node, _POWER_LOST)
    failed = driver.run(node, version=NEW)
    assert failed.code == 1
    assert "node.connection-broken" in failed.printed
    deadline = time.monotonic() + 60
    while lab_nodes.booted(node) in ("", booted) or _state(node) not in ("running", "degraded"):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    # Some packages are there in both versions, or some are of each and the locks are lifted: nothing of this is whole.
    assert packages.versions(node) == {OLD, NEW}
    the_next_run_undoes_it_and_installs(packages, node, driver, NEW)
    assert driver.drift(node, version=NEW).code == 0


def the_next_run_undoes_it_and_installs(packages: Packages, node: Node, driver: Driver, version: str) -> None:
    healed = driver.run(node, version=version)
    assert healed.code == 0, healed.printed
    assert "undone first" in healed.printed
    is_whole(packages, node, version)
    a_run_changes_nothing(driver, node, version=version)


def _state(node: Node) -> str:
    return lab_nodes.run(node, "systemctl is-system-running").stdout.strip()
