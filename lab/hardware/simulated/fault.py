"""gpunode-lab-fault: set and clear SIMULATED faults of a node's GPUs."""

from __future__ import annotations

import json
import sys
from typing import Any

from .machine import FAULTS, HardwareError, Machine
from .nvml import publish

OF_ONE_GPU = (
    "lost_gpu", "busy", "uncorrected_ecc", "remap_pending", "remap_failure", "mig_pending", "mig_create_fails",
    "power_ignored", "reset_refused", "inforom_corrupted",
)  # fmt: skip
OF_A_MOMENT = ("mig_create_fails_at", "mig_compute_fails_at", "smi_killed_at", "power_cut_at")
_USAGE = """usage: gpunode-lab-fault show
       gpunode-lab-fault set lost_gpu INDEX          the GPU has fallen off the bus
       gpunode-lab-fault set busy INDEX              another process uses the GPU: MIG mode changes stay pending
       gpunode-lab-fault set uncorrected_ecc INDEX   the GPU's memory has had errors that ECC could not correct
       gpunode-lab-fault set remap_pending INDEX     rows of its memory wait for a reset to be remapped
       gpunode-lab-fault set remap_failure INDEX     a row of its memory could not be remapped
       gpunode-lab-fault set mig_pending INDEX       a change of MIG mode waits for a reset, though nobody uses the GPU
       gpunode-lab-fault set mig_create_fails INDEX  no GPU instance can be created on the GPU
       gpunode-lab-fault set power_ignored INDEX     the GPU says that it takes a power limit or clocks, and does not
       gpunode-lab-fault set reset_refused INDEX     the GPU cannot be reset
       gpunode-lab-fault set inforom_corrupted INDEX the GPU's infoROM is corrupted: nvidia-smi warns and exits 14
       gpunode-lab-fault set mig_create_fails_at N   the Nth GPU instance from now, on any GPU, is not created; once
       gpunode-lab-fault set mig_compute_fails_at N  the Nth compute instance is not created; once
       gpunode-lab-fault set smi_killed_at N         nvidia-smi is killed after the Nth change of an instance; once
       gpunode-lab-fault set power_cut_at N          the node's power is cut then; once
       gpunode-lab-fault set hang                    nvidia-smi hangs and ignores SIGTERM
       gpunode-lab-fault clear [NAME]"""


def main(arguments: list[str], machine: Machine | None = None) -> int:
    """Change faults.json as the arguments say; return 0, 1 for an unusable file, 64 for wrong usage."""
    machine = machine or Machine()
    try:
        faults = dict(machine.faults)
        changed = _changed(faults, arguments, len(machine.gpus()))
    except HardwareError as error:
        print(f"gpunode-lab-fault: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"gpunode-lab-fault: {error}\n{_USAGE}", file=sys.stderr)
        return 64
    if changed is not None:
        machine.write_json(FAULTS, changed)
        machine.log("fault", " ".join(arguments))
        publish(machine)
    print(json.dumps(faults if changed is None else changed, sort_keys=True))
    return 0


def _changed(faults: dict[str, Any], arguments: list[str], gpus: int) -> dict[str, Any] | None:
    match arguments:
        case [] | ["show"]:
            return None
        case ["clear"]:
            return {}
        case ["clear", name]:
            return {key: value for key, value in faults.items() if key != name}
        case ["set", "hang"]:
            return {**faults, "hang": True}
        case ["set", name, index] if name in OF_ONE_GPU:
            if not index.isdigit() or int(index) >= gpus:
                raise ValueError(f"{name} is {index!r}; allowed: the index of one of this node's {gpus} GPU(s)")
            return {**faults, name: int(index)}
        case ["set", name, number] if name in OF_A_MOMENT:
            if not number.isdigit() or not int(number):
                raise ValueError(f"{name} is {number!r}; allowed: 1 for the next, 2 for the one after it, and so on")
            return {**faults, name: int(number)}
    raise ValueError(f"cannot read {' '.join(arguments)!r}")
