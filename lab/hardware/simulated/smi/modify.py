"""-pm, -c, -mig and --gpu-reset: what nvidia-smi changes on whole GPUs."""

from __future__ import annotations

import os

from ..machine import SimulatedGpu
from .session import Failure, Session

_COMPUTE_MODES = {
    "0": "DEFAULT",
    "DEFAULT": "DEFAULT",
    "2": "PROHIBITED",
    "PROHIBITED": "PROHIBITED",
    "3": "EXCLUSIVE_PROCESS",
    "EXCLUSIVE_PROCESS": "EXCLUSIVE_PROCESS",
}
_SHOWN = {"DEFAULT": "Default", "PROHIBITED": "Prohibited", "EXCLUSIVE_PROCESS": "Exclusive_Process"}
_SWITCH = {"0": False, "DISABLED": False, "1": True, "ENABLED": True}
# NVML's codes: the first says that a process uses the GPU, the second, Not Supported, that it must be reset.
_IN_USE, _WAITS = 19, 3
_EARLY = "Terminating early due to previous errors.\n"


def run(session: Session, command: str, options: dict[str, str]) -> None:
    """Change every selected GPU; Failure 2 for a wrong value, 4 without root, 6 and 15 as everywhere."""
    value = options[command].upper()
    if command == "persistence-mode" and value not in _SWITCH:
        raise Failure(f"Invalid persistence mode: {options[command]}\n{_EARLY}", 2)
    if command == "compute-mode" and value not in _COMPUTE_MODES:
        raise Failure(f"Invalid compute mode: {options[command]}\n{_EARLY}", 2)
    if command == "mig-mode" and value not in _SWITCH:
        raise Failure(f"Invalid MIG Mode: {options[command]}\n{_EARLY}", 2)
    gpus = session.select(options.get("id"))
    session.require_reachable(gpus)
    if os.geteuid() != 0:
        what = {"persistence-mode": "persistence mode", "compute-mode": "the compute mode"}.get(command, "MIG Mode")
        raise Failure(f"Unable to set {what} for GPU {gpus[0].bus_id}: Insufficient Permissions\n{_EARLY}", 4)
    with session.alone():
        for gpu in gpus:
            _change(session, gpu, command, value)
    session.say("All done.")


def _change(session: Session, gpu: SimulatedGpu, command: str, value: str) -> None:
    if command == "persistence-mode":
        _persistence(session, gpu, _SWITCH[value])
    elif command == "compute-mode":
        _compute(session, gpu, _COMPUTE_MODES[value])
    elif command == "mig-mode":
        _mig(session, gpu, _SWITCH[value])
    else:
        _reset(session, gpu)


def _persistence(session: Session, gpu: SimulatedGpu, on: bool) -> None:
    word = "Enabled" if on else "Disabled"
    if bool(session.runtime(gpu).get("persistence")) == on:
        session.say(f"Persistence mode is already {word} for GPU {gpu.bus_id}.")
        return
    session.set_runtime(gpu, persistence=on)
    session.say(f"{word} persistence mode for GPU {gpu.bus_id}.")


def _compute(session: Session, gpu: SimulatedGpu, mode: str) -> None:
    if session.runtime(gpu).get("compute_mode", "Default") == _SHOWN[mode]:
        session.say(f"Compute mode is already set to {mode} for GPU {gpu.bus_id}.")
        return
    session.set_runtime(gpu, compute_mode=_SHOWN[mode])
    session.say(f"Set compute mode to {mode} for GPU {gpu.bus_id}.")


def _mig(session: Session, gpu: SimulatedGpu, on: bool) -> None:
    word = "enable" if on else "disable"
    if not gpu.model.mig:
        session.say(f"Unable to {word} MIG Mode for GPU {gpu.bus_id}: Not Supported")
        session.say("Treating as warning and moving on.")
        return
    code = change_mig_mode(session, gpu, on)
    if code == _WAITS:
        session.say(
            f"Warning: MIG mode is in pending {word} state for GPU {gpu.bus_id}:Not Supported\n"
            "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU "
            f"{gpu.bus_id}"
        )
        return
    if code == 0:
        session.say(f"{word.capitalize()}d MIG Mode for GPU {gpu.bus_id}")
        return
    session.say(
        f"Warning: MIG mode is in pending {word} state for GPU {gpu.bus_id}:In use by another client\n"
        f"{gpu.bus_id} is currently being used by one or more other processes (e.g. CUDA application or a monitoring "
        "application such as another instance of nvidia-smi). Please first kill all processes using the device and "
        "retry the command or reboot the system to make MIG mode effective."
    )


def change_mig_mode(session: Session, gpu: SimulatedGpu, on: bool) -> int:
    """Change MIG mode, at once or pending; return NVML's status of the activation: 0, or why it waits."""
    if session.mig_modes(gpu)[0] == ("Enabled" if on else "Disabled"):
        session.set_mig_mode(gpu, on, effective=False)
        return 0
    code = _IN_USE if session.busy(gpu) else _WAITS if session.has("mig_pending", gpu) else 0
    session.set_mig_mode(gpu, on, effective=code == 0)
    return code


def _reset(session: Session, gpu: SimulatedGpu) -> None:
    if session.has("reset_refused", gpu):
        raise Failure(f"The following GPUs could not be reset:\n  GPU {gpu.bus_id}: Not Supported\n\n", 3)
    if session.held(gpu):
        raise Failure(
            f"The following GPUs could not be reset:\n  GPU {gpu.bus_id}: In use by another client\n\n"
            "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
            "graphics application such as an X server, or a monitoring application such as another instance of "
            "nvidia-smi). Please first kill all processes using this device and all compute applications running in "
            "the system.\n",
            19,
        )
    session.set_mig_mode(gpu, session.mig_modes(gpu)[1] == "Enabled", effective=True)
    session.forget_settings(gpu)
    session.say(f"GPU {gpu.bus_id} was successfully reset.")
