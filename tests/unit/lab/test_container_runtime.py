"""What the SIMULATED container runtime hands in of the driver."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.packages import container_runtime

pytestmark = pytest.mark.pure


def test_a_container_gets_the_driver_s_program_and_library(tmp_path: Path) -> None:
    libraries, programs = tmp_path / "usr/lib/x86_64-linux-gnu", tmp_path / "usr/bin"
    libraries.mkdir(parents=True)
    programs.mkdir()
    (libraries / "libcuda.so.580.95.05").touch()
    program = programs / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: X (UUID: GPU-a)'\necho '  MIG 1g.5gb  Device 0: (UUID: MIG-a)'\n"
                       "echo 'GPU 1: X (UUID: GPU-b)'\n")  # fmt: skip
    program.chmod(0o755)

    (tmp_path / "some").mkdir()
    config: dict[str, Any] = {"root": {"path": "rootfs"}}
    container_runtime.add_driver(config, tmp_path / "some", "GPU-a", tmp_path)
    found = {mount["destination"]: mount["source"] for mount in config["mounts"]}
    assert set(found) == {"/usr/bin/nvidia-smi", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"}
    assert (tmp_path / "some/rootfs/usr/lib/x86_64-linux-gnu/libcuda.so.1").readlink() == Path("libcuda.so.580.95.05")
    # A container need have nothing but a shell.
    words = [found["/usr/bin/nvidia-smi"], "-L"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env={"PATH": "/nowhere"}).stdout
    assert said == "GPU 0: X (UUID: GPU-a)\n  MIG 1g.5gb  Device 0: (UUID: MIG-a)\n"
