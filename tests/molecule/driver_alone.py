"""A driver on one node of a lab, and nothing else: what the lives of a driver by all package managers share."""

from __future__ import annotations

from pathlib import Path

from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, command, inventory_with

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
LOADED = "cat /sys/module/nvidia/version"
ON_DISK = "modinfo -F version nvidia"


class Driver:
    """Ask for a driver on one node, and for nothing else; the lab's other nodes are left alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def inventory(self, node: Node, asked: dict[str, object], allow: object = "restart") -> str:
        """Return an inventory of this node with these settings of `driver`, at a level of disruption."""
        data = {node.name: {**ALONE, "driver": asked, "disruption": {"allow": allow}}}
        path = Path(inventory_with(self.folder, data))
        path.write_text(path.read_text() + f"nodes = [entry for entry in nodes if entry[0] == {node.name!r}]\n")
        return str(path)

    def run(self, node: Node, *, allow: object = "restart", **asked: object) -> Run:
        """Run the main job."""
        return command("pyinfra", "-y", "--json", self.inventory(node, asked, allow), "deploys/gpu_node.py")

    def drift(self, node: Node, **asked: object) -> Run:
        """Ask for the drift."""
        return command("gpunode", "drift", self.inventory(node, asked))
