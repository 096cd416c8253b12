"""What the SIMULATED libnvidia-ml answers from: a table of the hardware, and the changes that NVML's functions make.

The library (lab/hardware/nvml) runs `nvml table`, or `nvml CHANGE NUMBER...`.
Each line of what is printed is one object, its fields divided by tabs (lab/hardware/nvml/state.c reads them). A copy of
the table is kept where the container toolkit looks for the driver's firmware, so that it gets into containers.
"""

from __future__ import annotations

import os
import sys

from . import module
from .machine import FAULTS, Machine, SimulatedGpu
from .smi.mig.instances import GpuInstance, Instances
from .smi.mig.nvml import NvmlError, invalid_argument, no_permission, not_found
from .smi.modify import change_mig_mode
from .smi.session import CUDA, Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .smi.mig.table import Profile

# The library makes the table again when one of these has changed (machine.c has the same list).
SOURCES = (
    "/etc/gpunode-lab/hardware.json",
    FAULTS,
    module.STATE,
    module.RUNTIME_STATE,
    module.PERSISTENT_STATE,
    "/sys/module/nvidia/version",
)
# NVML's numbers of architectures by compute capability, and of brands.
_ARCHITECTURES = {"7.0": 5, "7.5": 6, "8.0": 7, "8.6": 7, "8.9": 8, "9.0": 9, "10.0": 10}
_TESLA, _NVIDIA = 2, 14
COMPUTE_MODES = {"Default": 0, "Prohibited": 2, "Exclusive_Process": 3}
_UNKNOWN = 999


def main(arguments: list[str], machine: Machine | None = None) -> int:
    """Make a change, if the arguments name one, and print its result and the table; return 0."""
    machine = machine or Machine(os.environ.get("GPUNODE_LAB_ROOT", "/"))
    what, *numbers = arguments
    session = _session(machine)
    lines = []
    if what != "table":
        code, value = change(session, what, [int(number) for number in numbers])
        machine.log("nvml", f"{what} {' '.join(numbers)}: {code}")
        lines.append(f"result\t{code}\t{value}\n")
    sys.stdout.write("".join([*lines, _keep(session) or table(session)]))
    return 0


def _session(machine: Machine) -> Session:
    return Session(machine, module.loaded_version(machine) or "0", machine.gpus())


def publish(machine: Machine) -> None:
    """Bring the copy of the table up to date, which containers see."""
    if module.loaded_version(machine) is not None:
        _keep(_session(machine))


def _keep(session: Session) -> str:
    """Write the copy of the table and return it; nothing where no driver is loaded, or without the right to.

    It is written in place, for containers have that very file mounted.
    """
    import fcntl

    machine, loaded = session.machine, session.driver_version
    if not loaded:
        return ""
    try:
        for version in machine.names_in(module.FIRMWARE):
            if version != loaded:
                machine.remove(f"{module.FIRMWARE}/{version}/{module.TABLE}")
        machine.make_folder(f"{module.FIRMWARE}/{loaded}")
        file = os.open(machine.at(f"{module.FIRMWARE}/{loaded}/{module.TABLE}"), os.O_WRONLY | os.O_CREAT, 0o644)
    except OSError:
        return ""
    with open(file, "w") as copy:
        fcntl.flock(copy, fcntl.LOCK_EX)
        text = table(session)
        copy.truncate()
        copy.write(text)
    return text


def table(session: Session) -> str:
    """Return the table of the hardware; its last line is `end`."""
    # First: a file that changes after this is noticed.
    lines: list[tuple[object, ...]] = [("sources", _stamp(session.machine))]
    if session.machine.faults.get("hang"):
        lines.append(("hang",))
    if session.driver_version:
        lines.append(("driver", session.driver_version, _cuda(session)))
        for gpu in session.gpus:
            lines += _gpu(session, gpu)
    return "".join("\t".join(map(str, line)) + "\n" for line in [*lines, ("end",)])


def _stamp(machine: Machine) -> str:
    words = []
    for source in SOURCES:
        try:
            found = os.stat(machine.at(source))
        except OSError:
            words.append("0.000000000:0 ")
        else:
            seconds, rest = divmod(found.st_mtime_ns, 1_000_000_000)
            words.append(f"{seconds}.{rest:09}:{found.st_size} ")
    return "".join(words)


def _cuda(session: Session) -> int:
    """Return CUDA's version as NVML writes it: 13000 for 13.0."""
    known = [branch for branch in CUDA if branch <= session.branch]
    major, minor = CUDA[max(known, default=min(CUDA))].split(".")
    return int(major) * 1000 + int(minor) * 10


def _gpu(session: Session, gpu: SimulatedGpu) -> Iterator[tuple[object, ...]]:
    model, runtime = gpu.model, session.runtime(gpu)
    current, pending = (int(mode == "Enabled") for mode in session.mig_modes(gpu))
    # 580 shows the profiles of a GPU that is not in MIG mode, too.
    instances = Instances(session, gpu) if model.mig and (current or session.branch >= 580) else None
    profiles = instances.profiles if instances else ()
    major, minor = model.compute_capability.split(".")
    yield (
        *("gpu", gpu.index, gpu.uuid, model.name, gpu.bus_id, 1650000000000 + gpu.index, model.vbios, gpu.index),
        *(f"0x{model.device_id}10de", f"0x{model.subsystem_id}10de", model.memory_mib, major, minor),
        *(_ARCHITECTURES[model.compute_capability], _TESLA if model.name.startswith("Tesla") else _NVIDIA),
        *(int(session.lost(gpu)), int(bool(model.mig)), current, pending),
        *(COMPUTE_MODES[str(runtime.get("compute_mode", "Default"))], int(bool(runtime.get("persistence")))),
        max((profile.most for profile in profiles), default=0),
    )
    if instances is None:
        return
    for profile in profiles:
        yield from _profile(instances, profile)
    for each in instances if current else ():
        yield "instance", gpu.index, each.id, each.profile.order, each.start
        for one in each.compute:
            yield "compute", gpu.index, each.id, one.id, one.profile_id, one.start, one.size, one.uuid


def _profile(instances: Instances, profile: Profile) -> Iterator[tuple[object, ...]]:
    index = instances.gpu.index
    yield (
        *("profile", index, profile.order, profile.id, profile.compute, profile.most, instances.free(profile)),
        *(profile.sm, profile.ce, profile.dec, profile.enc, profile.jpeg, profile.ofa, profile.memory_mib),
        *(profile.size, ",".join(map(str, sorted(profile.tries))), profile.name),
    )
    of = GpuInstance(0, profile, 0, ())
    for number, size in of.compute_profiles().items():
        starts = ",".join(map(str, of.compute_starts(size)))
        columns = (size, profile.compute // size, instances.compute_sm(profile, size), starts, of.compute_name(size))
        yield "compute-profile", index, profile.order, number, *columns


def change(session: Session, what: str, numbers: list[int]) -> tuple[int, int]:
    """Make a change of NVML's; return NVML's code, and the id of what was created or the status of a change of mode."""
    gpu = session.gpus[numbers[0]]
    try:
        if os.geteuid() != 0:
            raise no_permission()
        with session.alone():
            return 0, _CHANGES[what](session, gpu, *numbers[1:])
    except NvmlError as error:
        return _UNKNOWN if error.exit_code == 255 else error.exit_code, 0


def _mig_mode(session: Session, gpu: SimulatedGpu, mode: int) -> int:
    if mode not in (0, 1):
        raise invalid_argument()
    return change_mig_mode(session, gpu, bool(mode))


def _compute_mode(session: Session, gpu: SimulatedGpu, mode: int) -> int:
    if mode not in COMPUTE_MODES.values():
        raise invalid_argument()
    session.set_runtime(gpu, compute_mode=next(name for name, number in COMPUTE_MODES.items() if number == mode))
    return 0


def _persistence_mode(session: Session, gpu: SimulatedGpu, mode: int) -> int:
    if mode not in (0, 1):
        raise invalid_argument()
    session.set_runtime(gpu, persistence=bool(mode))
    return 0


def _create_instance(session: Session, gpu: SimulatedGpu, profile: int, start: int, unused: int) -> int:
    instances = Instances(session, gpu)
    return instances.create(instances.profile(str(profile)), None if start < 0 else start).id


def _create_compute(session: Session, gpu: SimulatedGpu, instance: int, profile: int, start: int) -> int:
    of = _instance(session, gpu, instance)
    size = of.compute_profiles()[profile]
    return Instances(session, gpu).create_compute(of, size, None if start < 0 else start).id


def _destroy_instance(session: Session, gpu: SimulatedGpu, instance: int, *unused: int) -> int:
    Instances(session, gpu).destroy(_instance(session, gpu, instance))
    return 0


def _destroy_compute(session: Session, gpu: SimulatedGpu, instance: int, compute: int, unused: int) -> int:
    of = _instance(session, gpu, instance)
    one = next((each for each in of.compute if each.id == compute), None)
    if one is None:
        raise not_found()
    Instances(session, gpu).destroy_compute(of, one)
    return 0


def _instance(session: Session, gpu: SimulatedGpu, number: int) -> GpuInstance:
    found = next((each for each in Instances(session, gpu) if each.id == number), None)
    if found is None:
        raise not_found()
    return found


_CHANGES: dict[str, Callable[..., int]] = {
    "mig-mode": _mig_mode,
    "compute-mode": _compute_mode,
    "persistence-mode": _persistence_mode,
    "create-instance": _create_instance,
    "create-compute": _create_compute,
    "destroy-instance": _destroy_instance,
    "destroy-compute": _destroy_compute,
}
