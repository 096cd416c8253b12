"""A change of the driver that ends in its middle: zypper is killed, or the power is lost.

driver_interruption has the text. zypper calls rpm package by package, so that some are of
the new version when it strikes, and some of the old. SIMULATED: the distribution, GPUs, the driver's packages, the loss
of power; zypper, rpm and systemd are real.
"""

from __future__ import annotations

import pytest

from gpunode.lab.nodes import Node
from tests.molecule import driver_interruption as interruption
from tests.molecule.conftest import third_tier
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_packages import ZYPPER

pytestmark = [third_tier, pytest.mark.life]


@pytest.fixture(scope="module")
def node(plain: Node) -> Node:
    return interruption.can_be_struck(plain)


def test_zypper_that_is_killed_in_the_middle_leaves_the_driver_and_the_locks_of_before(
    node: Node, driver: Driver
) -> None:
    assert driver.run(node, version=interruption.OLD).code == 0
    interruption.killed_it_leaves_the_driver_of_before(
        ZYPPER, node, driver, "zypper", "zypper failed: it was killed (signal 9)"
    )


def test_a_loss_of_power_in_the_middle_is_undone_by_the_next_run_which_then_installs(
    node: Node, driver: Driver
) -> None:
    interruption.a_loss_of_power_is_undone_by_the_next_run_which_then_installs(ZYPPER, node, driver)
