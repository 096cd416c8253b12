"""A change of the driver that ends in its middle: dnf is killed, or the power is lost.

driver_interruption has the text. SIMULATED: the distribution, GPUs, the driver's packages,
the loss of power; dnf, rpm and systemd are real.
"""

from __future__ import annotations

import pytest

from gpunode.lab.nodes import Node
from tests.molecule import driver_interruption as interruption
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import DNF

pytestmark = pytest.mark.life


@pytest.fixture(scope="module")
def node(plain: Node) -> Node:
    return interruption.can_be_struck(plain)


def test_a_first_installation_that_is_killed_in_the_middle_leaves_nothing_and_the_next_run_installs(
    node: Node, driver: Driver
) -> None:
    interruption.killed_at_the_first_it_leaves_nothing_and_the_next_run_installs(DNF, node, driver, "dnf")


def test_dnf_that_is_killed_in_the_middle_leaves_the_driver_of_before(node: Node, driver: Driver) -> None:
    interruption.killed_it_leaves_the_driver_of_before(DNF, node, driver, "dnf")


def test_a_loss_of_power_in_the_middle_is_undone_by_the_next_run_which_then_installs(
    node: Node, driver: Driver
) -> None:
    interruption.a_loss_of_power_is_undone_by_the_next_run_which_then_installs(DNF, node, driver)
