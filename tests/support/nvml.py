"""The lab's libnvidia-ml, called as a program calls it, on a folder that stands for a machine with GPUs."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpunode.lab.hardware.nvml.build import library, make_machine

_UINT, _LONG, _HANDLE = ctypes.c_uint, ctypes.c_ulonglong, ctypes.c_void_p
_PLACE = [("start", _UINT), ("size", _UINT)]
_CHAR, _PCI = ctypes.c_char, ("domain", "bus", "device", "id", "subsystem")
_ENGINES = ("sm", "copy", "decoder", "encoder", "jpeg", "ofa")


def _structure(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


def _uints(*names: str) -> list[tuple[str, Any]]:
    return [(name, _UINT) for name in names]


_MEMORY = ("memory", _LONG)
STRUCTURES = {
    "memory": _structure("Memory", ("total", _LONG), ("free", _LONG), ("used", _LONG)),
    "pci": _structure("Pci", ("legacy", _CHAR * 16), *_uints(*_PCI), ("bus_id", _CHAR * 32)),
    "attributes": _structure("Attributes", *_uints(*_ENGINES, "slices", "compute_slices"), _MEMORY),
    "profile": _structure("Profile", *_uints("id", "p2p", "slices", "instances", *_ENGINES), _MEMORY),
    "compute-profile": _structure("ComputeProfile", *_uints("id", "slices", "instances", *_ENGINES)),
    "instance-info": _structure("Instance", ("gpu", _HANDLE), *_uints("id", "profile"), *_PLACE),
    "compute-info": _structure("Compute", ("gpu", _HANDLE), ("instance", _HANDLE), *_uints("id", "profile"), *_PLACE),
    "event": _structure("Event", ("gpu", _HANDLE), ("type", _LONG), ("data", _LONG), *_uints("instance", "compute")),
    "places": _structure("Places", ("places", _UINT * 14)),
}


@functools.cache
def nvml() -> Any:
    """Return the compiled library."""
    return ctypes.CDLL(str(library()))


@contextmanager
def machine_for_nvml(root: Path) -> Iterator[None]:
    """Have the library take a folder for the machine, as long as the block lasts."""
    os.environ["GPUNODE_LAB_ROOT"] = str(root)
    try:
        yield
    finally:
        del os.environ["GPUNODE_LAB_ROOT"]


def answers(
    product: str, calls: list[list[Any]], count: int = 1, faults: dict[str, Any] | None = None, initialise: bool = True
) -> list[list[Any]]:
    """Return what calls of NVML's functions return: each its code, and with it what it wrote.

    + calls: the function, and its arguments: a number; `gpu 0`, `device 0 1`, `instance 0 3` or `compute 0 3 0` for a
      handle; `number=4`, `long`, `handle`, `text=96` or a name of STRUCTURES for what the function writes to
    """
    with tempfile.TemporaryDirectory() as folder:
        root = make_machine(Path(folder), product, count)
        (root / "etc/gpunode-lab/faults.json").write_text(json.dumps(faults or {}))
        with machine_for_nvml(root):
            if initialise:
                assert nvml().nvmlInit_v2() == 0
            try:
                return [answer(function, *arguments) for function, *arguments in calls]
            finally:
                nvml().nvmlShutdown()


def answer(function: str, *arguments: Any) -> list[Any]:
    """Return the code of one call, and what it wrote; of a failed one the code alone."""
    passed = [_argument(each) for each in arguments]
    code = getattr(nvml(), function)(*(value for values, _ in passed for value in values))
    return [code, *(_read(place) for _, place in passed if place is not None)] if code == 0 else [code]


def _argument(of: Any) -> tuple[list[Any], Any]:
    """Return what is passed for an argument, a text with its length, and the place that the function writes to."""
    if isinstance(of, int):
        return [of], None
    kind, _, value = of.partition("=")
    if kind.partition(" ")[0] in ("gpu", "device", "instance", "compute"):
        return [handle(of)], None
    if kind == "null":
        return [None], None
    if kind == "word":
        return [value.encode()], None
    if kind == "text":
        text = ctypes.create_string_buffer(int(value))
        return [text, int(value)], text
    if kind == "handle":
        place: Any = _HANDLE()
    elif kind in ("number", "long"):
        place = (_UINT if kind == "number" else _LONG)(int(value or 0))
    else:
        place = STRUCTURES[kind]()
    return [ctypes.byref(place)], place


def _read(place: Any) -> Any:
    if isinstance(place, STRUCTURES["places"]):
        numbers = iter(place.places)
        return [f"{start}:{size}" for start, size in zip(numbers, numbers, strict=True) if size]
    if isinstance(place, ctypes.Structure):
        fields = [name for name, kind, *_ in place._fields_ if kind is not _HANDLE]
        values = {name: getattr(place, name) for name in fields}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
    if isinstance(place, _HANDLE):
        return "handle"
    return place.value.decode() if isinstance(place.value, bytes) else place.value


def handle(of: str) -> Any:
    """Return the handle of `gpu 0`, `device 0 1`, `instance 0 3` (GPU instance) or `compute 0 3 0`."""
    kind, *numbers = of.split()
    found = _HANDLE()
    if kind == "gpu":
        code = nvml().nvmlDeviceGetHandleByIndex_v2(int(numbers[0]), ctypes.byref(found))
    elif kind == "compute":
        instance = handle(f"instance {numbers[0]} {numbers[1]}")
        code = nvml().nvmlGpuInstanceGetComputeInstanceById(instance, int(numbers[2]), ctypes.byref(found))
    else:
        function = "nvmlDeviceGetMigDeviceHandleByIndex" if kind == "device" else "nvmlDeviceGetGpuInstanceById"
        code = getattr(nvml(), function)(handle(f"gpu {numbers[0]}"), int(numbers[1]), ctypes.byref(found))
    assert code == 0, f"no {of}: {code}"
    return found
