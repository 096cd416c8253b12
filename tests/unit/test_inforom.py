"""A corrupted infoROM: nvidia-smi answers, ends in 14 and in lines that begin with WARNING, which are no data."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpunode.base.findings import ExitCode, verdict
from gpunode.base.probe import Probe
from gpunode.base.probe_output import sections
from gpunode.base.shell_file import script_file
from gpunode.components.mig.files import FUNCTIONS
from gpunode.components.mig.smi import parse_mig
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.health import Health as HealthFact
from gpunode.facts.mig import Mig as MigFact
from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.fault import main as set_fault
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.node.verdict import judge
from gpunode.system.gpu import parse_gpus
from gpunode.system.health import parse_health
from tests.support.installed_driver import install
from tests.support.smi_rows import memory
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.simulated

ADDRESS = "00000000:1A:00.0"
WARNING = "WARNING: infoROM is corrupted at gpu 0000:1A:00.0"
ANSWER = [memory(ADDRESS, "0", "3"), f"gpu={WARNING}", "gpu.rc=14"]
REMAPPED = [f"remapped={ADDRESS}, 0, 0", f"remapped={WARNING}", "remapped.rc=14"]


def test_the_rows_count_and_the_warning_is_none() -> None:
    gpus = parse_gpus(ANSWER)
    assert (gpus.status, gpus.exit_code, len(gpus.gpus)) == ("ok", 14, 1)
    assert parse_mig(ANSWER).gpus and parse_mig(ANSWER).status == "ok"
    found = parse_health([*ANSWER, *REMAPPED, "log=read"])
    (gpu,) = found.gpus
    assert (gpu.uncorrected_errors_ever, gpu.remap_pending, gpu.remap_failed) == (3, False, False)
    assert (found.exit_code, found.warnings) == (14, (WARNING,))


def test_a_warning_is_no_row_where_all_is_well_either() -> None:
    gpus = parse_gpus([f"gpu={WARNING}", memory(ADDRESS, "0", "0"), "gpu.rc=0"])
    assert (gpus.status, len(gpus.gpus)) == ("ok", 1)


def test_it_is_a_caution_with_its_remedy_and_the_node_is_good() -> None:
    health = parse_health([*ANSWER, *REMAPPED, "log=read"])
    node = replace(GOOD, health=health, gpus=replace(GOOD.gpus, exit_code=14))
    found = judge(SETTINGS, node)
    assert verdict(found) is ExitCode.GOOD
    (caution,) = [item for item in found if item.is_caution]
    assert (caution.component, caution.what, caution.actual) == ("health", "warnings by nvidia-smi", WARNING)
    assert caution.cause and caution.remedy
    assert not [item for item in judge(SETTINGS, GOOD) if item.is_caution]


@pytest.mark.parametrize(
    "lines",
    [
        [memory(ADDRESS, "0", "3"), "gpu.rc=14"],
        [memory(ADDRESS, "0", "3"), "gpu.rc=0", f"remapped={ADDRESS}, 0, 0", "remapped.rc=14"],
    ],
)
def test_the_exit_code_is_a_caution_where_no_line_of_the_answer_warns(lines: list[str]) -> None:
    health = parse_health([*lines, "log=read"])
    assert (health.exit_code, health.warnings) == (14, ())
    found = judge(SETTINGS, replace(GOOD, health=health))
    assert verdict(found) is ExitCode.GOOD
    (caution,) = [item for item in found if item.is_caution]
    assert (caution.component, caution.what, caution.actual) == ("health", "warnings by nvidia-smi", "exit code 14")
    assert "infoROM" in (caution.cause or "") and caution.remedy


def test_a_query_that_fails_behind_the_exit_code_that_answers_is_told_all_the_same() -> None:
    lines = [memory(ADDRESS, "0", "3"), f"gpu={WARNING}", "gpu.rc=14", "remapped=Unknown Error", "remapped.rc=255"]
    health = parse_health([*lines, "log=read"])
    assert (health.exit_code, health.warnings) == (255, (WARNING,))
    assert verdict(judge(SETTINGS, replace(GOOD, health=health))) is not ExitCode.GOOD


@pytest.fixture
def smi(tmp_path: Path) -> Callable[[str], Path]:
    """Return what makes a folder with an nvidia-smi that prints a text, the warning, and ends in 14."""

    def make(printed: str) -> Path:
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f"#!/bin/sh\ncase \"$*\" in\n-L) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)';;\n"
            f"*remapped*) echo '{ADDRESS}, 0, 0';; *) echo '{printed}';; esac\necho '{WARNING}'; exit 14\n"
        )
        program.chmod(0o755)
        return tmp_path

    return make


def test_the_probes_ask_on_behind_it(smi: Callable[[str], Path], tmp_path: Path) -> None:
    row = memory(ADDRESS, "0", "3").removeprefix("gpu=").replace("Disabled, Disabled", "Enabled, Enabled")
    parts = [("gpus", GpusFact.probe), ("health", HealthFact.probe), ("mig", MigFact.probe)]
    (tmp_path / "module").mkdir()
    command = Probe(parts).replace("/sys/module/nvidia", f"{tmp_path}/module")
    done = subprocess.run(
        ["sh", "-c", command], env={"PATH": f"{smi(row)}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    told = sections(done.stdout.splitlines())
    assert parse_gpus(told["gpus"]).status == "ok"
    assert parse_health(told["health"]).warnings == (WARNING,)
    # MIG's lists are asked for as ever: MIG mode is on.
    assert "lgi.rc=14" in told["mig"]


@pytest.mark.parametrize(
    ("functions", "printed", "command", "says"),
    [
        (FUNCTIONS, "GPU-1, Enabled, Enabled", "uuid=GPU-1; look && echo $gpu.$current.$pending", "0.Enabled.Enabled"),
        (
            script_file("mps_modes"),
            "0, Default",
            "compute_modes; set_mode 0 DEFAULT > /dev/null && echo set",
            "0, Default\nset",
        ),
    ],
)
def test_the_shell_of_a_change_takes_it_for_an_answer(
    smi: Callable[[str], Path], functions: str, printed: str, command: str, says: str
) -> None:
    text = f"set -eu\nstop_units='' reset=no checkpoint=/none proc=/none\n{functions}\n{command}"
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": f"{smi(printed)}:/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, says), done.stderr


def test_the_lab_s_nvidia_smi_warns_behind_its_answer_and_ends_in_14(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "h100-80gb", "count": 2})
    install(machine, "580.95.05", "open")
    module.load(machine, "nvidia")
    assert set_fault(["set", "inforom_corrupted", "1"], machine) == 0
    printed, status = call(["--query-gpu=index", "--format=csv,noheader"], "580.95.05", machine)
    lines = printed.decode().splitlines()
    assert (lines[:2], status) == (["0", "1"], 14)
    assert lines[2].startswith("WARNING: infoROM is corrupted at gpu 0000:")
    assert call(["-i", "0", "--query-gpu=index", "--format=csv,noheader"], "580.95.05", machine) == (b"0\n", 0)
