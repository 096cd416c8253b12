"""What the simulated machine is: its GPUs, its faults, its places on disk and its log."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

# Where the faults that are set stand.
FAULTS = "/etc/gpunode-lab/faults.json"
_NAMESPACE = uuid.UUID("8c5d9a52-7a4f-4f0b-9f43-2d1b6f2f5a11")


class HardwareError(Exception):
    """Say that hardware.json or faults.json cannot be used, and why."""


@dataclass(frozen=True)
class GpuModel:
    """Hold what a GPU product always is; memory in MiB, power in W, ids in lower-case hex without 0x.

    `mig` is its product in mig.json (None: it has no MIG), `nvswitches` are the PCI buses of NVSwitches on its board.
    """

    name: str
    device_id: str
    subsystem_id: str
    memory_mib: int
    compute_capability: str
    power_limit_w: int
    vbios: str
    mig: str | None
    modules: tuple[str, ...]
    last_branch: int | None
    buses: tuple[str, ...]
    nvswitches: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulatedGpu:
    """Hold one GPU of the machine; `bus_id` is written as nvidia-smi writes it: 00000000:1A:00.0."""

    index: int
    model: GpuModel
    uuid: str
    bus_id: str

    @property
    def sysfs_address(self) -> str:
        """Return the PCI address as sysfs writes it: 0000:1a:00.0."""
        return self.bus_id.lower()[4:]


def gpu_models() -> dict[str, GpuModel]:
    """Return the table of GPU products by the lab's name for them (h100-80gb, t4 ...)."""
    table = json.loads(resources.files(__package__).joinpath("gpus.json").read_text())
    return {
        key: GpuModel(
            **{
                **row,
                "modules": tuple(row["modules"]),
                "buses": tuple(row["buses"]),
                "nvswitches": tuple(row.get("nvswitches", ())),
            }
        )
        for key, row in table.items()
    }


@dataclass(frozen=True)
class Machine:
    """Find everything of a simulated machine below `root`, which is / in a node and a folder in unit tests."""

    root: Path = Path("/")

    def path(self, absolute: str) -> Path:
        """Return where an absolute path of the node lies."""
        return self.root / absolute.lstrip("/")

    @property
    def kernel(self) -> str:
        """Return the running kernel's release, as `uname -r` prints it."""
        return os.uname().release

    def read_json(self, absolute: str) -> dict[str, Any]:
        """Read a JSON object; an absent file is an empty one.

        Raises HardwareError naming the file if it is not a JSON object.
        """
        path = self.path(absolute)
        try:
            content = json.loads(path.read_text() or "{}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise HardwareError(f"cannot read {path}: {error}") from None
        if not isinstance(content, dict):
            raise HardwareError(f"{path} must hold a JSON object such as {{}}, not {type(content).__name__}")
        return content

    def write_json(self, absolute: str, content: dict[str, Any]) -> None:
        """Write a JSON object so that a reader sees the old one or the new one, never half of it."""
        path = self.path(absolute)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        draft.replace(path)

    @property
    def faults(self) -> dict[str, Any]:
        """Return the faults that are set (faults.json)."""
        return self.read_json(FAULTS)

    def gpus(self) -> tuple[SimulatedGpu, ...]:
        """Return the GPUs of hardware.json, lost ones included.

        Raises HardwareError for an unknown model or an impossible count.
        """
        hardware = self.read_json("/etc/gpunode-lab/hardware.json")
        count = hardware.get("count", 0)
        if not count:
            return ()
        models = gpu_models()
        key = hardware.get("gpu")
        if key not in models:
            raise HardwareError(f"hardware.json: gpu is {key!r}; allowed: {', '.join(models)}")
        model = models[key]
        if not isinstance(count, int) or not 0 < count <= len(model.buses):
            raise HardwareError(f"hardware.json: count is {count!r}; allowed: 0 to {len(model.buses)}")
        uuids = hardware.get("uuids") or [self._uuid(key, index) for index in range(count)]
        return tuple(
            SimulatedGpu(index, model, uuids[index], f"00000000:{model.buses[index]}:00.0") for index in range(count)
        )

    def _uuid(self, key: str, index: int) -> str:
        # The machine id, not the host name: a renamed node keeps its GPUs' names.
        with contextlib.suppress(OSError):
            return f"GPU-{uuid.uuid5(_NAMESPACE, self.path('/etc/machine-id').read_text().strip() + f'/{key}/{index}')}"
        return f"GPU-{uuid.uuid5(_NAMESPACE, f'{key}/{index}')}"

    def log(self, program: str, text: str) -> None:
        """Add a line with the word SIMULATED to the lab's log; a reader without rights to it goes on unlogged."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        path = self.path("/var/log/gpunode-lab.log")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as log:
                log.write(f"{stamp} SIMULATED {program}: {text}\n")
