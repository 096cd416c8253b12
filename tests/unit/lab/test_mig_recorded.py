"""The simulated nvidia-smi's MIG life, call by call, to the letter of what NVIDIA's own printed over simulated GPUs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.hardware.simulated.holders import Holder
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi import query, table
from gpunode.lab.hardware.simulated.smi.main import call
from tests.support.nvidia_smi import A100, machine_with
from tests.support.recorded_smi import last, recorded

pytestmark = pytest.mark.simulated

H100: dict[str, Any] = {
    "gpu": "h100-80gb",
    "count": 2,
    "uuids": ["GPU-01000100-0000-0000-0000-000000000000", "GPU-01000100-0000-0000-0000-000000000001"],
}
# What each look at a GPU finds anew.
_OF_THE_MOMENT = re.compile(r"^Timestamp .*|^\w{3} \w{3} [ \d]\d \d\d:.*|\d+C +P0 +\d+W|0{8}:\w\w:\w\w\.\w", re.M)
_UUID = re.compile(r"MIG-[0-9a-f-]{36}")
# Not recorded with MIG devices, or not simulated: the plain table, and -q. Nor is -q -d PIDS of a real GPU: of those
# that hold a simulated one, nobody says which have a context on it, or have it by MPS.
_LEFT_OUT = ("", "-q -i 0 -d COMPUTE")


def replayed(machine: Machine, name: str, version: str) -> int:
    """Make every recorded call in order and compare; return how many there were."""
    calls = [each for each in recorded(name) if each[0] not in _LEFT_OUT]
    for number, (line, printed, status) in enumerate(calls, start=1):
        got, code = call(line.split(), version, machine)
        # Which UUIDs the devices have is the driver's own affair; that they have one is not.
        expected = _UUID.sub("MIG-", printed)
        assert (_UUID.sub("MIG-", got.decode()), code) == (expected, status), f"call {number}: nvidia-smi {line}"
    return len(calls)


@pytest.mark.parametrize(("version", "name"), [("535.261.03", "535"), ("550.163.01", "550")])
def test_the_life_of_an_a100_40gb_is_the_recorded_one(tmp_path: Path, version: str, name: str) -> None:
    machine = machine_with(tmp_path, A100, version)
    machine.write_json("/etc/gpunode-lab/faults.json", {"busy": 1})
    assert replayed(machine, f"a100-40gb-x2.nvidia-smi-{name}.txt", version) == 41


def test_the_life_of_an_h100_80gb_is_the_recorded_one(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, H100)
    assert replayed(machine, "h100-80gb-x2.nvidia-smi-550.txt", "550.163.01") == 11


@pytest.mark.parametrize(("name", "count"), [("h100-80gb", 9), ("h200", 12)])
def test_what_a_real_gpu_without_mig_was_asked_is_answered_as_by_the_real_one(
    tmp_path: Path, name: str, count: int
) -> None:
    calls = [each for each in recorded(f"{name}.nvidia-smi-580.txt") if each[0] != "-q -d PIDS"]
    machine = machine_with(tmp_path, {"gpu": name, "count": 1, "uuids": [H100["uuids"][0]]}, "580.159.04")
    call(["-pm", "1"], "580.159.04", machine)
    assert len(calls) == count
    for line, printed, status in calls:
        got, code = call(line.split(), "580.159.04", machine)
        assert (_OF_THE_MOMENT.sub("", got.decode()), code) == (_OF_THE_MOMENT.sub("", printed), status), line


@pytest.mark.parametrize(
    ("line", "clients"),
    [
        ("", {1545: "/tmp/long"}),
        # By an MPS server, in the order in which the GPU had them.
        (
            "--query-compute-apps=pid,name,used_memory --format=csv",
            {1732: "nvidia-cuda-mps-server", 1729: "/tmp/long", 1730: "/tmp/long"},
        ),
    ],
)
def test_processes_are_listed_as_by_the_real_one_but_for_their_memory(
    line: str, clients: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "580.159.04"
    machine = machine_with(tmp_path, {"gpu": "h100-80gb", "count": 1}, version)
    call(["-pm", "1"], version, machine)
    found = [Holder(pid, program, frozenset()) for pid, program in clients.items()]
    for module in (table, query):
        monkeypatch.setattr(module, "holders", lambda *_: found)
    printed = last("h100-80gb-clients.nvidia-smi-580.txt", line)
    got = call(line.split(), version, machine)[0].decode()
    # What memory a process uses is not simulated.
    printed = re.sub(r"\d+ MiB$", "[N/A]", printed, flags=re.M)
    printed = re.sub(r"\d+MiB(?= \|$)", lambda found: "N/A".rjust(len(found[0])), printed, flags=re.M)
    printed = re.sub(r"\d+(?=MiB / )", lambda found: "0".rjust(len(found[0])), printed)
    assert _OF_THE_MOMENT.sub("", got) == _OF_THE_MOMENT.sub("", printed)


def test_the_command_line_is_as_forgiving_as_the_recorded_one(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {**A100, "count": 1, "uuids": A100["uuids"]}, "535.309.01")
    for line in ("-mig 1", "mig -cgi 9:4 -C", "mig -cgi 14:0"):
        assert call(line.split(), "535.309.01", machine)[1] == 0
    assert replayed(machine, "mig-command-line.nvidia-smi-535.txt", "535.309.01") == 31
