"""SIMULATED faults that strike once, at the Nth event from now: the fault's number counts down, and then it is gone."""

from __future__ import annotations

import os
import time

from .machine import FAULTS, HardwareError, Machine

# Only a lab node has it: on any other machine nobody's power is cut.
_LAB_NODE = "/usr/lib/gpunode-lab/boot"


def struck(machine: Machine, fault: str) -> bool:
    """Count one event; say whether it is the one at which the fault strikes."""
    faults = machine.faults
    left = faults.get(fault)
    if not isinstance(left, int):
        return False
    rest = {key: value for key, value in faults.items() if key != fault}
    machine.write_json(FAULTS, {**rest, fault: left - 1} if left > 1 else rest)
    if left > 1:
        return False
    machine.log("fault", f"{fault} strikes")
    return True


def kill_self() -> None:
    """End this process as kill -9 does: what it has printed so far is lost."""
    from signal import SIGKILL

    os.kill(os.getpid(), SIGKILL)


def cut_power(machine: Machine) -> None:
    """Let the node lose its power: no shutdown, everything in /run is gone. Refused on what is no lab node."""
    import subprocess

    if not machine.is_node or not os.path.exists(_LAB_NODE):
        raise HardwareError("power_cut_at strikes only in a lab node")
    subprocess.run(["systemctl", "reboot", "--force", "--force"], check=False)
    time.sleep(60)
