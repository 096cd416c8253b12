"""A driver by apt that is taken away again, and comes back.

SIMULATED: GPUs, NVSwitches, the driver's modules and daemons; apt, dpkg and systemd are real.
"""

from __future__ import annotations

from pathlib import Path

from lab import nodes as lab_nodes
from tests.molecule.conftest import LAB
from tests.molecule.driver_removal import comes_and_goes


def test_a_driver_that_is_to_be_absent_leaves_nothing_behind(tmp_path: Path) -> None:
    node = lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="hgx-h100", family="apt")
    comes_and_goes(tmp_path, node, {"version": "580.95.05", "module_parameters": {"NVreg_EnableMSI": "1"}})
