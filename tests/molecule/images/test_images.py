"""An image made by pyinfra's @chroot, and a machine that boots from it. Real: apt, dpkg, systemd, containerd.

SIMULATED: GPUs, the driver's packages.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpunode.lab import copies
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cache import cache_dir
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, LAB, Run, command, converge, inventory_with

pytestmark = [pytest.mark.simulated, pytest.mark.life]
SETTINGS: dict[str, object] = {
    "driver": {"version": "580.95.05", "flavour": "open"},
    "cuda": {"version": "12.9"},
    "toolkit": {"version": "1.17.8", "cdi": "generate"},
    "containerd": {"source": "distribution", "default_runtime": "nvidia"},
}
SERVICES = ("containerd.service", "gpunode-first-boot.service", "nvidia-persistenced.service")


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """Return the root directory of a bare system, in which an image is made; machines that boot from it end with it."""
    (node,) = lab_nodes.nodes(LAB)
    folder = Path(tempfile.mkdtemp(prefix="image-", dir=CHECKOUT / ".lab"))
    try:
        copies.copy(node, folder)
        for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
            (folder / "dev" / name).unlink(missing_ok=True)
            os.mknod(folder / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            (folder / "dev" / name).chmod(0o666)
        yield folder
    finally:
        lab_nodes.down(LAB)
        subprocess.run(["umount", folder / "proc"], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def mirror() -> Iterator[None]:
    """Serve the lab's repositories where an image finds them: it shares this machine's loopback, as nodes do theirs."""
    server = ThreadingHTTPServer(("127.0.0.1", 8900), partial(_Quiet, directory=str(cache_dir() / "mirror")))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _inventory(folder: Path, root: Path) -> str:
    """Write an inventory with the root directory in the place of the lab's node."""
    path = folder / "image.py"
    path.write_text(
        f"import runpy\n_found = runpy.run_path({str(CHECKOUT / 'inventories' / 'lab.py')!r})\n"
        "_, _data = _found['nodes'][0]\n"
        f"nodes = [('@chroot/{root}', {{'repositories': _data['repositories'], **{SETTINGS!r}}})]\n"
    )
    return str(path)


def _made(folder: Path, root: Path) -> Run:
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    try:
        return command("pyinfra", "-y", "--json", _inventory(folder, root), "deploys/gpu_node.py")
    finally:
        subprocess.run(["umount", root / "proc"], check=True)


def _modules() -> set[str]:
    return {path.name for path in Path("/sys/module").iterdir()}


def test_a_run_in_a_root_directory_brings_packages_files_and_units_and_starts_nothing(
    root: Path, mirror: None, tmp_path: Path
) -> None:
    before = _modules()
    run = _made(tmp_path, root)
    assert run.code == 0, run.printed
    assert "image is made" in run.printed
    for package in ("nvidia-open", "cuda-toolkit-12-9", "nvidia-container-toolkit", "containerd"):
        asked: list[str | Path] = ["chroot", root, "dpkg-query", "-W", "-f", "${db:Status-Status}", package]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "installed"
    wanted = root / "etc/systemd/system/multi-user.target.wants"
    enabled = {path.name for path in wanted.iterdir()}
    assert set(SERVICES) <= enabled
    assert 'default_runtime_name = "nvidia"' in (root / "etc/containerd/config.toml").read_text()
    # The build machine's kernel got nothing, and no process of the image's is left.
    assert _modules() == before
    assert _processes(root) == []


def _processes(root: Path) -> list[str]:
    """Return the processes that run in the root directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "root").readlink() == root:
                found.append((process / "cmdline").read_text())
    return found


def test_a_second_run_in_the_root_directory_changes_nothing(root: Path, mirror: None, tmp_path: Path) -> None:
    run = _made(tmp_path, root)
    assert run.code == 0 and run.operations("success") == {}, run.printed


def test_what_was_taken_away_by_hand_comes_back(root: Path, mirror: None, tmp_path: Path) -> None:
    (root / "etc/systemd/system/multi-user.target.wants/gpunode-first-boot.service").unlink()
    (root / "etc/modprobe.d/gpunode-nouveau.conf").write_text("# by hand\n")
    run = _made(tmp_path, root)
    assert run.code == 0
    assert set(run.operations("success")) == {"Have the first boot verified", "Keep nouveau out, from the next boot on"}


def test_the_first_boot_verifies_the_machine_and_records_it(root: Path) -> None:
    (before,) = lab_nodes.nodes(LAB)
    lab_nodes.down(LAB)
    (root / "etc/machine-id").write_text("")
    (node,) = lab_nodes.up(LAB, 1, before.gpu, before.gpus, root=root, nvidia_toolkit=before.nvidia_toolkit)
    record = _out(node, "systemctl start gpunode-first-boot; cat /var/lib/gpunode/first-boot")
    assert "verdict=ok" in record and f"gpus={before.gpus}" in record
    assert _out(node, "nvidia-smi -L | wc -l") == str(before.gpus)
    assert _out(node, "systemctl is-active containerd nvidia-persistenced").split() == ["active", "active"]
    assert "libcuda.so.580.95.05" in _out(node, "cat /etc/cdi/nvidia.yaml")


def test_the_first_run_on_a_machine_made_from_the_image_changes_nothing(tmp_path: Path) -> None:
    (node,) = lab_nodes.nodes(LAB)
    inventory = inventory_with(tmp_path, {node.name: SETTINGS})
    before = _out(node, "cat /var/lib/gpunode/applied.json")
    run = converge(inventory=inventory)
    assert run.code == 0, run.printed
    assert json.loads(_out(node, "cat /var/lib/gpunode/applied.json")) == json.loads(before)
    assert run.operations("success") == {}
    drift = command("gpunode", "drift", "--json", inventory)
    assert drift.code == 0, json.dumps(drift.payload, indent=1)


def test_a_first_boot_without_what_it_needs_says_why_and_the_next_one_tries_again() -> None:
    (node,) = lab_nodes.nodes(LAB)
    said = _out(
        node,
        "rm /var/lib/gpunode/first-boot; mv /usr/bin/nvidia-smi /usr/bin/nvidia-smi.away; "
        "sed -i 's/-lt 60 ]; do/-lt 1 ]; do/' /usr/local/lib/gpunode/first-boot.sh; "
        "systemctl restart gpunode-first-boot; echo $?; cat /var/lib/gpunode/first-boot.failed",
    )
    assert said.splitlines()[0] == "1" and "verdict=nvidia-smi lists 0 of" in said
    _out(node, "mv /usr/bin/nvidia-smi.away /usr/bin/nvidia-smi; systemctl restart gpunode-first-boot")
    assert "verdict=ok" in _out(node, "cat /var/lib/gpunode/first-boot; ! test -e /var/lib/gpunode/first-boot.failed")


def _out(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
