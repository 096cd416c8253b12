"""The lab's libnvidia-ml and the part of nvidia-smi that is compiled: what programs get of them, and what changes."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.lab.hardware.nvml import build
from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.machine import Machine, gpu_models
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.lab.hardware.simulated.smi.mig.table import profiles
from tests.support.nvml import answer, machine_for_nvml, nvml

pytestmark = pytest.mark.simulated
VERSION = "580.95.05"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a machine with two H100, which the library takes for its own."""
    folder = build.make_machine(tmp_path, "h100-80gb", 2, VERSION)
    with machine_for_nvml(folder):
        assert nvml().nvmlInit_v2() == 0
        yield folder
        nvml().nvmlShutdown()


def smi(root: Path, line: str) -> str:
    """Return what nvidia-smi prints."""
    return call(line.split(), VERSION, Machine(root))[0].decode()


def test_every_function_of_nvml_has_a_symbol() -> None:
    assert [name for name in build.functions() if not hasattr(nvml(), name)] == []
    nvml().nvmlErrorString.restype = ctypes.c_char_p
    words = {0: b"Success", 3: b"Not Supported", 23: b"Insufficient Resources", 30: b"Unknown Error"}
    assert {code: nvml().nvmlErrorString(code) for code in words} == words


def test_nvml_and_nvidia_smi_have_one_state(root: Path) -> None:
    assert answer("nvmlDeviceSetMigMode", "gpu 0", 1, "number") == [0, 0]
    for profile, compute in ((9, 2), (14, 1), (19, 0)):
        assert answer("nvmlDeviceCreateGpuInstance", "gpu 0", profile, "handle")[0] == 0
        number = {9: 1, 14: 3, 19: 9}[profile]
        assert answer("nvmlGpuInstanceCreateComputeInstance", f"instance 0 {number}", compute, "handle")[0] == 0
    listed = re.findall(r"MIG (\S+) +(\d+) +(\d+) +(\d):(\d)", smi(root, "mig -lgi"))
    for _, profile, number, start, size in listed:
        info = answer("nvmlGpuInstanceGetInfo", f"instance 0 {number}", "instance-info")[1]
        assert info == {"id": int(number), "profile": int(profile), "start": int(start), "size": int(size)}
    names = re.findall(r"MIG (\S+) +Device +(\d): \(UUID: (\S+)\)", smi(root, "-L"))
    assert len(listed) == len(names) == 3
    for name, index, uuid in names:
        assert answer("nvmlDeviceGetName", f"device 0 {index}", "text=96") == [0, f"NVIDIA H100 80GB HBM3 MIG {name}"]
        assert answer("nvmlDeviceGetUUID", f"device 0 {index}", "text=96") == [0, uuid]
    # What nvidia-smi changes, a program that runs already sees.
    smi(root, "mig -dci -i 0")
    assert answer("nvmlDeviceGetMigDeviceHandleByIndex", "gpu 0", 0, "handle") == [6]
    smi(root, "-c 3")
    assert answer("nvmlDeviceGetComputeMode", "gpu 1", "number") == [0, 3]


def test_library_of_another_version_or_without_a_driver_does_not_start(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libnvidia-ml.so.570.124.06"
    shutil.copyfile(build.library(), copy)
    other = ctypes.CDLL(str(copy))
    assert other.nvmlInit_v2() == 18
    for name in ("nvidia_uvm", "nvidia"):
        module.unload(Machine(root), name)
    assert (nvml().nvmlInit_v2(), other.nvmlInit_v2()) == (9, 9)


@pytest.mark.parametrize("product", ["a100-40gb", "a100-80gb", "h100-80gb", "h200", "h100-nvl", "a30", "b200"])
def test_programs_compute_the_names_of_profiles_from_their_memory(product: str) -> None:
    model = gpu_models()[product]
    for profile in profiles(model.mig or ""):
        eighths = -(-profile.memory_mib * 8 // model.memory_mib) / 8
        # go-nvlib rounds halves up, and Python does not.
        size = int(eighths * ((model.memory_mib + 1023) // 1024) + 0.5)
        assert profile.name.startswith(f"{profile.compute}g.{size}gb"), (profile.name, size)


def test_container_sees_what_it_has_devices_of(root: Path, tmp_path: Path) -> None:
    smi(root, "-mig 1 -i 0")
    smi(root, "mig -i 0 -cgi 9,19 -C")
    lines = smi(root, "-L").splitlines()
    inside = tmp_path / "container"
    for name in ("dev", f"{module.FIRMWARE[1:]}/{VERSION}", "usr/lib64"):
        (inside / name).mkdir(parents=True)
    table = f"{module.FIRMWARE[1:]}/{VERSION}/{module.TABLE}"
    shutil.copyfile(root / table, inside / table)

    def listed(*devices: str) -> list[str]:
        for device in devices:
            (inside / "dev" / device).parent.mkdir(exist_ok=True)
            (inside / "dev" / device).touch()
        done = subprocess.run(
            [build.smi(), "-L"], env={"GPUNODE_LAB_ROOT": str(inside)}, capture_output=True, text=True, timeout=30
        )
        return [str(done.returncode), *done.stdout.splitlines()]

    assert listed()[0] == "12"
    (inside / "usr/lib64" / build.LIBRARY).touch()
    assert listed("nvidia0")[0] == "9"
    assert listed("nvidiactl") == ["0", lines[0]]
    # The minors of GPU instance 1 and of its compute instance.
    assert listed("nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13") == ["0", *lines[:2]]
    (inside / "dev/nvidia0").unlink()
    # The only GPU of a container is its first.
    assert listed("nvidia1") == ["0", lines[-1].replace("GPU 1", "GPU 0")]


def test_call_waits_for_as_long_as_the_driver_hangs(root: Path) -> None:
    faults = root / "etc/gpunode-lab/faults.json"
    faults.write_text('{"hang": true}')
    # A program of its own: a thread of this process may be a greenlet, which holds all others.
    code = (
        f"import ctypes; nvml = ctypes.CDLL({str(root / build.LIBRARIES / build.LIBRARY)!r}); count = ctypes.c_uint(); "
        "print(nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), count.value)"
    )
    calling = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        calling.wait(1)
    faults.write_text("{}")
    assert calling.communicate(timeout=10)[0].split() == ["0", "0", "2"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_every_user_may_read_what_root_has_read_and_root_alone_may_change() -> None:
    # Other users do not get into a test's own folder, nor into those around it.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = build.make_machine(Path(name), "h100-80gb", 2, VERSION)
        root.chmod(0o755)
        code = (
            f"import ctypes; nvml = ctypes.CDLL({str(root / build.LIBRARIES / build.LIBRARY)!r}); "
            "gpu = ctypes.c_void_p(); mode = ctypes.c_uint(); "
            "print(nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)), "
            "nvml.nvmlDeviceSetMigMode(gpu, 1, ctypes.byref(mode)), nvml.nvmlDeviceSetPersistenceMode(gpu, 1))"
        )
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", code]
        with machine_for_nvml(root):
            assert (nvml().nvmlInit_v2(), nvml().nvmlShutdown()) == (0, 0)
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("0 0 4 4\n", "")


def test_a_signal_interrupts_no_reading_of_the_state(root: Path) -> None:
    signalled: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: signalled.append(number))
    try:
        os.utime(root / "etc/gpunode-lab/hardware.json")
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        assert answer("nvmlDeviceGetCount_v2", "number") == [0, 2]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert signalled


def test_a_place_before_the_first_is_none(root: Path) -> None:
    place = (ctypes.c_uint * 2)(2**32 - 1, 1)
    assert answer("nvmlDeviceSetMigMode", "gpu 0", 1, "number") == [0, 0]
    create, gpu, made = nvml().nvmlDeviceCreateGpuInstanceWithPlacement, ctypes.c_void_p(), ctypes.c_void_p()
    assert nvml().nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)) == 0
    assert create(gpu, 19, ctypes.byref(place), ctypes.byref(made)) == 2


def test_what_an_interrupted_compiler_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = build.empty_library("libempty.so.1")
    library.parent.rename(f"{library.parent}.partial")
    assert build.empty_library("libempty.so.1") == library and library.is_file()
