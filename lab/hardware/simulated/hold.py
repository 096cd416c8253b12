"""gpunode-lab-hold: be a process that uses a SIMULATED GPU, until it is ended."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from .capabilities import DEVICES, minor
from .machine import Machine

_PROGRAM = "/usr/sbin/gpunode-lab-hold"


def main(arguments: list[str], machine: Machine | None = None) -> int:
    """Open the GPU's device and wait for a signal; return 0, 1 where there is no such GPU, 64 for wrong usage."""
    parser = argparse.ArgumentParser("gpunode-lab-hold", description=__doc__, exit_on_error=False)
    parser.add_argument("gpu", type=int, help="index of the GPU")
    parser.add_argument("--name", help="what the process is called")
    parser.add_argument("--instance", type=int, help="id of the one GPU instance that it uses; else it uses all")
    try:
        asked = parser.parse_args(arguments)
    except argparse.ArgumentError as error:
        print(f"gpunode-lab-hold: {error}", file=sys.stderr)
        return 64
    machine = machine or Machine()
    devices = [machine.path(f"/dev/nvidia{asked.gpu}")]
    if asked.instance is not None and asked.gpu < len(machine.gpus()):
        gpu = machine.gpus()[asked.gpu]
        # As CUDA does: the GPU's device, the GPU instance's, and that of its compute instance.
        numbers = (minor(gpu, asked.instance), minor(gpu, asked.instance, 0))
        devices += [machine.path(f"{DEVICES}/nvidia-cap{number}") for number in numbers]
    for device in devices:
        if not device.exists():
            why = "the GPU or the instance is not there, or no driver is loaded"
            print(f"gpunode-lab-hold: there is no {device}: {why}", file=sys.stderr)
            return 1
    if asked.name and os.environ.get("GPUNODE_LAB_HOLD") != asked.name:
        # Its first argument is what people see of a process.
        environment = {**os.environ, "GPUNODE_LAB_HOLD": asked.name}
        os.execve("/usr/bin/python3", [asked.name, "-ISB", _PROGRAM, *arguments], environment)
    _hold(machine, devices, asked.name)
    return 0


def _hold(machine: Machine, devices: list[Path], name: str | None) -> None:
    for device in devices:
        # No driver of the kernel's stands behind the device: it cannot be opened for reading, only held.
        os.open(device, os.O_PATH)
    if name:
        Path("/proc/self/comm").write_text(name[:15])
    used = ", ".join(device.name for device in devices)
    machine.log("hold", f"process {os.getpid()} ({name or 'unnamed'}) uses {used}")
    ended = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ended)
    signal.sigwait(ended)
