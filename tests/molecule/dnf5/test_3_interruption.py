"""A change of the driver that ends in its middle: dnf 5 is killed, or the power is lost.

driver_interruption has the text. SIMULATED: the distribution, GPUs, the driver's packages,
the loss of power; dnf 5, rpm and systemd are real.
"""

from __future__ import annotations

import pytest

from gpunode.lab.nodes import Node
from tests.molecule import driver_interruption as interruption
from tests.molecule.conftest import third_tier
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import DNF5

pytestmark = [third_tier, pytest.mark.life]

# dnf 5 is started by the loader of its own libraries (gpunode/lab/newer.py).
PROCESS = "ld-linux-x86-64"


@pytest.fixture(scope="module")
def node(plain: Node) -> Node:
    return interruption.can_be_struck(plain)


def test_a_first_installation_that_is_killed_in_the_middle_leaves_nothing_and_the_next_run_installs(
    node: Node, driver: Driver
) -> None:
    interruption.killed_at_the_first_it_leaves_nothing_and_the_next_run_installs(DNF5, node, driver, PROCESS)


def test_dnf_that_is_killed_in_the_middle_leaves_the_driver_of_before(node: Node, driver: Driver) -> None:
    interruption.killed_it_leaves_the_driver_of_before(DNF5, node, driver, PROCESS)


def test_a_loss_of_power_in_the_middle_is_undone_by_the_next_run_which_then_installs(
    node: Node, driver: Driver
) -> None:
    interruption.a_loss_of_power_is_undone_by_the_next_run_which_then_installs(DNF5, node, driver)
