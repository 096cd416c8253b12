"""A runfile's driver that is taken away again, and comes back.

SIMULATED: GPUs, the .run file and the installer in it, the compiler and dkms; curl, the transaction and systemd are
real.
"""

from __future__ import annotations

from pathlib import Path

from tests.molecule import driver_alone
from tests.molecule.driver_removal import comes_and_goes
from tests.molecule.runfile.runfile_nodes import Driver, with_tools


def test_a_runfile_s_driver_that_is_to_be_absent_leaves_nothing_behind(tmp_path: Path) -> None:
    node = with_tools("gpu-1")
    comes_and_goes(node, driver_alone.Driver(tmp_path), Driver(tmp_path).runfile(node, "580.95.05"))
