"""Many nodes from one: a root filesystem with all that has been done to a node since it was made."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node
from gpunode.lab.podman import inspect_containers
from gpunode.lab.state import lab_folder

# A boot writes it where it is empty, as in the image that nodes are made from.
_MACHINE_ID = "etc/machine-id"


def root_of(node: Node) -> Path:
    """Return a folder with a copy of a running node's files, for `nodes.up(root=…)`; it goes with the lab.

    Raises LabError as `copy` does.
    """
    _first_process(node)
    # One of its own each time: nodes run on what was copied before.
    root = Path(tempfile.mkdtemp(prefix=f"root-of-{node.name}-", dir=lab_folder(node.lab)))
    try:
        copy(node, root)
    except LabError:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return root


def copy(node: Node, root: Path) -> None:
    """Copy a running node's files into the folder `root`.

    What is mounted into a node (the mirror, its hardware, /run, /proc) is left out. A node from it is one after a
    reboot, with host keys of its own. Raises LabError if the node is down or the disk full.
    """
    done = subprocess.run(
        ["cp", "--archive", "--one-file-system", f"/proc/{_first_process(node)}/root/.", str(root)],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"the files of {node.name} could not be copied: {done.stderr.strip()[-500:]}")
    (root / _MACHINE_ID).write_text("", encoding="utf-8")


def _first_process(node: Node) -> int:
    found = inspect_containers(f"name=^{node.container}$")
    process = int(found[0]["State"].get("Pid") or 0) if found else 0
    if not process:
        raise LabError(f"{node.name} of lab {node.lab} is not up, so there is nothing to copy")
    return process
