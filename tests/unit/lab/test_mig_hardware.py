"""What the simulated GPUs do of MIG beyond what was recorded: generations, holders, faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.fault import main as set_fault
from gpunode.lab.hardware.simulated.hold import main as hold
from gpunode.lab.hardware.simulated.machine import Machine, gpu_models
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.lab.hardware.simulated.smi.mig.table import profiles
from tests.support.nvidia_smi import VERSION, machine_with

pytestmark = pytest.mark.simulated

TABLE: dict[str, Any] = yaml.safe_load(resources.files("gpunode.data").joinpath("mig.yaml").read_text(encoding="utf-8"))
IN_USE = "In use by another client"
MODES = "--query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader"


def smi(machine: Machine, line: str) -> tuple[str, int]:
    printed, status = call(line.split(), VERSION, machine)
    return printed.decode(errors="replace"), status


def modes(machine: Machine) -> list[str]:
    return smi(machine, MODES)[0].splitlines()


def layout(machine: Machine, gpu: int = 0) -> list[str]:
    """Return what stands on a GPU as PROFILE:START, sorted."""
    printed, status = smi(machine, f"mig -i {gpu} -lgi")
    rows = [line.split() for line in printed.splitlines() if "MIG " in line]
    assert bool(rows) == (status == 0)
    return sorted(f"{row[3]}:{row[6].split(':')[0]}" for row in rows)


def enabled(root: Path, gpu: str, count: int = 1) -> Machine:
    machine = machine_with(root, {"gpu": gpu, "count": count})
    assert smi(machine, "-mig 1")[1] == 0
    return machine


def booted(machine: Machine) -> None:
    """Do what a boot does to the driver: it is loaded anew, and /run is empty."""
    module.unload(machine, "nvidia")
    module.load(machine, "nvidia")


def process(machine: Machine, pid: int, gpu: int, program: str) -> None:
    """Make the kernel tell of a process that has a GPU's device open."""
    descriptors = machine.path(f"/proc/{pid}/fd")
    descriptors.mkdir(parents=True)
    (descriptors / "7").symlink_to(f"/dev/nvidia{gpu}")
    (descriptors.parent / "cmdline").write_bytes(program.encode() + b"\0--steps\x009\0")


MODELS = {
    "a30": "A30-24GB",
    "a100-40gb": "A100-40GB",
    "a100-80gb": "A100-80GB",
    "h100-80gb": "H100-80GB",
    "h100-nvl": "H100-NVL-94GB",
    "h200": "H200-141GB",
    "b200": "B200-180GB",
}


@pytest.mark.parametrize(("model", "product"), MODELS.items())
def test_a_simulated_product_has_the_profiles_and_places_that_the_field_states(model: str, product: str) -> None:
    found = gpu_models()[model]
    row = TABLE["products"][product]
    assert (found.mig, found.device_id.upper() in row["device_ids"]) == (product, True)
    assert {each.name: each.most for each in profiles(product)} == row["profiles"]
    shapes = {shape["profile_id"]: shape for shape in TABLE["geometries"][row["geometry"]]}
    simulated = {each.id: (each.compute, sorted(each.tries), each.size) for each in profiles(product)}
    assert simulated == {key: (shape["compute"], shape["starts"], shape["size"]) for key, shape in shapes.items()}
    # In both tables the shapes stand in the same order, and so do the names of a product.
    for name, (key, shape) in zip(row["profiles"], shapes.items(), strict=True):
        one = next(each for each in profiles(product) if each.name == name)
        assert (one.id, one.compute) == (key, shape["compute"])


@pytest.mark.parametrize(("model", "product"), MODELS.items())
def test_every_profile_is_created_by_id_and_by_name_at_every_place_that_is_listed(
    tmp_path: Path, model: str, product: str
) -> None:
    machine = enabled(tmp_path, model)
    for profile in profiles(product):
        for start in profile.tries:
            for asked in (profile.id, profile.name):
                printed, status = smi(machine, f"mig -i 0 -cgi {asked}:{start} -C")
                assert (status, f"profile MIG {profile.name} (ID {profile.id:>2})" in printed) == (0, True)
                assert layout(machine) == [f"{profile.name}:{start}"]
                assert smi(machine, "mig -dci")[1] == 0
                assert smi(machine, "mig -dgi")[1] == 0


@pytest.mark.parametrize(
    ("asked", "words", "status"),
    [
        ("14:1", "Invalid Argument", 2),
        ("5:4", "Invalid Argument", 2),
        ("9:4", "Insufficient Resources", 23),
        ("19:7", "Invalid Argument", 2),
    ],
)
def test_a_place_that_is_none_or_is_taken_is_refused(tmp_path: Path, asked: str, words: str, status: int) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert smi(machine, "mig -cgi 9:4")[1] == 0
    printed, code = smi(machine, f"mig -i 0 -cgi {asked}")
    assert printed == (
        f"Unable to create a GPU instance on GPU  0 using profile {asked}: {words}\n"
        f"Failed to create GPU instances: {words}\n"
    )
    assert code == status


def test_a_place_that_is_no_number_is_the_driver_s_choice(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    for asked, stands in (("14:x", "2g.20gb:4"), ("14:", "2g.20gb:0"), ("19:2x", "1g.10gb:2")):
        assert smi(machine, f"mig -cgi {asked}")[1] == 0
        assert stands in layout(machine)


def test_four_and_three_compute_slices_share_a_whole_gpu(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert smi(machine, "mig -cgi 0")[1] == 0
    assert smi(machine, "mig -cci 3,2")[1] == 0
    rows = [line.split() for line in smi(machine, "mig -lci")[0].splitlines() if "MIG " in line]
    assert [(row[4], row[7]) for row in rows] == [("3c.7g.80gb", "4:3"), ("4c.7g.80gb", "0:4")]
    free = [line.split() for line in smi(machine, "mig -lcip")[0].splitlines() if "MIG " in line]
    assert {row[6] for row in free} == {"0/7", "0/3", "0/2", "0/1"}


def test_six_1g_and_one_of_double_memory_need_explicit_places(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    for position in range(7):
        asked = ["19"] * 6
        asked.insert(position, "15")
        assert smi(machine, f"mig -cgi {','.join(asked)}")[1] == 23
        assert smi(machine, "mig -dgi")[1] == 0
    assert smi(machine, "mig -cgi 15:6,19:0,19:1,19:2,19:3,19:4,19:5")[1] == 0


def test_media_engines_are_there_once_for_all_sizes(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "a30")
    assert smi(machine, "mig -cgi 1g.6gb+me:0")[1] == 0
    assert smi(machine, "mig -cgi 2g.12gb+me:2")[1] == 23
    assert smi(machine, "mig -cgi 2g.12gb:2")[1] == 0


def test_the_first_3g_stands_elsewhere_on_another_machine(tmp_path: Path) -> None:
    first = enabled(tmp_path / "a", "a100-40gb")
    other = enabled(tmp_path / "b", "a100-80gb")
    assert smi(first, "mig -cgi 9")[1] == smi(other, "mig -cgi 9")[1] == 0
    assert (layout(first), layout(other)) == (["3g.20gb:4"], ["3g.40gb:0"])


def test_the_first_instances_stand_where_real_machines_had_them(tmp_path: Path) -> None:
    h200 = enabled(tmp_path / "h200", "h200")
    assert smi(h200, "mig -cgi 9")[1] == 0 and layout(h200) == ["3g.71gb:4"]
    # Read from an A30 under 535.183.01, with these ids.
    a30 = enabled(tmp_path / "a30", "a30")
    for asked, number in (("14", 3), ("14", 4), ("5", 2)):
        assert smi(a30, f"mig -cgi {asked}")[0].startswith(f"Successfully created GPU instance ID {number:>2} on")
    assert layout(a30) == ["1g.6gb:0", "1g.6gb:1", "2g.12gb:2"]


def test_a_new_mig_device_never_has_the_uuid_of_an_old_one(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    seen = set()
    for _ in range(2):
        assert smi(machine, "mig -cgi 9:4 -C")[1] == 0
        seen.add(smi(machine, "-L")[0].splitlines()[1])
        booted(machine)
        smi(machine, "-mig 1")
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("model", "kept"), [("a100-80gb", "Enabled"), ("a30", "Enabled"), ("h100-80gb", "Disabled"), ("b200", "Disabled")]
)
def test_a_boot_loses_the_instances_and_from_hopper_on_the_mode(tmp_path: Path, model: str, kept: str) -> None:
    machine = enabled(tmp_path, model)
    assert smi(machine, "mig -cgi 0 -C")[1] == 0
    booted(machine)
    assert modes(machine) == [f"{kept}, {kept}"]
    smi(machine, "-mig 1")
    assert layout(machine) == []


def test_whoever_has_the_device_open_keeps_mode_and_gpu_as_they_are(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "a100-80gb", "count": 2})
    process(machine, 4711, 1, "/usr/bin/dcgmi")
    printed, status = smi(machine, "-mig 1")
    assert (status, modes(machine)) == (0, ["Enabled, Enabled", "Disabled, Enabled"])
    assert f"pending enable state for GPU 00000000:0F:00.0:{IN_USE}" in printed
    printed, status = smi(machine, "--gpu-reset -i 1")
    assert (status, IN_USE in printed) == (19, True)
    query = "--query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader"
    assert smi(machine, query)[0] == f"{machine.gpus()[1].uuid}, 4711, /usr/bin/dcgmi\n"
    machine.path("/proc/4711/fd/7").unlink()
    assert smi(machine, "--gpu-reset -i 1") == ("GPU 00000000:0F:00.0 was successfully reset.\nAll done.\n", 0)
    assert modes(machine) == ["Enabled, Enabled"] * 2


def test_a_process_keeps_the_compute_instances_that_it_uses(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert smi(machine, "mig -cgi 9:4,9:0 -C")[1] == 0
    process(machine, 4711, 0, "/usr/bin/python3")
    # As the real driver counts them: 3 is gpu0/gi0, and each GPU instance has eight for compute instances.
    device = machine.path("/proc/4711/fd/8")
    device.symlink_to("/dev/nvidia-caps/nvidia-cap21")
    assert smi(machine, "mig -dci -gi 2") == (
        f"Unable to destroy compute instance ID  0 from GPU  0 GPU instance ID  2: {IN_USE}\n"
        f"Failed to destroy compute instances: {IN_USE}\n",
        19,
    )
    assert smi(machine, "mig -dci -gi 1")[1] == 0
    device.unlink()
    smi(machine, "mig -cci -gi 1")
    assert smi(machine, "mig -dci -gi 1")[1] == 19


def test_each_instance_has_a_capability_and_a_device_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb", 2)
    folder = machine.path("/proc/driver/nvidia/capabilities")

    def shown() -> dict[str, str]:
        return {str(file.parent.relative_to(folder)): file.read_text().split()[1] for file in folder.rglob("access")}

    # As a transaction of gpunode's has it.
    before = os.umask(0o077)
    assert smi(machine, "mig -i 0 -cgi 9:4,9:0 -C")[1] == 0
    assert smi(machine, "mig -i 1 -cgi 0:0")[1] == 0
    os.umask(before)
    assert machine.path("/dev/nvidia-caps").stat().st_mode & 0o777 == 0o755
    assert shown() == {
        "gpu0/mig/gi1": "12", "gpu0/mig/gi1/ci0": "13", "gpu0/mig/gi2": "21", "gpu0/mig/gi2/ci0": "22",
        "gpu1/mig/gi0": "138",
    }  # fmt: skip
    assert {each.name for each in machine.path("/dev/nvidia-caps").iterdir()} == {
        f"nvidia-cap{number}" for number in shown().values()
    }
    assert smi(machine, "mig -i 0 -dci -gi 2")[1] == 0 and smi(machine, "mig -i 0 -dgi -gi 2")[1] == 0
    assert smi(machine, "--gpu-reset -i 1")[1] == 0
    assert shown() == {"gpu0/mig/gi1": "12", "gpu0/mig/gi1/ci0": "13"}
    assert len(list(machine.path("/dev/nvidia-caps").iterdir())) == 2


def test_a_reset_loses_the_instances_of_that_gpu_alone(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "a100-40gb", 2)
    assert smi(machine, "mig -cgi 9 -C")[1] == 0
    assert smi(machine, f"--gpu-reset -i {machine.gpus()[0].uuid}")[1] == 0
    assert (layout(machine, 0), layout(machine, 1)) == ([], ["3g.20gb:4"])
    assert modes(machine) == ["Enabled, Enabled"] * 2


def test_the_mode_waits_for_a_reset_where_the_fault_says_so(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "a100-40gb", "count": 1})
    assert set_fault(["set", "mig_pending", "0"], machine) == 0
    printed, status = smi(machine, "-mig 1")
    assert (status, "try nvidia-smi --gpu-reset" in printed) == (0, True)
    assert modes(machine) == ["Disabled, Enabled"]
    assert set_fault(["set", "reset_refused", "0"], machine) == 0
    assert smi(machine, "--gpu-reset -i 0")[1] == 3
    assert set_fault(["clear", "reset_refused"], machine) == 0
    assert smi(machine, "--gpu-reset -i 0")[1] == 0
    assert modes(machine) == ["Enabled, Enabled"]


@pytest.mark.parametrize("model", ["a10", "t4", "l40s"])
def test_a_gpu_without_mig_is_never_in_mig_mode(tmp_path: Path, model: str) -> None:
    machine = enabled(tmp_path, model)
    assert modes(machine) == ["[N/A], [N/A]"]
    assert smi(machine, "mig -lgip") == ("No MIG-supported devices found.\n", 6)
    printed, status = call(["mig", "-lgip"], "535.261.03", machine)
    assert (printed, status) == (b"No MIG-enabled devices found.\n", 6)


def test_a_lost_gpu_is_no_obstacle_to_the_others(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb", 2)
    assert set_fault(["set", "lost_gpu", "1"], machine) == 0
    assert smi(machine, "mig -i 0 -cgi 9")[1] == 0
    assert smi(machine, "mig -lgi")[1] == 15


def test_the_nth_creation_fails_once_and_what_was_created_stays(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert set_fault(["set", "mig_create_fails_at", "2"], machine) == 0
    printed, status = smi(machine, "mig -cgi 9:4,14:0,19:2")
    assert (status, layout(machine), machine.faults) == (255, ["3g.40gb:4"], {})
    assert printed.splitlines()[1] == "Unable to create a GPU instance on GPU  0 using profile 14:0: Unknown Error"
    assert smi(machine, "mig -cgi 14:0,19:2")[1] == 0


def test_a_gpu_instance_whose_compute_instance_fails_stays_without_one(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert set_fault(["set", "mig_compute_fails_at", "2"], machine) == 0
    printed, status = smi(machine, "mig -cgi 9:4,14:0,19:2 -C")
    assert (status, layout(machine)) == (255, ["2g.20gb:0", "3g.40gb:4"])
    assert printed.splitlines()[-2:] == [
        "Unable to create a compute instance on GPU  0 GPU instance ID  3 using profile default: Unknown Error",
        "Failed to create GPU instances: Unknown Error",
    ]
    assert len(smi(machine, "-L")[0].splitlines()) == 2


def test_nothing_is_created_on_a_gpu_where_the_fault_says_so(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb", 2)
    assert set_fault(["set", "mig_create_fails", "1"], machine) == 0
    assert smi(machine, "mig -cgi 9:4")[1] == 255
    assert (layout(machine, 0), layout(machine, 1)) == (["3g.40gb:4"], [])


def test_a_fault_of_a_moment_needs_a_moment(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    for number in ("0", "soon"):
        assert set_fault(["set", "smi_killed_at", number], machine) == 64


def test_nvidia_smi_killed_in_the_middle_leaves_what_it_has_done(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert set_fault(["set", "smi_killed_at", "2"], machine) == 0
    code = (
        "from pathlib import Path; from lab.hardware.simulated.machine import Machine; "
        "from lab.hardware.simulated.smi.main import call; "
        f"print(call(['mig', '-cgi', '9:4,14:0,19:2'], {VERSION!r}, Machine(Path({str(tmp_path)!r}))))"
    )
    checkout = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    assert layout(machine) == ["2g.20gb:0", "3g.40gb:4"]
    assert machine.faults == {}


def test_no_power_is_cut_but_that_of_a_lab_node(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert set_fault(["set", "power_cut_at", "1"], machine) == 0
    printed, status = smi(machine, "mig -cgi 9:4")
    assert (status, "only in a lab node" in printed) == (255, True)


def test_only_root_changes_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert smi(machine, "mig -cgi 9:4 -C")[1] == 0
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for line in ("mig -cgi 9:0", "mig -dci", "mig -dgi", "mig -gi 1 -cci"):
        printed, status = smi(machine, line)
        assert (status, "Insufficient Permissions" in printed) == (4, True)
    assert layout(machine) == ["3g.40gb:4"]


@pytest.mark.parametrize(
    ("line", "says", "status"),
    [
        ("mig", "SIMULATED", 0),
        ("mig -i 0", "SIMULATED", 0),
        ("mig -h -cgi 9", "SIMULATED", 0),
        ("mig -dgi -gi 5", "No GPU instances found: Not Found", 6),
        ("mig -lci", "No compute instances found: Not Found", 6),
        ("mig -dci", "No compute instances found: Not Found", 6),
        ("mig -gi 1 -cci 4", "Unable to create a compute instance on GPU  0 GPU instance ID  1 using profile 4", 2),
        ("mig -gi 1 -cci 0,0,0,0", "Failed to create compute instances: Insufficient Resources", 23),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, line: str, says: str, status: int) -> None:
    machine = enabled(tmp_path, "h100-80gb")
    assert smi(machine, "mig -cgi 9:4")[1] == 0
    printed, code = smi(machine, line)
    assert (says in printed, code) == (True, status)


def test_the_plain_table_shows_mig_devices_and_processes_and_keeps_its_width(tmp_path: Path) -> None:
    machine = enabled(tmp_path, "h100-80gb", 2)
    assert smi(machine, "mig -i 0 -cgi 9:4,14:0 -C")[1] == 0
    process(machine, 4711, 1, "/usr/bin/python3")
    printed, status = smi(machine, "")
    lines = printed.splitlines()
    assert (status, {len(line) for line in lines[1:]}) == (0, {0, 89, 91})
    assert [line.split()[:6] for line in lines if line.startswith("|  0    ")] == [
        ["|", "0", "1", "0", "0", "|"],
        ["|", "0", "3", "0", "1", "|"],
    ]
    assert [line.split()[1:7] for line in lines if "4711" in line] == [
        ["1", "N/A", "N/A", "4711", "C", "/usr/bin/python3"]
    ]


def test_who_would_hold_a_gpu_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = machine_with(tmp_path, {"gpu": "h100-80gb", "count": 1})
    assert hold(["1"], machine) == 1
    assert "the GPU or the instance is not there, or no driver is loaded" in capsys.readouterr().err
    assert hold(["0", "--instance", "1"], machine) == 1
    assert "/dev/nvidia-caps/nvidia-cap12" in capsys.readouterr().err
    assert hold(["first"], machine) == 64
