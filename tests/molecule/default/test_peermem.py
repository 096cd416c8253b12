"""nvidia_peermem on a converged node, and away again. SIMULATED: the driver's modules, and the RDMA stack (a folder).

Real: modprobe's way through the node, the file of modules-load.d, the verdict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, command, converge, inventory_with

pytestmark = pytest.mark.life

FILE = "/etc/modules-load.d/gpunode-peermem.conf"
MODULE = "/sys/module/nvidia_peermem"
# What ib_core shows, and what says to the SIMULATED module that it was built with MOFED's.
STACK, BUILT_WITH = "/sys/module/ib_core", "/run/gpunode-lab/peer-memory"


@pytest.fixture
def node(nodes: tuple[Node, ...]) -> Node:
    return nodes[0]


def _path(folder: Path, **more: object) -> str:
    return inventory_with(folder, {"gpu-1": {"driver": {"version": "580.95.05", "flavour": "open", **more}}})


def _run(folder: Path, **more: object) -> Run:
    return converge("--limit", "gpu-1", inventory=_path(folder, **more))


def _drift(folder: Path) -> dict[str, dict[str, Any]]:
    found = command("gpunode", "drift", "--json", _path(folder, peermem=True)).findings["gpu-1"]
    return {item["what"]: item for item in found if item["class"] != "ok"}


def _done(node: Node, words: str) -> None:
    done = lab_nodes.run(node, words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_node_without_an_rdma_stack_fails_its_verdict_with_what_is_missing(tmp_path: Path, node: Node) -> None:
    run = _run(tmp_path, peermem=True)
    assert run.code == 1 and "no RDMA stack is loaded (ib_core): install MOFED" in run.printed, run.printed[-3000:]
    assert lab_nodes.run(node, f"test -e {MODULE}").returncode == 1


def test_a_module_that_was_built_without_the_interface_is_explained(tmp_path: Path, node: Node) -> None:
    _done(node, f"mkdir -p {STACK}")
    run = _run(tmp_path, peermem=True)
    assert run.code == 1 and "could not insert 'nvidia_peermem': Invalid argument" in run.printed, run.printed[-3000:]
    assert "install MOFED or DOCA-OFED first" in run.printed


def test_it_is_loaded_now_and_at_boot_and_the_second_run_changes_nothing(tmp_path: Path, node: Node) -> None:
    _done(node, f"touch {BUILT_WITH}")
    run = _run(tmp_path, peermem=True)
    assert run.code == 0 and "Load nvidia_peermem" in run.operations("success"), run.printed[-3000:]
    _done(node, f"test -d {MODULE} && grep -qx nvidia_peermem {FILE}")
    run = _run(tmp_path, peermem=True)
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]


def test_an_unloaded_module_and_a_lost_file_are_found_and_healed(tmp_path: Path, node: Node) -> None:
    _done(node, "modprobe -r nvidia_peermem")
    assert set(_drift(tmp_path)) == {"nvidia_peermem"}
    assert _run(tmp_path, peermem=True).code == 0
    _done(node, f"rm {FILE}")
    assert list(_drift(tmp_path)) == [f"file {FILE}"]
    assert _run(tmp_path, peermem=True).code == 0
    assert _drift(tmp_path) == {}
    _done(node, f"test -d {MODULE} && test -e {FILE}")


def test_without_the_setting_nothing_of_it_stays_for_the_next_boot(tmp_path: Path, node: Node) -> None:
    run = _run(tmp_path)
    assert run.code == 0 and "Load no nvidia_peermem at boot" in run.operations("success"), run.printed[-3000:]
    assert lab_nodes.run(node, f"test -e {FILE}").returncode == 1
    _done(node, f"modprobe -r nvidia_peermem && rmdir {STACK} && rm {BUILT_WITH}")
    assert converge("--limit", "gpu-1").operations("success").keys() <= {"Record what was applied"}
