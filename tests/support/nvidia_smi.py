"""Helpers and data for the tests of nvidia smi."""

from __future__ import annotations

from pathlib import Path

from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
from tests.support.installed_driver import install

VERSION = "550.163.01"


A100 = {
    "gpu": "a100-40gb",
    "count": 2,
    "uuids": ["GPU-12345678-1234-1234-1234-123456780000", "GPU-12345678-1234-1234-1234-123456780001"],
}


def machine_with(root: Path, hardware: dict[str, object], version: str = VERSION, flavour: str = "open") -> Machine:
    """Make a machine in a folder, its driver installed and loaded."""
    machine = Machine(root)
    machine.write_json("/etc/gpunode-lab/hardware.json", hardware)
    install(machine, version, flavour)
    module.load(machine, "nvidia")
    return machine


def smi(machine: Machine, line: str) -> tuple[str, int]:
    """Run a command line; garbage bytes become the replacement character, as in the recorded files."""
    printed, status = call(line.split(), VERSION, machine)
    return printed.decode(errors="replace"), status
