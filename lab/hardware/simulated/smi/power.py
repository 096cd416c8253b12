"""-pl, -ac, -rac, -lgc, -rgc, -lmc, -rmc and -e: what nvidia-smi sets of one GPU's power, clocks and ECC.

The words are those in NVIDIA's own nvidia-smi 550.163.01, and what people recorded of other releases. What a GPU does
not take is a warning, and the program ends with 0; a power limit out of range ends it with 2.
"""

from __future__ import annotations

import os

from ..machine import SimulatedGpu
from .session import DEPRECATED, FIRST_WITHOUT_APPLICATION_CLOCKS, Failure, Session

_EARLY = "Terminating early due to previous errors.\n"
_WARNING = "Treating as warning and moving on."
_SEE = "Run 'nvidia-smi -q -d SUPPORTED_CLOCKS' to see list of supported clock combinations"
_PERSISTENCE = (
    "\nWarning: persistence mode is disabled on device {bus_id}. See the Known Issues section of the nvidia-smi(1) man "
    "page for more information. Run with [--help | -h] switch to get more information on how to enable persistence "
    "mode."
)
# The graphics clocks of a GPU are this many MHz apart, from this one on.
_STEP, _LOWEST = 15, 210
_RESETS = {
    "reset-applications-clocks": "application_clocks",
    "reset-gpu-clocks": "locked_graphics",
    "reset-memory-clocks": "locked_memory",
}
_SWITCH = {"0": False, "DISABLED": False, "1": True, "ENABLED": True}


def run(session: Session, command: str, options: dict[str, str]) -> None:
    """Set it on every selected GPU; Failure 2 for a wrong value, 4 without root, 6 and 15 as everywhere."""
    value = options[command]
    numbers = _numbers(command, value)
    gpus = session.select(options.get("id"))
    session.require_reachable(gpus)
    if os.geteuid() != 0:
        raise Failure(f"{_failed(command, gpus[0], numbers)}: Insufficient Permissions\n{_EARLY}", 4)
    reboot = False
    with session.alone():
        for gpu in gpus:
            reboot = _set(session, gpu, command, numbers) or reboot
    session.say("All done.")
    if reboot:
        session.say("Reboot required.")


def _numbers(command: str, value: str) -> list[float]:
    """Return the numbers of a value; Failure 2 for one that is none."""
    if command in _RESETS:
        return []
    if command == "ecc-config":
        if value.upper() not in _SWITCH:
            raise Failure(f"Invalid ECC configuration code: {value}\n{_EARLY}", 2)
        return [float(_SWITCH[value.upper()])]
    cells = value.split(",")
    try:
        found = [float(cell) if command == "power-limit" else float(int(cell)) for cell in cells]
    except ValueError:
        found = []
    if command == "power-limit":
        if len(found) != 1:
            raise Failure(f"Invalid power limit: {value}\n{_EARLY}", 2)
        return found
    if command != "applications-clocks" and len(found) == 1:
        found *= 2
    if len(found) != 2:
        form = {
            "applications-clocks": "memClk,smClk e.g. --applications-clocks=2000,300",
            "lock-gpu-clocks": "'gpuClkMin,gpuClkMax' or 'gpuClkVal' e.g. '--lock-gpu-clocks=1500,1500', "
            "'--lock-gpu-clocks=1500', or '--lock-gpu-clocks=tdp,unlimited'",
            "lock-memory-clocks": "'memClkMin,memClkMax' or 'memClkVal' e.g. --lock-memory-clocks=5100,5100 or "
            "--lock-memory-clocks=5100",
        }[command]
        raise Failure(f'Specified clocks "{value}" are not valid. Please format input as {form}\n{_EARLY}', 2)
    return found


def _failed(command: str, gpu: SimulatedGpu, numbers: list[float]) -> str:
    if command == "power-limit":
        return f"Failed to set power management limit for GPU {gpu.bus_id}"
    if command == "ecc-config":
        return f"Unable to set ECC config for GPU {gpu.bus_id}"
    if command == "applications-clocks":
        return f'Unable to set applications clocks "(MEM {numbers[0]:.0f}, SM {numbers[1]:.0f})" for GPU {gpu.bus_id}'
    if command == "lock-gpu-clocks":
        pair = f"(gpuClockMin {numbers[0]:.0f}, gpuClockMax {numbers[1]:.0f})"
        return f'Unable to set GPU locked clocks "{pair}" for GPU {gpu.bus_id}'
    if command == "lock-memory-clocks":
        pair = f"(memClockMin {numbers[0]:.0f}, memClockMax {numbers[1]:.0f})"
        return f'Unable to set Memory locked clocks "{pair}" for GPU {gpu.bus_id}'
    what = {"reset-gpu-clocks": "locked gpu", "reset-memory-clocks": "locked Memory"}.get(command, "applications")
    return f"Unable to reset {what} clocks for GPU {gpu.bus_id}"


def _set(session: Session, gpu: SimulatedGpu, command: str, numbers: list[float]) -> bool:
    """Set it on one GPU; return whether that takes a reboot."""
    if command == "ecc-config":
        return _ecc(session, gpu, bool(numbers[0]))
    if session.has("power_ignored", gpu):
        # A GPU whose platform keeps the limit to itself: said and not done.
        session.say(_taken(gpu, command, numbers, session))
        return False
    if command == "power-limit":
        _limit(session, gpu, numbers[0])
    elif command in _RESETS:
        if command == "reset-applications-clocks" and session.branch >= FIRST_WITHOUT_APPLICATION_CLOCKS:
            session.say(f"{_failed(command, gpu, numbers)}: {DEPRECATED.strip('[]')}\n{_WARNING}")
            return False
        session.set_runtime(gpu, **{_RESETS[command]: None})
    else:
        _clocks(session, gpu, command, [int(number) for number in numbers])
    if not session.runtime(gpu).get("persistence"):
        session.say(_PERSISTENCE.format(bus_id=gpu.bus_id))
    return False


def _taken(gpu: SimulatedGpu, command: str, numbers: list[float], session: Session) -> str:
    if command == "power-limit":
        was = session.power_limit(gpu)
        return f"Power limit for GPU {gpu.bus_id} was set to {numbers[0]:.2f} W from {was:.2f} W."
    if command == "applications-clocks":
        return f'Applications clocks set to "(MEM {numbers[0]:.0f}, SM {numbers[1]:.0f})" for GPU {gpu.bus_id}'
    if command == "lock-gpu-clocks":
        pair = f"(gpuClkMin {numbers[0]:.0f}, gpuClkMax {numbers[1]:.0f})"
        return f'GPU clocks set to "{pair}" for GPU {gpu.bus_id}'
    pair = f"(memClkMin {numbers[0]:.0f}, memClkMax {numbers[1]:.0f})"
    return f'Memory clocks set to "{pair}" for GPU {gpu.bus_id}'


def _limit(session: Session, gpu: SimulatedGpu, watts: float) -> None:
    least, most = gpu.model.power_least_w, gpu.model.power_limit_w
    if not least <= watts <= most:
        raise Failure(
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be between {least:.2f} W and "
            f"{most:.2f} W for GPU {gpu.bus_id}\n{_EARLY}",
            2,
        )
    session.say(_taken(gpu, "power-limit", [watts], session))
    session.set_runtime(gpu, power_limit=watts)


def _clocks(session: Session, gpu: SimulatedGpu, command: str, pair: list[int]) -> None:
    memory, _, graphics = gpu.model.clocks
    if command == "applications-clocks":
        if session.branch >= FIRST_WITHOUT_APPLICATION_CLOCKS:
            session.say(f"{_failed(command, gpu, list(map(float, pair)))}: {DEPRECATED.strip('[]')}\n{_WARNING}")
            return
        fits = pair[0] == memory and _LOWEST <= pair[1] <= graphics and (graphics - pair[1]) % _STEP == 0
        if not fits:
            told = f'Specified clock combination "(MEM {pair[0]}, SM {pair[1]})" is not supported for GPU {gpu.bus_id}.'
            session.say(f"{told} {_SEE}\n{_WARNING}")
            return
        session.set_runtime(gpu, application_clocks=pair)
    else:
        key = "locked_graphics" if command == "lock-gpu-clocks" else "locked_memory"
        session.set_runtime(gpu, **{key: pair})
    session.say(_taken(gpu, command, list(map(float, pair)), session))


def _ecc(session: Session, gpu: SimulatedGpu, on: bool) -> bool:
    word = "Enabled" if on else "Disabled"
    if session.ecc(gpu)[1] == on:
        session.say(f"ECC support is already {word} for GPU {gpu.bus_id}.")
        return False
    session.set_ecc(gpu, on)
    session.say(f"{word} ECC support for GPU {gpu.bus_id}.")
    return True
