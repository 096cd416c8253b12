"""The MPS daemons of NVIDIA's device plugin read back by their sockets, and compared with what the settings mean.

SIMULATED: the control program answers from files; what it answers is as NVIDIA's own (535 and 550) did.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError
from gpunode.components.mps.plugin import (
    ROOT,
    GpuProcess,
    PluginDaemon,
    PluginMps,
    parse_plugin_mps,
)
from gpunode.facts.gpu import PluginMps as Fact
from gpunode.kubernetes.device_plugin.judge_mps import limits
from tests.support.plugin_mps import DAEMON
from tests.support.recorded_smi import last

pytestmark = pytest.mark.pure

PROGRAM = """#!/bin/sh
[ -e "$CUDA_MPS_PIPE_DIRECTORY/lives" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
read -r asked
echo "$asked" >> "$CUDA_MPS_PIPE_DIRECTORY/asked"
case "$asked" in
  get_server_list) echo 92;;
  get_default_active_thread_percentage) echo 10.0;;
  get_default_device_pinned_mem_limit*) echo 4G;;
  "get_server_status 92") echo ACTIVE;;
  "get_client_list 92") printf '101\\n102\\n';;
esac
"""
SMI = """#!/bin/sh
case "$*" in
  *PIDS*) cat "$PIDS";;
  *) printf '%s\\n' "0, GPU-a" "1, GPU-b";;
esac
"""
# As `nvidia-smi -q -d PIDS` prints it, with processes made up.
PIDS = """
Attached GPUs                             : 2
GPU 00000000:41:00.0
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : nvidia-cuda-mps-server
            Used GPU Memory               : 30 MiB
        GPU instance ID                   : N/A
        Process ID                        : 4712
            Type                          : M+C
            Name                          : python3 -m train: now
GPU 00000000:42:00.0
    Processes                             : None
"""
LOG = """[2026-11-25 16:00:00.001 Control    64] Server 12 exited with status 1
[2026-11-25 16:00:00.001 Control    64] Starting control daemon using socket /mps/nvidia.com/gpu/pipe/control
[2026-11-25 16:00:01.001 Control    64] NEW CLIENT 0 from user 1001: Server is not ready, push client to pending list
[2026-11-25 16:00:01.001 Control    64] NEW CLIENT 0 from user 1001: Server already exists
[2026-11-25 16:00:02.001 Control    64] NEW CLIENT 0 from user 0: Server is not ready, push client to pending list
[2026-11-25 16:00:03.001 Control    64] Server encountered a fatal exception. Shutting down
"""


class Node:
    """Run the probe where these programs and this folder are a node's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "mps"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.program("nvidia-cuda-mps-control", PROGRAM)
        self.program("nvidia-smi", SMI)
        (folder / "pids").write_text(PIDS)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def daemon(self, resource: str, lives: bool = True) -> Path:
        """Put a daemon's sockets where the plugin has them."""
        pipe = self.root / resource / "pipe"
        pipe.mkdir(parents=True)
        made = socket.socket(socket.AF_UNIX)
        # A path of a socket is short.
        here = os.open(pipe, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{here}/control")
        os.close(here)
        made.close()
        if lives:
            (pipe / "lives").touch()
        (self.root / resource / "log").mkdir()
        (self.root / resource / "log/control.log").write_text(LOG)
        return pipe

    def read(self, path: str = "") -> PluginMps:
        probe = Fact().command().replace(ROOT, str(self.root)).replace("/sys/module/nvidia", str(self.folder))
        environment = {"PATH": f"{self.bin}:{path or os.environ['PATH']}", "PIDS": str(self.folder / "pids")}
        done = subprocess.run(["sh", "-c", probe], env=environment, capture_output=True, text=True, check=True)
        return parse_plugin_mps(checked(done.stdout.splitlines()))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_each_daemon_is_asked_by_its_own_socket(node: Node) -> None:
    pipe = node.daemon("nvidia.com/gpu")
    node.daemon("nvidia.com/gpu.shared", lives=False)
    found = node.read()
    assert found.program == str(node.bin / "nvidia-cuda-mps-control")
    daemon, left = found.daemons
    assert daemon == replace(DAEMON, errors=1, last_error=LOG.splitlines()[-1], users=(0, 1001))
    assert left == PluginDaemon("nvidia.com/gpu.shared", False)
    assert found.processes == (
        GpuProcess("00000000:41:00.0", 4711, "C", "nvidia-cuda-mps-server"),
        GpuProcess("00000000:41:00.0", 4712, "M+C", "python3 -m train: now"),
    )
    assert "get_default_device_pinned_mem_limit 1" in (pipe / "asked").read_text()


def test_the_processes_of_a_real_gpu_are_read() -> None:
    printed = last("h100-80gb-clients.nvidia-smi-580.txt", "-q -d PIDS")
    found = parse_plugin_mps([f"smi={line}" for line in printed.splitlines()])
    assert found.processes == (GpuProcess("00000000:00:06.0", 1545, "C", "/tmp/long"),)
    none = last("h100-80gb.nvidia-smi-580.txt", "-q -d PIDS")
    assert parse_plugin_mps([f"smi={line}" for line in none.splitlines()]).processes == ()


def test_sockets_that_were_left_are_no_daemon_and_without_any_nothing_is_started(node: Node) -> None:
    left = (PluginDaemon("nvidia.com/gpu", False),)
    pipe = node.daemon("nvidia.com/gpu", lives=False)
    assert node.read().daemons == left and not node.read().processes
    (node.bin / "nvidia-cuda-mps-control").unlink()
    assert node.read() == PluginMps(None, left)
    for name in ("nvidia-cuda-mps-control", "awk"):
        node.program(name, f"#!/bin/sh\ntouch {node.folder}/started\n")
    shutil.rmtree(pipe.parent)
    (node.root / "shm").mkdir()
    assert node.read() == PluginMps() and not (node.folder / "started").exists()


def test_mps_processes_are_listed_where_a_gpu_is_in_the_mode_meant_for_them(node: Node) -> None:
    daemon = node.folder / "nvidia-cuda-mps-control"
    shutil.copy("/bin/sleep", daemon)
    with subprocess.Popen([daemon, "60"]) as process:
        assert node.read().mps_processes == ()
        node.program("nvidia-smi", SMI.replace('"1, GPU-b"', '"1, GPU-b, Exclusive_Process"'))
        assert process.pid in node.read().mps_processes
        process.kill()


_CELL = st.text(st.characters(exclude_characters="\n\r", max_codepoint=0x2FF), max_size=12)
_KEYS = st.sampled_from(["daemon", "percentage", "limit", "server", "client", "smi", "program", "other"])


@given(st.lists(st.tuples(_KEYS, st.lists(_CELL, max_size=6)), max_size=12))
def test_whatever_a_node_prints_is_a_reading_or_is_refused(rows: list[tuple[str, list[str]]]) -> None:
    try:
        found = parse_plugin_mps([f"{key}=" + "\t".join(cells) for key, cells in rows])
    except ParseError:
        return
    assert len(found.daemons) == sum(key == "daemon" for key, _ in rows)


@given(st.integers(1, 200_000), st.integers(2, 48))
def test_the_plugin_s_own_limit_of_a_gpu_s_bytes_is_right_whatever_nvidia_smi_rounds(mib: int, replicas: int) -> None:
    """The plugin divides the bytes, of which nvidia-smi may have rounded up or down a part of a mebibyte."""
    for extra in (0, 1, 1024 * 1024 // 2, 1024 * 1024 - 1):
        told = (mib * 1024 * 1024 + extra) // replicas // 1024 // 1024
        answer = f"{told // 1024}G" if told >= 1024 else f"{told}M"
        assert answer in limits(mib, replicas) and answer in limits(mib + 1, replicas)
