"""A corrupted infoROM: nvidia-smi answers, ends in 14 and in lines that begin with WARNING, which are no data."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.base.probe import Probe
from gpunode.base.probe_output import sections
from gpunode.base.shell_file import script_file
from gpunode.components.mig.boot import FUNCTIONS
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Health as HealthFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.system.gpu import parse_gpus
from gpunode.system.health import parse_health
from tests.support.smi_rows import memory

pytestmark = pytest.mark.simulated

ADDRESS = "00000000:1A:00.0"
WARNING = "WARNING: infoROM is corrupted at gpu 0000:1A:00.0"


@pytest.fixture
def smi(tmp_path: Path) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Return what runs a shell text beside an nvidia-smi that prints a text, the warning, and ends in 14."""

    def run(printed: str, text: str) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f"#!/bin/sh\ncase \"$*\" in\n-L) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)';;\n"
            f"*remapped*) echo '{ADDRESS}, 0, 0';; *) echo '{printed}';; esac\necho '{WARNING}'; exit 14\n"
        )
        program.chmod(0o755)
        text, path = text.replace("/sys/module/nvidia", str(tmp_path)), f"{tmp_path}:/usr/bin:/bin"
        return subprocess.run(["sh", "-c", text], env={"PATH": path}, capture_output=True, text=True, check=False)

    return run


def test_the_probes_ask_on_behind_it(smi: Callable[[str, str], subprocess.CompletedProcess[str]]) -> None:
    row = memory(ADDRESS, "0", "3").removeprefix("gpu=").replace("Disabled, Disabled", "Enabled, Enabled")
    parts = [("gpus", GpusFact.probe), ("health", HealthFact.probe), ("mig", MigFact.probe)]
    told = sections(smi(row, Probe(parts)).stdout.splitlines())
    assert parse_gpus(told["gpus"]).status == "ok"
    assert parse_health(told["health"]).warnings == (WARNING,)
    # MIG's lists are asked for as ever: MIG mode is on.
    assert "lgi.rc=14" in told["mig"]


@pytest.mark.parametrize(
    ("functions", "printed", "command", "says"),
    [
        (FUNCTIONS, "GPU-1, Enabled, Enabled", "uuid=GPU-1; look && echo $gpu.$current.$pending", "0.Enabled.Enabled"),
        (script_file("mps_modes"), "0, Default", "compute_modes; set_mode 0 D >&2 && echo set", "0, Default\nset"),
    ],
)  # fmt: skip
def test_the_shell_of_a_change_takes_it_for_an_answer(
    smi: Callable[[str, str], subprocess.CompletedProcess[str]], functions: str, printed: str, command: str, says: str
) -> None:
    done = smi(printed, f"set -eu\nstop_units='' reset=no checkpoint=/none proc=/none\n{functions}\n{command}")
    assert (done.returncode, done.stdout.strip()) == (0, says), done.stderr
