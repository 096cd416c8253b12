"""One call of nvidia-smi: the machine, the version of the program, what it has printed."""

from __future__ import annotations

# What runs a zip archive has contextlib imported already.
from contextlib import contextmanager

from .. import capabilities, module, moments
from ..holders import holders
from ..machine import Machine, SimulatedGpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# What a driver branch's libcuda offers (data/cuda.yaml of the field: the CUDA version that nvidia-smi prints).
CUDA = {535: "12.2", 550: "12.4", 570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1"}


class Failure(Exception):
    """End the call with a text (bytes: the real program prints garbage here and there) and an NVML exit code."""

    def __init__(self, text: str | bytes, exit_code: int) -> None:
        super().__init__(text)
        self.text = text.encode() if isinstance(text, str) else text
        self.exit_code = exit_code


class Session:
    """Hold a call; `version` is that of the nvidia-smi package."""

    def __init__(self, machine: Machine, version: str, gpus: tuple[SimulatedGpu, ...]) -> None:
        self.machine = machine
        self.version = version
        self.gpus = gpus
        self.printed = bytearray()
        self.asked: list[SimulatedGpu] = []
        self.changed = False

    def say(self, line: str = "") -> None:
        """Add a line to what is printed."""
        self.printed += f"{line}\n".encode()

    @property
    def branch(self) -> int:
        """Return the driver branch as a number."""
        return int(self.version.split(".")[0])

    @property
    def cuda_version(self) -> str:
        """Return the CUDA version that this driver offers."""
        return CUDA.get(self.branch, "N/A")

    @property
    def driver_version(self) -> str:
        """Return the loaded module's version."""
        return module.loaded_version(self.machine) or ""

    def select(self, ids: str | None) -> list[SimulatedGpu]:
        """Return the GPUs that `-i` names by index, UUID or bus id: all without it; unknown ones are left out.

        Raises Failure 6 if none is left, and 255 for a UUID while any GPU is lost, as the real program does: looking
        for a UUID it asks every GPU for its own, and ends at one that does not answer.
        """
        chosen = list(self.gpus)
        if ids is not None:
            wanted = [item.strip() for item in ids.split(",")]
            if any(item.startswith("GPU-") for item in wanted) and any(map(self.lost, self.gpus)):
                raise Failure(b"Unable to determine the device handle for GPU\xa8h\x10: Unknown Error\n", 255)
            chosen = [gpu for item in wanted for gpu in self.gpus if _is(gpu, item)]
        if not chosen:
            raise Failure("No devices were found\n", 6)
        self.asked = chosen
        return chosen

    def has(self, fault: str, gpu: SimulatedGpu) -> bool:
        """Say whether a fault that names one GPU is set for this one."""
        return self.machine.faults.get(fault) == gpu.index

    def lost(self, gpu: SimulatedGpu) -> bool:
        """Say whether the GPU has fallen off the bus."""
        return self.has("lost_gpu", gpu)

    def warn(self) -> int:
        """Warn of each GPU that was asked whose infoROM is corrupted; return the exit code."""
        corrupted = [gpu for gpu in self.asked or self.gpus if self.has("inforom_corrupted", gpu)]
        for gpu in corrupted:
            self.say(f"WARNING: infoROM is corrupted at gpu {gpu.bus_id[4:]}")
        return 14 if corrupted else 0

    def uncorrected_errors(self, gpu: SimulatedGpu) -> str:
        """Return how many errors of the GPU's memory ECC could not correct."""
        return "2" if self.has("uncorrected_ecc", gpu) else "0"

    def held(self, gpu: SimulatedGpu) -> bool:
        """Say whether a process uses the GPU."""
        return self.has("busy", gpu) or bool(holders(self.machine, gpu))

    def busy(self, gpu: SimulatedGpu) -> bool:
        """Say whether a process uses the GPU, or instances stand on it."""
        return self.held(gpu) or bool(self.runtime(gpu).get("instances"))

    def creation_fails(self, gpu: SimulatedGpu) -> bool:
        """Say whether the GPU instance that is about to be created fails by a fault."""
        return self.has("mig_create_fails", gpu) or moments.struck(self.machine, "mig_create_fails_at")

    def compute_fails(self) -> bool:
        """Say whether the compute instance that is about to be created fails by a fault."""
        return moments.struck(self.machine, "mig_compute_fails_at")

    def changed_instance(self) -> None:
        """End as a fault says that this call, or the whole node, ends at this change of an instance."""
        if moments.struck(self.machine, "smi_killed_at"):
            moments.kill_self()
        if moments.struck(self.machine, "power_cut_at"):
            moments.cut_power(self.machine)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other calls from changing anything for as long as this one does."""
        import fcntl

        self.machine.make_folder("/run/gpunode-lab")
        with open(self.machine.at("/run/gpunode-lab/nvidia-smi.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def require_reachable(self, gpus: list[SimulatedGpu]) -> None:
        """Raise Failure 15 if one of the GPUs is lost; the garbage after GPU is the real program's."""
        if any(self.lost(gpu) for gpu in gpus):
            raise Failure(b"Unable to determine the device handle for GPU\xa8h\x10: " + LOST, 15)

    def runtime(self, gpu: SimulatedGpu) -> dict[str, object]:
        """Return what the driver keeps for a GPU until it is unloaded."""
        return dict(self.machine.read_json(module.RUNTIME_STATE).get(gpu.uuid, {}))

    def set_runtime(self, gpu: SimulatedGpu, **values: object) -> None:
        """Keep values for a GPU until the driver is unloaded."""
        self._set(module.RUNTIME_STATE, gpu, values)

    def set_instances(self, gpu: SimulatedGpu, rows: list[dict[str, Any]]) -> None:
        """Keep a GPU's instances, and show what the driver shows of them."""
        self._set(module.RUNTIME_STATE, gpu, {"instances": rows})
        capabilities.publish(self.machine, gpu, rows)

    def mig_modes(self, gpu: SimulatedGpu) -> tuple[str, str]:
        """Return MIG mode, current and pending: Enabled, Disabled or [N/A]."""
        if not gpu.model.mig:
            return "[N/A]", "[N/A]"
        kept = module.PERSISTENT_STATE if _keeps_mode(gpu) else module.RUNTIME_STATE
        pending = bool(self.machine.read_json(kept).get(gpu.uuid, {}).get("mig", False))
        # Where the mode is kept, whatever is pending is current once the module is loaded anew.
        current = bool(self.runtime(gpu).get("mig_current", pending))
        return _mode(current), _mode(pending)

    def set_mig_mode(self, gpu: SimulatedGpu, enabled: bool, effective: bool) -> None:
        """Set the pending MIG mode, and the current one too if the change is effective at once: no instance stays."""
        current = enabled if effective else self.mig_modes(gpu)[0] == "Enabled"
        self._set(module.PERSISTENT_STATE if _keeps_mode(gpu) else module.RUNTIME_STATE, gpu, {"mig": enabled})
        self._set(module.RUNTIME_STATE, gpu, {"mig_current": current})
        if effective and self.runtime(gpu).get("instances"):
            self.set_instances(gpu, [])
            self.machine.log("mig", f"GPU {gpu.index}: its instances are gone")

    def power_limit(self, gpu: SimulatedGpu) -> float:
        """Return the power limit in watts; the driver forgets another than the default."""
        return float(str(self.runtime(gpu).get("power_limit") or gpu.model.power_limit_w))

    def application_clocks(self, gpu: SimulatedGpu, default: bool = False) -> tuple[str, str]:
        """Return memory and graphics clock of programs, or what the driver says instead."""
        if self.branch >= FIRST_WITHOUT_APPLICATION_CLOCKS:
            return DEPRECATED, DEPRECATED
        kept = None if default else self.runtime(gpu).get("application_clocks")
        found = kept if isinstance(kept, list) else gpu.model.clocks
        return str(found[0]), str(found[1])

    def clocks(self, gpu: SimulatedGpu) -> tuple[int, int]:
        """Return memory and graphics clock as they run: the highest that the GPU may."""
        memory, _, graphics = gpu.model.clocks
        kept = self.runtime(gpu)
        if isinstance(clocks := kept.get("application_clocks"), list):
            graphics = int(clocks[1])
        if isinstance(clocks := kept.get("locked_graphics"), list):
            graphics = min(graphics, int(clocks[1]))
        if isinstance(clocks := kept.get("locked_memory"), list):
            memory = min(memory, int(clocks[1]))
        return memory, graphics

    def ecc(self, gpu: SimulatedGpu) -> tuple[bool, bool]:
        """Return whether ECC is on, now and after the next load of the driver; the GPU itself keeps it."""
        pending = bool(self.machine.read_json(module.PERSISTENT_STATE).get(gpu.uuid, {}).get("ecc", True))
        return bool(self.runtime(gpu).get("ecc_current", pending)), pending

    def set_ecc(self, gpu: SimulatedGpu, enabled: bool) -> None:
        """Set the mode of ECC that comes with the next load of the driver."""
        self._set(module.RUNTIME_STATE, gpu, {"ecc_current": self.ecc(gpu)[0]})
        self._set(module.PERSISTENT_STATE, gpu, {"ecc": enabled})

    def forget_settings(self, gpu: SimulatedGpu) -> None:
        """Have a GPU as a reset leaves it: power limit and clocks by default."""
        self.set_runtime(gpu, power_limit=None, application_clocks=None, locked_graphics=None, locked_memory=None)

    def next_serial(self, gpu: SimulatedGpu) -> int:
        """Return how many MIG devices the GPU has ever had, this one included."""
        serial = int(self.machine.read_json(module.PERSISTENT_STATE).get(gpu.uuid, {}).get("mig_devices", 0)) + 1
        self._set(module.PERSISTENT_STATE, gpu, {"mig_devices": serial})
        return serial

    def _set(self, file: str, gpu: SimulatedGpu, values: dict[str, object]) -> None:
        self.changed = True
        state = self.machine.read_json(file)
        self.machine.write_json(file, {**state, gpu.uuid: {**state.get(gpu.uuid, {}), **values}})


# NVML's deprecation notices name no release: that it is this branch is the lab's own choice (SIMULATED).
FIRST_WITHOUT_APPLICATION_CLOCKS = 590
DEPRECATED = "[Requested functionality has been deprecated]"
LOST = b"GPU is lost.  Reboot the system to recover this GPU\n\n\n"


def _keeps_mode(gpu: SimulatedGpu) -> bool:
    """Say whether the GPU itself keeps MIG mode (Ampere); from Hopper on the loaded driver does."""
    return float(gpu.model.compute_capability) < 9


def _mode(enabled: bool) -> str:
    return "Enabled" if enabled else "Disabled"


def _is(gpu: SimulatedGpu, item: str) -> bool:
    if item.isdigit():
        return int(item) == gpu.index
    # Any length of domain is taken: 00000000:1A:00.0, 0000:1a:00.0 and 1A:00.0 are one GPU.
    return item == gpu.uuid or (":" in item and gpu.bus_id.lower().endswith(item.lower()))
