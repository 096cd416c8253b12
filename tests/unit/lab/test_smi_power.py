"""What the fixture nvidia-smi says of power, clocks and ECC, against the words of NVIDIA's own 550.163.01."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.machine import gpu_models
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.system.smi import QUERY
from tests.support.nvidia_smi import A100, machine_with, smi

pytestmark = pytest.mark.simulated
BUS = "00000000:07:00.0"
EARLY = "Terminating early due to previous errors.\n"
WARNING = "Treating as warning and moving on.\nAll done.\n"


@pytest.mark.parametrize(
    ("line", "printed", "status"),
    [
        ("-i 0 -pl 250", f"Power limit for GPU {BUS} was set to 250.00 W from 400.00 W.\nAll done.\n", 0),
        (
            "-i 0 -pl 99",
            "Provided power limit 99.00 W is not a valid power limit which should be between 100.00 W and 400.00 W for "
            f"GPU {BUS}\n{EARLY}",
            2,
        ),
        ("-i 0 -ac 1215,1410", f'Applications clocks set to "(MEM 1215, SM 1410)" for GPU {BUS}\nAll done.\n', 0),
        (
            "-i 0 -ac 1215,1001",
            f'Specified clock combination "(MEM 1215, SM 1001)" is not supported for GPU {BUS}. Run '
            f"'nvidia-smi -q -d SUPPORTED_CLOCKS' to see list of supported clock combinations\n{WARNING}",
            0,
        ),
        ("-i 0 -lgc 1200", f'GPU clocks set to "(gpuClkMin 1200, gpuClkMax 1200)" for GPU {BUS}\nAll done.\n', 0),
        ("-i 0 -lmc 810,1215", f'Memory clocks set to "(memClkMin 810, memClkMax 1215)" for GPU {BUS}\nAll done.\n', 0),
        ("-i 0 -rac", "All done.\n", 0),
        ("-i 0 -rgc", "All done.\n", 0),
        ("-i 0 -e 0", f"Disabled ECC support for GPU {BUS}.\nAll done.\nReboot required.\n", 0),
        ("-i 0 -e 1", f"ECC support is already Enabled for GPU {BUS}.\nAll done.\n", 0),
    ],
)
def test_each_flag_says_what_the_real_program_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, printed: str, status: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine = machine_with(tmp_path, A100)
    assert smi(machine, "-pm 1")[1] == 0
    assert smi(machine, line) == (printed, status)


def test_the_driver_forgets_limits_and_clocks_and_the_gpu_keeps_ecc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine = machine_with(tmp_path, A100)
    for line in ("-pl 250", "-lgc 1200,1305", "-e 0"):
        assert smi(machine, f"-i 0 {line}")[1] == 0
    query = "-i 0 --query-gpu=power.limit,clocks.gr,ecc.mode.current,ecc.mode.pending --format=csv,noheader,nounits"
    assert smi(machine, query)[0] == "250.00, 1305, Enabled, Disabled\n"
    module.unload(machine, "nvidia")
    module.load(machine, "nvidia")
    assert smi(machine, query)[0] == "400.00, 1410, Disabled, Disabled\n"


def test_a_driver_that_has_deprecated_application_clocks_says_so_instead_of_numbers(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, A100, "590.48.01")
    arguments = ["--query-gpu=clocks.applications.graphics,clocks.max.graphics", "--format=csv,noheader", "-i", "0"]
    printed, status = call(arguments, "590.48.01", machine)
    assert (printed.decode(), status) == ("[Requested functionality has been deprecated], 1410 MHz\n", 0)


@pytest.mark.parametrize("model", sorted(gpu_models()))
def test_every_gpu_of_the_lab_answers_what_gpunode_asks(tmp_path: Path, model: str) -> None:
    hardware = {"gpu": model, "count": 1, "uuids": ["GPU-12345678-1234-1234-1234-123456780000"]}
    machine = machine_with(tmp_path, hardware, flavour=gpu_models()[model].modules[-1])
    printed, status = smi(machine, f"--query-gpu={','.join(QUERY)} --format=csv,noheader,nounits")
    assert status == 0, printed
    assert len(next(csv.reader([printed]))) == len(QUERY)
