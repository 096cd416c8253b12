"""A node's files after a run of the main job, made once and kept in the cache, for nodes that begin as GPU nodes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

from gpunode.lab import copies, nodes
from gpunode.lab.cache import cache_dir, complete_or_nothing, locked, mark_used, remove, remove_partial
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Report
from gpunode.lab.podman import podman
from gpunode.lab.state import CHECKOUT

# All that decides what a run makes of a node: each change of it makes another one.
_ROOMS = ("gpunode", "facts", "operations", "deploys", "templates", "inventories", "lab")
_FILES = ("config.py", "uv.lock")
_KEPT_SECONDS = 86400
_SECONDS = 900


def root(report: Report, gpu: str, gpus: int, *, nvidia_toolkit: bool = False) -> Path:
    """Return a folder with the files of a node with these GPUs after `deploys/gpu_node.py` with the lab's settings.

    nvidia_toolkit: whether its container toolkit is NVIDIA's own, as nodes.up has it.

    Where the cache has none of this code, a lab of its own is brought up for it, converged and copied. Raises LabError
    where the run fails, and where gpunode is installed: a checkout's files alone say what a run makes of a node.
    """
    if not (CHECKOUT / "pyproject.toml").is_file():
        raise LabError(
            f"a converged node is made by the deploys of a checkout of gpunode, and {CHECKOUT} is none: leave "
            "--converged out and run deploys/gpu_node.py yourself, or use the gpunode of a checkout (`make setup`)"
        )
    folder = cache_dir() / "converged"
    wanted = folder / _digest(nodes.made_from(report, nvidia_toolkit=nvidia_toolkit), gpu, gpus, nvidia_toolkit)
    with locked(folder / "lock"):
        if not wanted.is_dir():
            remove_partial(folder)
            started = time.monotonic()
            _make(wanted, gpu, gpus, nvidia_toolkit)
            report(
                f"converged node: a run made one, and its files are in the cache, {time.monotonic() - started:.0f} s"
            )
        mark_used(wanted)
        _remove_unused(folder, wanted)
    return wanted


def _make(wanted: Path, gpu: str, gpus: int, nvidia_toolkit: bool) -> None:
    # One name for this checkout: what a run left that was killed is taken down by the next.
    lab = f"converged-{hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]}"
    nodes.down(lab)
    try:
        (node,) = nodes.up(lab, 1, gpu, gpus, nvidia_toolkit=nvidia_toolkit)
        done = subprocess.run(
            [Path(sys.executable).with_name("pyinfra"), "-y", "inventories/lab.py", "deploys/gpu_node.py"],
            cwd=CHECKOUT, env={**os.environ, "GPUNODE_LAB": lab, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise LabError(f"the node to be copied could not be converged: {(done.stdout + done.stderr)[-3000:]}")
        with complete_or_nothing(wanted) as folder:
            copies.copy(node, folder)
    finally:
        nodes.down(lab)


def _digest(made_from: str, gpu: str, gpus: int, nvidia_toolkit: bool) -> str:
    digest = hashlib.sha256(f"{made_from}\0{gpu}\0{gpus}\0{nvidia_toolkit}\0".encode())
    files = [path for room in _ROOMS for path in (CHECKOUT / room).rglob("*") if path.is_file()]
    for path in sorted((*files, *(CHECKOUT / name for name in _FILES))):
        if "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(CHECKOUT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _remove_unused(folder: Path, wanted: Path) -> None:
    """Remove those that no node stands on and that nobody asked for within a day: each is as large as a system."""
    used = set(podman("ps", "--all", "--format", '{{index .Labels "gpunode.image"}}').split())
    for path in folder.iterdir():
        unasked = path.is_dir() and time.time() - path.stat().st_mtime > _KEPT_SECONDS
        if path != wanted and unasked and str(path) not in used:
            remove(path)
