"""`make rehearse-hardware`: the main job as run.sh runs it, on a lab node that takes the place of a machine with a GPU.

The node has a SIMULATED GPU and its SIMULATED driver, no network, and no systemd: its first process is `sleep`, and
Debian's systemd is removed from it, so that the carried one boots. It shows nothing of hardware, but that the script,
what it carries, and the namespaces work. `python -m tests.hardware.rehearse FILE` takes a file that was made before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpunode.lab import copies, nodes
from gpunode.lab.errors import LabError
from gpunode.lab.hardware.nvml.build import library
from gpunode.lab.nodes import Node
from gpunode.lab.podman import attempt, podman
from tests.hardware.carry import CHECKOUT, carry
from tests.molecule.mps.mps_nodes import UNPACK

_LAB = os.environ.get("GPUNODE_TEST_LABS", "") + "rehearsal"
_GPU = "h100-80gb"
_DRIVER = "580.95.05"
_SECONDS = 900
# Debian 12 has it.
_PYTHON = "3.11"
# All of systemd's own programs: the units stay, for the lab's hardware is one.
_NO_SYSTEMD = (
    "rm -rf /usr/lib/systemd/systemd* /usr/lib/x86_64-linux-gnu/systemd /usr/bin/systemctl /usr/bin/systemd-* "
    "/usr/bin/journalctl /usr/bin/busctl"
)
_ALONE = """
import runpy
found = runpy.run_path({lab!r})
off = {{name: {{"enabled": False}} for name in ("cuda", "toolkit", "containerd")}}
driver = {{"driver": {{"version": {driver!r}, "flavour": "open"}}}}
nodes = [(name, {{**data, **off, **driver}}) for name, data in found["nodes"]]
"""
# The machine knows nothing of gpunode.
_OWN = ("var/lib/gpunode", "etc/gpunode", "etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/keyrings")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def _driver(node: Node, folder: Path) -> None:
    """Install the SIMULATED driver on the node, and nothing else of gpunode's."""
    inventory = folder / "alone.py"
    inventory.write_text(_ALONE.format(lab=str(CHECKOUT / "inventories/lab.py"), driver=_DRIVER))
    done = subprocess.run(
        [Path(sys.executable).with_name("pyinfra"), "-y", inventory, "deploys/gpu_node.py"], cwd=CHECKOUT,
        env={**os.environ, "GPUNODE_LAB": node.lab, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"the node's driver could not be installed: {(done.stdout + done.stderr)[-2000:]}")


def _machine(node: Node) -> Path:
    """Return a folder with the files of a machine with a driver and nothing else, made of the node's."""
    # NVIDIA's own MPS control daemon, out of Debian's archive, as in the scenario mps.
    done = nodes.run(node, UNPACK, timeout=120)
    if done.returncode:
        print(f"no MPS: {done.stderr.strip()[-300:]}")
    root = copies.root_of(node)
    for path in _OWN:
        shutil.rmtree(root / path, ignore_errors=True)
    _put(library(), root / _LIBRARIES / f"libnvidia-ml.so.{_DRIVER}")
    # It needs a name that ldconfig reads, and nothing in it.
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "libcuda.so"
        line = ("gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", empty, "-x", "c", "/dev/null")
        subprocess.run(line, check=True, timeout=60)
        _put(empty, root / _LIBRARIES / f"libcuda.so.{_DRIVER}")
    return root


def _put(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)


def rehearse(carried: Path) -> int:
    """Run the main job on such a machine; return run.sh's exit status."""
    container = f"gpunode-{_LAB}-machine"
    attempt("rm", "--force", "--time", "0", container)
    nodes.down(_LAB)
    try:
        (node,) = nodes.up(_LAB, 1, _GPU, 1, print)
        with tempfile.TemporaryDirectory() as name:
            _driver(node, Path(name))
        root = _machine(node)
        hardware = root.parent / "machine"
        shutil.copytree(node.folder, hardware)
        shutil.copyfile(carried, hardware / "carried")
        print(f"{_LAB}: a machine with a SIMULATED GPU and its driver, without network and systemd", flush=True)
        podman(
            "run", "--detach", "--name", container, "--privileged", "--network", "none",
            "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=6000:6000",
            "--volume", f"{hardware}:/etc/gpunode-lab", "--volume", f"{CHECKOUT}:/srv/checkout:ro",
            "--rootfs", f"{root}:O", "sleep", "infinity",
        )  # fmt: skip
        podman("exec", container, "sh", "-c", f"{_NO_SYSTEMD}; cp -a /srv/checkout/tests /srv/checkout/docs /opt/")
        line = ["podman", "exec", container, "bash", "/opt/tests/hardware/run.sh", "/etc/gpunode-lab/carried"]
        return subprocess.run(line, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False).returncode
    finally:
        attempt("rm", "--force", "--time", "0", container)
        nodes.down(_LAB)


def main(arguments: list[str]) -> int:
    """Rehearse with the file of the arguments, or with one that is made for the node's Python."""
    if arguments:
        return rehearse(Path(arguments[0]))
    with tempfile.TemporaryDirectory() as name:
        carried = Path(name) / "carried.tar.xz"
        carry(carried, _PYTHON)
        return rehearse(carried)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as error:
        sys.exit(str(error))
