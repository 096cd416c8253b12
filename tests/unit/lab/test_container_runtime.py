"""What the SIMULATED container runtime hands in of the driver."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.packages import container_runtime

pytestmark = pytest.mark.pure


def test_a_container_gets_what_the_driver_has_for_the_capabilities_that_config_toml_lets_it_have(
    tmp_path: Path,
) -> None:
    libraries, programs = tmp_path / "usr/lib/x86_64-linux-gnu", tmp_path / "usr/bin"
    libraries.mkdir(parents=True)
    programs.mkdir()
    (libraries / "libcuda.so.580.95.05").touch()
    program = programs / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: X (UUID: GPU-a)'\necho '  MIG 1g.5gb  Device 0: (UUID: MIG-a)'\n"
                       "echo 'GPU 1: X (UUID: GPU-b)'\n")  # fmt: skip
    program.chmod(0o755)

    def given(wanted: str, bundle: str, **settings: str) -> dict[str, str]:
        (tmp_path / bundle).mkdir()
        config: dict[str, Any] = {"root": {"path": "rootfs"}}
        container_runtime.add_driver(config, tmp_path / bundle, wanted, settings, tmp_path)
        return {mount["destination"]: mount["source"] for mount in config["mounts"]}

    found = given("GPU-a", "some")
    assert set(found) == {"/usr/bin/nvidia-smi", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"}
    assert (tmp_path / "some/rootfs/usr/lib/x86_64-linux-gnu/libcuda.so.1").readlink() == Path("libcuda.so.580.95.05")
    # A container need have nothing but a shell.
    words = [found["/usr/bin/nvidia-smi"], "-L"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env={"PATH": "/nowhere"}).stdout
    assert said == "GPU 0: X (UUID: GPU-a)\n  MIG 1g.5gb  Device 0: (UUID: MIG-a)\n"
    few = {"supported-driver-capabilities": "compute,graphics"}
    assert set(given("all", "few", **few)) == {"/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"}
