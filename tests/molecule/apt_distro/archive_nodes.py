"""Nodes whose apt reads an archive of the lab's in the place of the distribution's, and what such tests ask of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpunode.lab.nodes import Node
from gpunode.lab.packages.archive import UBUNTU_KERNEL
from gpunode.packages.driver_packages.names import driver_branch
from tests.molecule.conftest import Run, command, inventory_with, out

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
OURS = "/etc/apt/sources.list.d/gpunode-distribution.sources"
LOADED = "cat /sys/module/nvidia/version"
SET = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' '*nvidia*' | grep '^installed ' | cut -d' ' -f2-"
_SERVED = "http://127.0.0.1:8900"
_SOURCES = f"""
curl -sf {_SERVED}/keys/gpunode-lab.asc > /usr/share/keyrings/lab-archive.asc
printf 'Types: deb\\nURIs: {_SERVED}/archive/ARCHIVE\\nSuites: SUITE\\nComponents: main\\n' > /root/archive.sources
echo 'Signed-By: /usr/share/keyrings/lab-archive.asc' >> /root/archive.sources
"""
_ONLY = "rm -f /etc/apt/sources.list.d/*; mv /root/archive.sources /etc/apt/sources.list.d/lab.sources\n"
# SIMULATED: the words by which a system says what it is, and a kernel of its own.
_UBUNTU = f"""
printf 'ID=ubuntu\\nVERSION_ID="24.04"\\nVERSION_CODENAME=noble\\n' > /etc/os-release
echo 'PRETTY_NAME="SIMULATED Ubuntu 24.04"' >> /etc/os-release
echo SIMULATED > /boot/vmlinuz-{UBUNTU_KERNEL}
"""


def debian(node: Node) -> Node:
    """Make a node read the lab's archive of Debian's shape, and nothing else."""
    out(node, _SOURCES.replace("ARCHIVE", "debian").replace("SUITE", "bookworm") + _ONLY)
    return node


def debian_with_dkms(node: Node) -> Node:
    """Make a node read main of the real Debian, and the lab's archive whose module DKMS builds."""
    real = "sed -i 's/^Components: .*/Components: main/' /etc/apt/sources.list.d/debian.sources\n"
    add = "mv /root/archive.sources /etc/apt/sources.list.d/lab.sources\n"
    out(node, _SOURCES.replace("ARCHIVE", "debian-dkms").replace("SUITE", "bookworm") + real + add)
    return node


def ubuntu(node: Node) -> Node:
    """Make a node call itself Ubuntu, and read the lab's archive of Ubuntu's shape alone."""
    out(node, _SOURCES.replace("ARCHIVE", "ubuntu").replace("SUITE", "noble") + _ONLY + _UBUNTU)
    return node


class Driver:
    """Ask for a driver of the distribution's on one node, and for nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def inventory(self, node: Node, beside: dict[str, object] | None = None, **asked: Any) -> str:
        """Return an inventory of the one node; `beside` are settings of other components."""
        driver = {"source": "distribution", **asked}
        path = Path(inventory_with(self.folder, {node.name: {**ALONE, "driver": driver, **(beside or {})}}))
        path.write_text(path.read_text() + f"nodes = [entry for entry in nodes if entry[0] == {node.name!r}]\n")
        return str(path)

    def run(self, node: Node, beside: dict[str, object] | None = None, **asked: Any) -> Run:
        """Run the main job."""
        return command("pyinfra", "-y", "--json", self.inventory(node, beside, **asked), "deploys/gpu_node.py")

    def drift(self, node: Node, **asked: Any) -> Run:
        """Compare the node with what is asked."""
        return command("gpunode", "drift", self.inventory(node, **asked))

    def plan(self, node: Node, **asked: Any) -> Run:
        """Say what a run would do."""
        return command("gpunode", "plan", self.inventory(node, **asked))


def ended(run: Run, outcome: str) -> list[str]:
    """Return the operations with an outcome, Success or Error, as a person sees them.

    pyinfra prints no JSON where the last host has failed.
    """
    found = []
    operation = ""
    for line in run.stderr.splitlines():
        if line.startswith("--> Starting operation: "):
            operation = line.split(" | ")[-1].strip()
        elif re.fullmatch(rf"\s*\[\S+\] {outcome}(:.*)?", line):
            found.append(operation)
    return found


def numbered(node: Node) -> set[str]:
    """Return the versions of those packages that Debian numbers by the driver."""
    apart = ("nvidia-persistenced", "nvidia-modprobe")
    return {version for name, version in versions(node).items() if driver_branch(version) and name not in apart}


def versions(node: Node) -> dict[str, str]:
    """Return the installed packages of the driver, by name."""
    return dict(line.split(" ", 1) for line in out(node, SET).splitlines())
