"""Helpers and data for the tests of runfile."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import LAB, Run, command, inventory_with, out

MIRROR = "http://127.0.0.1:8900/runfiles"


URL = f"{MIRROR}/tesla/{{version}}/NVIDIA-Linux-{{architecture}}-{{version}}.run"


ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}


TOOLS = r"""
for tool in /usr/local/bin/gcc /usr/local/bin/make /usr/local/bin/dkms; do
  printf '#!/bin/sh\n# SIMULATED %s of the lab\necho 12\n' "$tool" > $tool; chmod 755 $tool
done
"""


def seen(node: Node, text: str) -> str:
    """Return what a command prints, however it ends."""
    return lab_nodes.run(node, text).stdout.strip()


def with_tools(name: str, family: str = "apt") -> Node:
    """Return a fresh node with what builds modules."""
    node = lab_nodes.recreate(lab_nodes.node(LAB, name), family=family)
    out(node, TOOLS)
    return node


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node."""
    return with_tools("gpu-1")


class Driver:
    """Ask for a driver on one node, and for nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runfile(self, node: Node, version: str, **more: object) -> dict[str, object]:
        path = f"/srv/gpunode-lab/mirror/runfiles/tesla/{version}/NVIDIA-Linux-x86_64-{version}.run"
        digest = out(node, f"sha256sum {path}").split()[0]
        asked = {"source": "runfile", "version": version, "runfile_url": URL, "runfile_sha256": digest}
        return {**asked, **more}

    def inventory(self, node: Node, asked: dict[str, object]) -> str:
        path = Path(inventory_with(self.folder, {node.name: {**ALONE, "driver": asked}}))
        path.write_text(path.read_text() + f"nodes = [entry for entry in nodes if entry[0] == {node.name!r}]\n")
        return str(path)

    def run(self, node: Node, asked: dict[str, object]) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(node, asked), "deploys/gpu_node.py")

    def install(self, node: Node, version: str, **more: object) -> Run:
        return self.run(node, self.runfile(node, version, **more))

    def drift(self, node: Node, asked: dict[str, object]) -> Run:
        return command("gpunode", "drift", self.inventory(node, asked))
