"""A driver by dnf 5 that is taken away again, and comes back (driver_removal has the text).

SIMULATED: the distribution, GPUs, the driver's modules and daemons; dnf 5 and systemd are real.
"""

from __future__ import annotations

from gpunode.lab.nodes import Node
from tests.molecule.conftest import third_tier
from tests.molecule.driver_alone import Driver
from tests.molecule.driver_removal import comes_and_goes


@third_tier
def test_a_driver_that_is_to_be_absent_leaves_nothing_behind(board: Node, driver: Driver) -> None:
    comes_and_goes(board, driver, {"version": "580.95.05"})
