"""Compile the SIMULATED libnvidia-ml and nvidia-smi into the cache, and make folders that stand for machines with GPUs.

Outside a node, any program that asks NVML can be run on simulated GPUs:

    root = make_machine(Path("/tmp/machine"), "h100-80gb", 2)
    environment = {**os.environ, "GPUNODE_LAB_ROOT": str(root), "LD_LIBRARY_PATH": str(root / LIBRARIES)}
    subprocess.run(["nvidia-ctk", "cdi", "generate"], env=environment)

From a shell: `eval "$(python -m gpunode.lab.hardware.nvml.build /tmp/machine h100-80gb 2)"`.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

from gpunode.lab.cache import cache_dir, complete_or_nothing, link, locked, mark_used, remove_partial
from gpunode.lab.errors import LabError
from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.machine import Machine

_HERE = Path(__file__).parent
_LIBRARY_SOURCES = ("library.c", "device.c", "mig.c", "compute.c", "state.c", "machine.c")
_SMI_SOURCES = ("smi.c", "state.c", "machine.c")
_COMMON = (
    "-Os",
    "-s",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wl,--build-id=none",
    f"-ffile-prefix-map={_HERE}=.",
)
_SHARED = ("-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
LIBRARY, LIBRARIES = "libnvidia-ml.so.1", "usr/lib/x86_64-linux-gnu"
_LAUNCHER = """#!/usr/bin/python3 -ISB
# SIMULATED hardware of gpunode's lab.
import sys

sys.path.insert(0, {folder!r})
from simulated.nvml import main

sys.exit(main(sys.argv[1:]))
"""


class CompileError(LabError):
    """Say why the library could not be compiled, in the compiler's words."""


def functions() -> tuple[str, ...]:
    """Return the names of NVML's functions, up to API version 13."""
    return tuple((_HERE / "functions.txt").read_text().split())


def defaults() -> str:
    """Return C that defines each function of NVML as one that is not supported, unless another file defines it."""
    lines = [f"__attribute__((weak)) int {name}(void) {{ return 3; }}" for name in functions()]
    return "/* Generated from functions.txt: NVML_ERROR_NOT_SUPPORTED. */\n" + "\n".join(lines) + "\n"


def library() -> Path:
    """Return the compiled library, libnvidia-ml.so.1; CompileError without gcc."""
    return _compiled(LIBRARY, _LIBRARY_SOURCES, _SHARED, defaults())


def smi() -> Path:
    """Return the compiled first part of nvidia-smi, a program without libraries; CompileError without gcc."""
    return _compiled("nvidia-smi", _SMI_SOURCES, ("-static",), "")


def empty_library(soname: str) -> Path:
    """Return a library without functions, for which ldconfig makes a link; CompileError without gcc."""
    return _compiled(soname, (), ("-shared", "-nostdlib", f"-Wl,-soname,{soname}"), "")


def _compiled(name: str, sources: tuple[str, ...], options: tuple[str, ...], generated: str) -> Path:
    files = sorted(path for path in _HERE.iterdir() if path.suffix in (".c", ".h", ".txt", ".py"))
    digest = hashlib.sha256(b"\0".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:16]
    with locked(cache_dir() / "nvml.lock"):
        folder = cache_dir() / "nvml" / f"{name.partition('.')[0]}-{digest}"
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            remove_partial(folder.parent)
            with complete_or_nothing(folder) as partial:
                _compile(partial / name, [str(_HERE / source) for source in sources], options, generated)
        mark_used(folder)
    return folder / name


def _compile(target: Path, sources: list[str], options: tuple[str, ...], generated: str) -> None:
    command = ["gcc", *_COMMON, *options, "-o", str(target), *sources, "-x", "c", "-"]
    try:
        result = subprocess.run(command, input=generated, capture_output=True, text=True)
    except FileNotFoundError:
        raise CompileError(
            "gcc is missing, which compiles the simulated NVML: install the packages gcc and libc6-dev"
        ) from None
    if result.returncode:
        raise CompileError(f"gcc cannot compile the simulated NVML:\n{result.stderr}")


def make_machine(root: Path, gpu: str, count: int, version: str = "580.95.05") -> Path:
    """Make a folder that stands for a machine with so many GPUs of a product and a loaded driver; return it.

    The library takes it for the machine when GPUNODE_LAB_ROOT names it. It has what the driver shows on a node: device
    files, /proc/driver, /proc/devices at run/gpunode-lab/proc-devices, and the library in usr/lib/x86_64-linux-gnu.
    """
    machine = Machine(root)
    for name in reversed(module.loaded_modules(machine)):
        module.unload(machine, name)
    module_file = f"lib/modules/{machine.kernel}/updates/dkms/nvidia"
    module_text = f"version={version}\nlicense=Dual MIT/GPL\nflavour=open\n"
    files = {
        "etc/gpunode-lab/hardware.json": json.dumps({"gpu": gpu, "count": count}),
        "usr/lib/gpunode-lab/nvml": _LAUNCHER.format(folder=str(_HERE.parent)),
        f"{module_file}.ko": module_text,
        f"{module_file}-uvm.ko": module_text,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    place = root / LIBRARIES
    place.mkdir(parents=True, exist_ok=True)
    (place / f"libnvidia-ml.so.{version}").unlink(missing_ok=True)
    link(library(), place / f"libnvidia-ml.so.{version}")
    (place / LIBRARY).unlink(missing_ok=True)
    (place / LIBRARY).symlink_to(f"libnvidia-ml.so.{version}")
    module.load(machine, "nvidia_uvm")
    return root


def main(arguments: list[str]) -> int:
    """Make a machine in the folder that the arguments name and print the variables by which programs find it."""
    folder, gpu, count, *version = arguments
    root = make_machine(Path(folder).absolute(), gpu, int(count), *version)
    values = {"GPUNODE_LAB_ROOT": str(root), "LD_LIBRARY_PATH": str(root / LIBRARIES)}
    print("export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
