"""The fixture nvidia-smi as a program of its own, and all that it knows of each product."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.lab.hardware.simulated.fault import main as set_fault
from gpunode.lab.hardware.simulated.machine import Machine, gpu_models
from gpunode.lab.hardware.simulated.smi.mig.table import profiles
from gpunode.lab.packages.smi_archive import smi_archive
from gpunode.system.smi import QUERY
from tests.support.nvidia_smi import VERSION, machine_with, smi

pytestmark = pytest.mark.simulated

TABLE: dict[str, Any] = yaml.safe_load(resources.files("gpunode.data").joinpath("mig.yaml").read_text(encoding="utf-8"))
CHECKOUT = Path(__file__).parents[3]
MODELS = {
    "a30": "A30-24GB", "a100-40gb": "A100-40GB", "a100-80gb": "A100-80GB", "h100-80gb": "H100-80GB",
    "h100-nvl": "H100-NVL-94GB", "h200": "H200-141GB", "b200": "B200-180GB",
}  # fmt: skip


def layout(machine: Machine) -> list[str]:
    """Return what stands on the first GPU as PROFILE:START, sorted."""
    rows = [line.split() for line in smi(machine, "mig -i 0 -lgi")[0].splitlines() if "MIG " in line]
    return sorted(f"{row[3]}:{row[6].split(':')[0]}" for row in rows)


def started(root: Path, *arguments: str) -> subprocess.Popen[str]:
    """Call nvidia-smi in a process of its own."""
    code = (
        "from pathlib import Path; from lab.hardware.simulated.machine import Machine; "
        "from lab.hardware.simulated.smi.main import call; print('up', flush=True); "
        f"call({list(arguments)!r}, {VERSION!r}, Machine(Path({str(root)!r})))"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("model", "product"), MODELS.items())
def test_a_simulated_product_has_the_profiles_and_places_that_the_field_states(model: str, product: str) -> None:
    found, row = gpu_models()[model], TABLE["products"][product]
    assert (found.mig, found.device_id.upper() in row["device_ids"]) == (product, True)
    assert {each.name: each.most for each in profiles(product)} == row["profiles"]
    shapes = {shape["profile_id"]: shape for shape in TABLE["geometries"][row["geometry"]]}
    simulated = {each.id: (each.compute, sorted(each.tries), each.size) for each in profiles(product)}
    assert simulated == {key: (shape["compute"], shape["starts"], shape["size"]) for key, shape in shapes.items()}
    # In both tables the shapes stand in the same order, and so do the names of a product.
    for name, (key, shape) in zip(row["profiles"], shapes.items(), strict=True):
        one = next(each for each in profiles(product) if each.name == name)
        assert (one.id, one.compute) == (key, shape["compute"])


@pytest.mark.parametrize("model", ["h100-80gb", "a30"])
def test_every_profile_of_a_geometry_is_created_at_each_place(tmp_path: Path, model: str) -> None:
    machine = machine_with(tmp_path, {"gpu": model, "count": 1})
    assert smi(machine, "-mig 1")[1] == 0
    for profile in profiles(MODELS[model]):
        by_id = [(profile.id, start) for start in profile.tries]
        for asked, start in (*by_id, (profile.name, profile.tries[0])):
            printed, status = smi(machine, f"mig -i 0 -cgi {asked}:{start} -C")
            assert (status, f"profile MIG {profile.name} (ID {profile.id:>2})" in printed) == (0, True)
            assert layout(machine) == [f"{profile.name}:{start}"]
            assert smi(machine, "mig -dci")[1] == smi(machine, "mig -dgi")[1] == 0


@pytest.mark.parametrize("model", sorted(gpu_models()))
def test_every_gpu_of_the_lab_answers_what_gpunode_asks(tmp_path: Path, model: str) -> None:
    machine = machine_with(tmp_path, {"gpu": model, "count": 1}, flavour=gpu_models()[model].modules[-1])
    printed, status = smi(machine, f"--query-gpu={','.join(QUERY)} --format=csv,noheader,nounits")
    assert (status, len(next(csv.reader([printed])))) == (0, len(QUERY)), printed


def test_nvidia_smi_killed_in_the_middle_leaves_what_it_has_done(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "h100-80gb", "count": 1})
    assert smi(machine, "-mig 1")[1] == 0
    assert set_fault(["set", "smi_killed_at", "2"], machine) == 0
    assert started(tmp_path, "mig", "-cgi", "9:4,14:0,19:2").wait(60) == -signal.SIGKILL
    assert layout(machine) == ["2g.20gb:0", "3g.40gb:4"] and machine.faults == {}


def test_hang_ends_only_by_kill(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "h100-80gb", "count": 1})
    machine.write_json("/etc/gpunode-lab/faults.json", {"hang": True})
    process = started(tmp_path, "-L")
    try:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        for _ in range(2):
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.terminate()
    finally:
        process.kill()
    assert process.wait(10) == -signal.SIGKILL


def test_program_in_the_package_runs_by_itself(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(smi_archive("580.95.05"))
    assert smi_archive("580.95.05") == program.read_bytes()
    code = (
        f"import sys; sys.path.insert(0, {str(program)!r}); "
        "from simulated.smi.mig.table import profiles; print(len(profiles('A30-24GB')))"
    )
    for words, printed in (([str(program), "-h"], "v580.95.05"), (["-c", code], "5\n")):
        done = subprocess.run([sys.executable, "-I", *words], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "") and printed in done.stdout
