"""The lab's NVML library held against the driver's, function by function. Of the standard library alone.

Each library is asked in a process of its own: `nvml_compared.py LIBRARY FUNCTIONS` prints what it answers as JSON. The
lab's is given a machine with a SIMULATED GPU of the same product and driver. Nothing is set by it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_DRIVER = "libnvidia-ml.so.1"
_PLAIN, _NUMBER, _PAIR, _TEXT, _BYTES = "nothing", "number", "pair", "text", "bytes"
# What is asked of the system, and of GPU 0: how the answer comes. Names without a version are the oldest forms.
_OF_SYSTEM = {
    "nvmlSystemGetDriverVersion": _TEXT, "nvmlSystemGetCudaDriverVersion": _NUMBER,
    "nvmlSystemGetCudaDriverVersion_v2": _NUMBER, "nvmlDeviceGetCount": _NUMBER, "nvmlDeviceGetCount_v2": _NUMBER,
    "nvmlSystemGetNVMLVersion": _TEXT,
}  # fmt: skip
_OF_GPU = {
    "nvmlDeviceGetName": _TEXT, "nvmlDeviceGetUUID": _TEXT, "nvmlDeviceGetSerial": _TEXT,
    "nvmlDeviceGetVbiosVersion": _TEXT, "nvmlDeviceGetIndex": _NUMBER, "nvmlDeviceGetMinorNumber": _NUMBER,
    "nvmlDeviceGetBrand": _NUMBER, "nvmlDeviceGetArchitecture": _NUMBER, "nvmlDeviceGetPersistenceMode": _NUMBER,
    "nvmlDeviceGetComputeMode": _NUMBER, "nvmlDeviceGetPowerManagementLimit": _NUMBER,
    "nvmlDeviceGetPowerManagementDefaultLimit": _NUMBER, "nvmlDeviceGetPowerManagementLimitConstraints": _PAIR,
    "nvmlDeviceGetNumGpuCores": _NUMBER, "nvmlDeviceGetMultiGpuBoard": _NUMBER, "nvmlDeviceGetDisplayMode": _NUMBER,
    "nvmlDeviceGetDisplayActive": _NUMBER, "nvmlDeviceGetMaxPcieLinkGeneration": _NUMBER,
    "nvmlDeviceGetMaxPcieLinkWidth": _NUMBER, "nvmlDeviceGetMemoryBusWidth": _NUMBER, "nvmlDeviceGetNumFans": _NUMBER,
    "nvmlDeviceGetInforomImageVersion": _TEXT, "nvmlDeviceGetBoardPartNumber": _TEXT,
    "nvmlDeviceGetCudaComputeCapability": _PAIR, "nvmlDeviceGetMigMode": _PAIR, "nvmlDeviceGetEccMode": _PAIR,
    "nvmlDeviceGetMaxMigDeviceCount": _NUMBER, "nvmlDeviceIsMigDeviceHandle": _NUMBER,
    "nvmlDeviceGetMemoryInfo": _BYTES, "nvmlDeviceGetPciInfo": _BYTES, "nvmlDeviceGetPciInfo_v2": _BYTES,
    "nvmlDeviceGetPciInfo_v3": _BYTES, "nvmlDeviceGetBAR1MemoryInfo": _BYTES, "nvmlDeviceGetUtilizationRates": _BYTES,
    "nvmlDeviceGetSupportedEventTypes": _BYTES, "nvmlDeviceGetGpuFabricInfo": _BYTES,
    "nvmlDeviceGetVirtualizationMode": _NUMBER, "nvmlDeviceGetAttributes": _BYTES,
    "nvmlDeviceGetAttributes_v2": _BYTES, "nvmlDeviceGetGpuInstanceId": _NUMBER,
    "nvmlDeviceGetComputeInstanceId": _NUMBER,
}  # fmt: skip
# Another card, or another moment, has another value: the status alone counts.
_OWN = (
    "nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2",
    "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetUtilizationRates", "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetGpuFabricInfo",
)  # fmt: skip
_PROFILES = 10


def _call(function: Any, kind: str, *handle: Any) -> tuple[int, Any]:
    """Call a function that answers in one of the ways; return its status and its answer."""
    room = ctypes.create_string_buffer(1024)
    if kind == _TEXT:
        status = function(*handle, room, ctypes.c_uint(96))
        return status, room.value.decode(errors="replace")
    if kind == _PAIR:
        one, other = ctypes.c_uint(), ctypes.c_uint()
        status = function(*handle, ctypes.byref(one), ctypes.byref(other))
        return status, [one.value, other.value]
    status = function(*handle, room)
    return status, int.from_bytes(room.raw[:4], "little") if kind == _NUMBER else room.raw.rstrip(b"\0").hex()


def asked(library: str, names: list[str]) -> dict[str, Any]:
    """Return what a library has, and its answers on the system and on GPU 0: name -> [status, answer]."""
    nvml = ctypes.CDLL(library)
    answers: dict[str, Any] = {name: "there" if hasattr(nvml, name) else "missing" for name in names}
    answers["nvmlInit_v2"] = [nvml.nvmlInit_v2(), None]
    gpu = ctypes.c_void_p()
    answers["nvmlDeviceGetHandleByIndex_v2"] = [nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)), None]
    answers["nvmlDeviceGetHandleByIndex_v2(99)"] = [
        nvml.nvmlDeviceGetHandleByIndex_v2(99, ctypes.byref(ctypes.c_void_p())),
        None,
    ]
    for table, handle in ((_OF_SYSTEM, ()), (_OF_GPU, (gpu,))):
        for name, kind in table.items():
            if hasattr(nvml, name):
                status, value = _call(getattr(nvml, name), kind, *handle)
                answers[name] = [status, value if status == 0 and name not in _OWN else None]
    mig = ctypes.c_void_p()
    for number in (0, 1):
        name = f"nvmlDeviceGetMigDeviceHandleByIndex({number})"
        answers[name] = [nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number, ctypes.byref(mig)), None]
    for profile in range(_PROFILES):
        name = f"nvmlDeviceGetGpuInstanceProfileInfo({profile})"
        status, value = _call(nvml.nvmlDeviceGetGpuInstanceProfileInfo, _BYTES, gpu, ctypes.c_uint(profile))
        answers[name] = [status, value if status == 0 else None]
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    for number in (*range(30), 999):
        answers[f"nvmlErrorString({number})"] = [0, (nvml.nvmlErrorString(number) or b"").decode(errors="replace")]
    answers["nvmlShutdown"] = [nvml.nvmlShutdown(), None]
    return answers


def differences(lab: dict[str, Any], driver: dict[str, Any]) -> list[dict[str, str]]:
    """Return the functions that the two libraries answer differently."""
    every = dict.fromkeys((*lab, *driver))
    return [
        {"function": name, "lab": _text(lab.get(name)), "driver": _text(driver.get(name))}
        for name in every
        if lab.get(name) != driver.get(name)
    ]


def _text(answer: Any) -> str:
    if not isinstance(answer, list):
        return str(answer or "missing")
    return f"status {answer[0]}" + ("" if answer[1] is None else f": {answer[1]}")


def compared(folder: Path, simulated: bool) -> tuple[str, list[dict[str, str]]]:
    """Hold the carried library against the driver's; return one line, and what differs.

    On a SIMULATED machine the carried library is both: that shows that the comparison runs.
    """
    names = folder / "nvml/functions.txt"
    own = str(folder / "nvml/libnvidia-ml.so.1")
    driver = _answers(_DRIVER, names, {})
    product = driver["nvmlDeviceGetName"][1]
    models = json.loads((folder / "nvml/simulated/gpus.json").read_text())
    model = next((key for key, value in models.items() if value["name"] == product), None)
    if model is None:
        return f"left out: the lab has no {product}", []
    version = driver["nvmlSystemGetDriverVersion"][1]
    root = _machine(folder, model, driver["nvmlDeviceGetCount_v2"][1], version)
    lab = _answers(own, names, {"GPUNODE_LAB_ROOT": str(root)})
    found = differences(lab, driver)
    whose = "the driver's (SIMULATED)" if simulated else "the driver's"
    return f"{len(lab)} functions and answers of the lab's library and {whose}: {len(found)} differ", found


def _answers(library: str, names: Path, environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, library, str(names)], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        raise OSError(f"{library}: {done.stderr.strip()[-500:] or done.returncode}")
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def _machine(folder: Path, model: str, count: int, version: str) -> Path:
    """Return a folder that stands for a machine with such GPUs, as lab/hardware/nvml/build.py makes them."""
    root = folder / "nvml/machine"
    launcher = (
        f"#!{sys.executable} -ISB\nimport sys\nsys.path.insert(0, {str(folder / 'nvml')!r})\n"
        "from simulated.nvml import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    files = {
        "etc/gpunode-lab/hardware.json": json.dumps({"gpu": model, "count": count}),
        "run/gpunode-lab/module.json": json.dumps({"version": version, "flavour": "open", "modules": ["nvidia"]}),
        "sys/module/nvidia/version": f"{version}\n",
        "usr/lib/gpunode-lab/nvml": launcher,
        "dev/nvidiactl": "",
        **{f"dev/nvidia{index}": "" for index in range(count)},
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "usr/lib/gpunode-lab/nvml").chmod(0o755)
    return root


if __name__ == "__main__":
    print(json.dumps(asked(sys.argv[1], Path(sys.argv[2]).read_text().split())))
