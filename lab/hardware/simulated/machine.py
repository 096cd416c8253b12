"""What the simulated machine is: its GPUs, its faults, its places on disk and its log.

These programs start hundreds of times in a test run, so that each import counts: pathlib, dataclasses, typing, json,
re, uuid and subprocess each take as long as all that a call does. What needs one of them imports it where it needs it.
"""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

from .plain import data_file, name_uuid, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

# Where the faults that are set stand.
FAULTS = "/etc/gpunode-lab/faults.json"
_NAMESPACE = bytes.fromhex("8c5d9a527a4f4f0b9f432d1b6f2f5a11")


class HardwareError(Exception):
    """Say that hardware.json or faults.json cannot be used, and why."""


class GpuModel(SimpleNamespace):
    """Hold what a GPU product always is; memory in MiB, power in W, ids in lower-case hex without 0x.

    `clocks` are those of memory, of graphics for programs by default, and the highest of graphics, in MHz.
    `mig` is its product in mig.json (None: it has no MIG), `nvswitches` are the PCI buses of NVSwitches on its board.
    """

    name: str
    device_id: str
    subsystem_id: str
    memory_mib: int
    compute_capability: str
    power_limit_w: int
    power_least_w: int
    clocks: tuple[int, int, int]
    vbios: str
    mig: str | None
    modules: tuple[str, ...]
    last_branch: int | None
    buses: tuple[str, ...]
    nvswitches: tuple[str, ...] = ()


class SimulatedGpu:
    """Hold one GPU of the machine; `bus_id` is written as nvidia-smi writes it: 00000000:1A:00.0."""

    def __init__(self, index: int, model: GpuModel, uuid: str, bus_id: str) -> None:
        self.index = index
        self.model = model
        self.uuid = uuid
        self.bus_id = bus_id

    @property
    def sysfs_address(self) -> str:
        """Return the PCI address as sysfs writes it: 0000:1a:00.0."""
        return self.bus_id.lower()[4:]


def gpu_models() -> dict[str, GpuModel]:
    """Return the table of GPU products by the lab's name for them (h100-80gb, t4 ...)."""
    return {key: _model(row) for key, row in _table().items()}


def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = parse_json(data_file("gpus.json"))
    return table


def _model(row: dict[str, Any]) -> GpuModel:
    lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    return GpuModel(**{**row, **lists})


class Machine:
    """Find everything of a simulated machine below `root`, which is / in a node and a folder in unit tests."""

    def __init__(self, root: str | Path = "/") -> None:
        # Empty for /, so that a path of the node may be put right behind it.
        self._below = str(root).rstrip("/")

    @property
    def is_node(self) -> bool:
        """Say whether it is the machine that this runs on, and no folder that stands for one."""
        return not self._below

    @property
    def root(self) -> Path:
        """Return the folder that is its root."""
        return self.path("/")

    def at(self, absolute: str) -> str:
        """Return where an absolute path of the node lies."""
        return f"{self._below}/{absolute.lstrip('/')}"

    def path(self, absolute: str) -> Path:
        """Return the same as a Path, for those who have the time to import it."""
        from pathlib import Path

        return Path(self.at(absolute))

    def exists(self, absolute: str) -> bool:
        """Say whether there is a file or folder of that path."""
        return os.path.exists(self.at(absolute))

    def read(self, absolute: str, errors: str = "strict") -> str:
        """Return a file's text; OSError where there is none."""
        with open(self.at(absolute), errors=errors) as file:
            return file.read()

    def make_folder(self, absolute: str) -> None:
        """Make a folder and those that it lies in, where there is none."""
        os.makedirs(self.at(absolute), exist_ok=True)

    def write(self, absolute: str, text: str) -> None:
        """Write a file, and the folders that it lies in."""
        path = self.at(absolute)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def remove(self, absolute: str) -> None:
        """Remove a file, where there is one."""
        try:
            os.unlink(self.at(absolute))
        except FileNotFoundError:
            return

    def names_in(self, absolute: str) -> list[str]:
        """Return what a folder holds, sorted; of a folder that is not there, or not for our eyes, nothing."""
        try:
            return sorted(os.listdir(self.at(absolute)))
        except OSError:
            return []

    @property
    def kernel(self) -> str:
        """Return the running kernel's release, as `uname -r` prints it."""
        return os.uname().release

    def read_json(self, absolute: str) -> dict[str, Any]:
        """Read a JSON object; an absent file is an empty one.

        Raises HardwareError naming the file if it is not a JSON object.
        """
        try:
            content = parse_json(self.read(absolute) or "{}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise HardwareError(f"cannot read {self.at(absolute)}: {error}") from None
        if not isinstance(content, dict):
            kind = type(content).__name__
            raise HardwareError(f"{self.at(absolute)} must hold a JSON object such as {{}}, not {kind}")
        return content

    def write_json(self, absolute: str, content: dict[str, Any]) -> None:
        """Write a JSON object so that a reader sees the old one or the new one, never half of it."""
        import json

        draft = f"{absolute}.{os.getpid()}"
        self.write(draft, json.dumps(content, indent=1, sort_keys=True) + "\n")
        os.replace(self.at(draft), self.at(absolute))

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
        table = _table()
        key = hardware.get("gpu")
        if key not in table:
            raise HardwareError(f"hardware.json: gpu is {key!r}; allowed: {', '.join(table)}")
        model = _model(table[key])
        if not isinstance(count, int) or not 0 < count <= len(model.buses):
            raise HardwareError(f"hardware.json: count is {count!r}; allowed: 0 to {len(model.buses)}")
        uuids = hardware.get("uuids") or [self._uuid(key, index) for index in range(count)]
        return tuple(
            SimulatedGpu(index, model, uuids[index], f"00000000:{model.buses[index]}:00.0") for index in range(count)
        )

    def _uuid(self, key: str, index: int) -> str:
        # The machine id, not the host name: a renamed node keeps its GPUs' names.
        try:
            name = f"{self.read('/etc/machine-id').strip()}/{key}/{index}"
        except OSError:
            name = f"{key}/{index}"
        return f"GPU-{name_uuid(_NAMESPACE, name)}"

    def log(self, program: str, text: str) -> None:
        """Add a line with the word SIMULATED to the lab's log; a reader without rights to it goes on unlogged."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        path = self.at("/var/log/gpunode-lab.log")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a") as log:
                log.write(f"{stamp} SIMULATED {program}: {text}\n")
        except OSError:
            return
