"""The one query of nvidia-smi, which a driver refuses as a whole where it lacks a column; nvidia-smi is SIMULATED."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.system.gpu import Clocks, Gpus, PowerLimit

pytestmark = pytest.mark.simulated
ROW = (
    "0, GPU-1, NVIDIA A100-SXM4-40GB, 00000000:07:00.0, 610.10, 40960, Disabled, Disabled, Default, Enabled, "
    "0x20B010DE, 0, 0, Enabled"
)
MORE = ", 400.00, 400.00, 100.00, 400.00, Enabled, 1215, 1095, 1215, 1095, 1215, 1410, 1215, 210"
# Stands for nvidia-smi: one that knows each column, and one without those of application clocks.
SMI = """#!/bin/sh
echo asked >> {log}
case "$1" in *clocks.applications*) {refuses}; echo '{row}{more}';; *) echo '{row}';; esac
"""
REFUSES = 'echo "Field \\"clocks.applications.memory\\" is not a valid field to query."; exit 2'


def read(folder: Path, refuses: str) -> tuple[Gpus, int]:
    """Return what is read, and how often nvidia-smi was asked for the GPUs."""
    log, program = folder / "log", folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI.format(log=log, row=ROW, more=MORE, refuses=refuses))
    program.chmod(0o755)
    command = str(GpusFact().command()).replace("/sys/module/nvidia", str(folder))
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment, check=True)
    found = GpusFact().process(done.stdout.splitlines())
    assert isinstance(found, Gpus)
    return found, log.read_text().count("asked")


def test_a_driver_that_knows_each_column_is_asked_once(tmp_path: Path) -> None:
    found, times = read(tmp_path, ":")
    (gpu,) = found.gpus
    assert times == 1
    assert (gpu.power, gpu.clocks.application) == (PowerLimit(400, 400, 100, 400), (1215, 1095))


def test_one_that_lacks_a_column_tells_its_gpus_without_limits_and_clocks(tmp_path: Path) -> None:
    found, times = read(tmp_path, REFUSES)
    (gpu,) = found.gpus
    assert times == 2
    assert (found.status, gpu.name, gpu.power, gpu.clocks) == ("ok", "NVIDIA A100-SXM4-40GB", PowerLimit(), Clocks())
