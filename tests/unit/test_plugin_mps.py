"""The MPS daemons of NVIDIA's device plugin read back by their sockets, and compared with what the settings mean.

SIMULATED: the control program answers from files; what it answers is as NVIDIA's own (535 and 550) did.
"""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError
from gpunode.components.mps.plugin import (
    ROOT,
    GpuProcess,
    PluginDaemon,
    PluginMps,
    PluginServer,
    parse_plugin_mps,
)
from gpunode.facts.plugin_mps import PluginMps as Fact
from gpunode.kubernetes.device_plugin.judge_mps import judge_mps, limits, percentage, resource_of
from gpunode.settings import Settings, settings_from
from gpunode.system.gpu import Gpu, Gpus, MigMode
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
==============NVSMI LOG==============

Timestamp                                 : Wed Nov 25 16:00:00 2026
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:41:00.0
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : nvidia-cuda-mps-server
            Used GPU Memory               : 30 MiB
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4712
            Type                          : M+C
            Name                          : python3 -m train: now
            Used GPU Memory               : 308 MiB
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
DAEMON = PluginDaemon("nvidia.com/gpu", True, "10.0", ((0, "4G"), (1, "4G")), (PluginServer(92, "ACTIVE"),), (101, 102))
GOOD = PluginMps("/usr/bin/nvidia-cuda-mps-control", (DAEMON,))


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
    assert daemon == replace(
        DAEMON,
        errors=1,
        last_error="[2026-11-25 16:00:03.001 Control    64] Server encountered a fatal exception. Shutting down",
        users=(0, 1001),
    )
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


def test_a_node_without_the_plugin_s_daemons_starts_nothing(node: Node) -> None:
    for name in ("nvidia-cuda-mps-control", "awk"):
        node.program(name, f"#!/bin/sh\ntouch {node.folder}/started\n")
    (node.root / "shm").mkdir(parents=True)
    assert node.read() == PluginMps() and not (node.folder / "started").exists()


def test_sockets_that_were_left_are_no_daemon_and_neither_are_they_without_the_program(node: Node) -> None:
    node.daemon("nvidia.com/gpu", lives=False)
    assert node.read().daemons == (PluginDaemon("nvidia.com/gpu", False),) and not node.read().processes
    (node.bin / "nvidia-cuda-mps-control").unlink()
    assert node.read() == PluginMps(None, (PluginDaemon("nvidia.com/gpu", False),))


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


def test_ten_replicas_of_forty_gibibytes_are_ten_percent_and_four_each() -> None:
    assert percentage(10) == "10.0" and limits(40960, 10)[0] == "4G"
    assert percentage(3) == "33.0" and percentage(48) == "2.0" and limits(16384, 48)[0] == "341M"


def _settings(replicas: int | None = 10, **more: Any) -> Settings:
    sharing = {"sharing": {"strategy": "mps", "replicas": replicas}} if replicas else {}
    return settings_from({"kubernetes": {"enabled": True}, **sharing, **more})


def _gpu(index: int, mode: str = "Exclusive_Process", mig: str = "Disabled") -> Gpu:
    return Gpu(index, f"GPU-{index}", "A100", f"0000:4{index}:00.0", "580", 40960, MigMode(mig, mig), mode, "Enabled")


def _bad(settings: Settings, actual: PluginMps, *gpus: Gpu) -> dict[str, Finding]:
    found = judge_mps(settings, actual, Gpus("ok", 0, None, gpus or (_gpu(0), _gpu(1))))
    return {
        item.what.removeprefix("the plugin's MPS daemon of "): item
        for item in found
        if item.cause or item.by_person or item.finding_class is not FindingClass.OK
    }


def test_a_daemon_as_the_entry_means_it_is_well_and_its_clients_are_told() -> None:
    assert _bad(_settings(), GOOD) == {}
    found = {item.what: item.actual for item in judge_mps(_settings(), GOOD, Gpus("ok", 0, None, (_gpu(0), _gpu(1))))}
    assert found["the plugin's MPS daemon of nvidia.com/gpu, clients"] == (
        "2, of 1 servers; 0 processes are M+C to nvidia-smi"
    )
    assert found["the plugin's MPS daemon of nvidia.com/gpu, pinned memory limit of GPU 1"] == "4G"
    assert resource_of(_settings(sharing={"strategy": "mps", "replicas": 4, "rename": True})) == "nvidia.com/gpu.shared"


@pytest.mark.parametrize(
    ("changed", "what", "actual", "desired"),
    [
        ({"percentage": "25.0"}, "nvidia.com/gpu, active thread percentage", "25.0", "10.0"),
        ({"limits": ((0, "10G"),)}, "nvidia.com/gpu, pinned memory limit of GPU 0", "10G", "4G"),
        ({"limits": ((0, ""),)}, "nvidia.com/gpu, pinned memory limit of GPU 0", "none", "4G"),
        ({"answers": False}, "nvidia.com/gpu", "does not answer", "answers"),
        ({"servers": (PluginServer(92, "FAULT"),)}, "nvidia.com/gpu, server 92", "FAULT", "ACTIVE"),
        (
            {"servers": (), "errors": 3, "last_error": "Server 92 exited with status 1"},
            "nvidia.com/gpu, log", "no server, and 3 failures", "a server, or no failure",
        ),
    ],
)  # fmt: skip
def test_what_is_otherwise_than_the_entry_means_is_found(
    changed: dict[str, Any], what: str, actual: str, desired: str
) -> None:
    found = _bad(_settings(), replace(GOOD, daemons=(replace(DAEMON, **changed),)))
    assert {name: (item.actual, item.desired) for name, item in found.items()} == {what: (actual, desired)}
    assert found[what].finding_class is FindingClass.DRIFT and found[what].remedy


def test_a_missing_daemon_is_found_and_one_that_is_not_asked_for() -> None:
    assert _bad(_settings(), PluginMps())["nvidia.com/gpu"].actual == "none"
    (item,) = _bad(_settings(None), GOOD).values()
    assert (item.actual, item.desired, item.by_person) == ("answers", "none", True)
    assert _bad(_settings(None), replace(GOOD, daemons=(replace(DAEMON, answers=False),))) == {}
    unasked = replace(GOOD, program=None, daemons=(replace(DAEMON, answers=False),))
    assert "nvidia-cuda-mps-control, by which it is asked, is not" in str(
        _bad(_settings(), unasked)["nvidia.com/gpu"].cause
    )


def test_a_daemon_that_nobody_can_ask_is_no_difference() -> None:
    """So it is where the driver, and its control program with it, is below another root."""
    settings = _settings()
    actual = PluginMps(None, (PluginDaemon("nvidia.com/gpu", answers=False),))
    (item,) = judge_mps(settings, actual, Gpus("ok", 0, None, (_gpu(0),)))
    assert item.is_caution and item.actual == "not asked" and "nvidia-cuda-mps-control" in str(item.cause)
    assert _bad(settings, replace(actual, program="/usr/bin/nvidia-cuda-mps-control"), _gpu(0))


def test_what_keeps_clients_waiting_is_told() -> None:
    beside = (
        GpuProcess("00000000:41:00.0", 1, "C", "/usr/bin/nvidia-cuda-mps-server"),
        GpuProcess("00000000:41:00.0", 2, "M+C", "python"),
        GpuProcess("00000000:41:00.0", 3, "G", "Xorg"),
        GpuProcess("00000000:41:00.0", 4, "C", "python"),
    )
    (item,) = _bad(_settings(), replace(GOOD, processes=beside)).values()
    assert item.actual == "process 4 (python)" and item.by_person and "Exclusive_Process" in str(item.cause)
    (item,) = _bad(_settings(), replace(GOOD, daemons=(replace(DAEMON, users=(0, 1001)),))).values()
    assert item.is_caution and "users 0, 1001" in str(item.cause) and "runAsUser" in str(item.remedy)


def test_the_gpus_are_in_the_daemon_s_mode_and_without_mig() -> None:
    found = _bad(_settings(), GOOD, _gpu(0, "Default"), _gpu(1, mig="Enabled"))
    assert found["compute mode of GPU 0"].actual == "Default" and not found["compute mode of GPU 0"].by_person
    assert found["MIG mode of GPU 1"].desired == "Disabled" and found["MIG mode of GPU 1"].by_person


@pytest.mark.parametrize(
    "plugin",
    [
        {"method": "none"},
        {"values": {"mps": {"root": "/run/elsewhere"}}},
    ],
)
def test_what_gpunode_does_not_know_is_not_judged(plugin: dict[str, Any]) -> None:
    assert _bad(_settings(None, device_plugin=plugin), GOOD) == {}
    own = {"device_plugin": {"config_name": "theirs"}, "sharing": {"config": "any"}}
    assert _bad(_settings(None, **own), GOOD) == {}
