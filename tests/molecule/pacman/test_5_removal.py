"""A driver by pacman that is taken away again, and comes back.

SIMULATED: the distribution, GPUs, the driver's modules and daemons; pacman and systemd are real.
"""

from __future__ import annotations

from pathlib import Path

from lab import nodes as lab_nodes
from tests.molecule.conftest import LAB, only_slow
from tests.molecule.driver_removal import comes_and_goes

pytestmark = only_slow


def test_a_driver_that_is_to_be_absent_leaves_nothing_behind(tmp_path: Path) -> None:
    node = lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="h100-80gb", family="pacman")
    comes_and_goes(tmp_path, node, {"branch": "580"})
