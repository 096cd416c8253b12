"""A driver on the one node of a lab, and nothing else: what the lives of a driver by dnf, zypper and pacman share."""

from __future__ import annotations

from pathlib import Path

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import Run, command, inventory_with

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
LOADED = "cat /sys/module/nvidia/version"
ON_DISK = "modinfo -F version nvidia"


class Driver:
    """Ask for a driver on the node, and for nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, node: Node, **asked: object) -> Run:
        path = inventory_with(self.folder, {node.name: {**ALONE, "driver": asked}})
        return command("pyinfra", "-y", "--json", path, "deploys/gpu_node.py")

    def drift(self, node: Node, **asked: object) -> Run:
        return command("gpunode", "drift", inventory_with(self.folder, {node.name: {**ALONE, "driver": asked}}))


def out(node: Node, text: str) -> str:
    """Return what a command prints on the node; it must succeed."""
    done = lab_nodes.run(node, text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
