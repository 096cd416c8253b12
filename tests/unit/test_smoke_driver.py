"""What a container has of the driver: what is said of it, and what the script that runs there finds."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.shell_file import script_file
from gpunode.components.smoke import Smoke, Trial, parse_smoke
from gpunode.components.smoke_driver import (
    Handed,
    InContainer,
    driver_notes,
    driver_problems,
    parse_in_container,
)
from gpunode.facts.smoke import Smoke as SmokeFact
from gpunode.operations import smoke
from gpunode.system.smi_list import ListedGpu, parse_list
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

# As NVIDIA's nvidia-smi 550 prints it.
LIST = (
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-1111-1111-1111-111111111111)",
    "  MIG 3g.20gb     Device  0: (UUID: MIG-22222222-2222-2222-2222-222222222222)",
    "  MIG 1g.5gb+me   Device  1: (UUID: MIG-33333333-3333-3333-3333-333333333333)",
    "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-44444444-4444-4444-4444-444444444444)",
)
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so"
NODE = Handed(parse_list(LIST), cuda=f"{LIBRARY}.1")
SEEN = InContainer((f"{LIBRARY}.580.95.05",), (f"{LIBRARY}.1",), 0, tuple(map(str.strip, LIST)))


def test_what_nvidia_smi_lists_is_read_with_mig_devices_below_their_gpu() -> None:
    first, second = parse_list(["WARNING: infoROM is corrupted at gpu 0000:1A:00.0", *LIST])
    assert first == ListedGpu(
        0,
        "GPU-11111111-1111-1111-1111-111111111111",
        (
            ("3g.20gb", "MIG-22222222-2222-2222-2222-222222222222"),
            ("1g.5gb+me", "MIG-33333333-3333-3333-3333-333333333333"),
        ),
    )
    assert (second.index, second.mig) == (1, ())


@given(st.lists(st.text()))
def test_no_output_of_a_container_breaks_the_parser(lines: list[str]) -> None:
    found = parse_in_container(lines)
    assert found.gpus == parse_list(line.removeprefix("smi=") for line in lines if line.startswith("smi="))


def test_a_container_that_has_what_the_node_has_is_as_it_should_be() -> None:
    assert list(driver_problems(NODE, SEEN)) == list(driver_notes(NODE, SEEN)) == []


@pytest.mark.parametrize(
    "change, words, remedy",
    [
        ({"smi_status": None, "smi_said": ()}, "has no nvidia-smi", "run deploys/gpu_node.py"),
        (
            {"smi_status": 12, "smi_said": ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",)},
            "exit code 12: NVIDIA-SMI couldn't find libnvidia-ml.so", "nvidia-container-cli.ldconfig",
        ),
        (
            {"smi_status": 18, "smi_said": ("Failed to initialize NVML: Driver/library version mismatch",)},
            "exit code 18", "not those of the driver that is loaded",
        ),
        ({"smi_status": 255, "smi_said": ()}, "exit code 255: it said nothing", "look at /var/log"),
        ({"smi_status": 127, "smi_said": ("sh: 1: nvidia-smi: not found",)}, "exit code 127", "look at /var/log"),
        ({"smi_said": SEEN.smi_said[3:]}, "does not list GPU-11111111", "look at /var/log"),
        (
            {"smi_said": (SEEN.smi_said[0], SEEN.smi_said[2], SEEN.smi_said[3])},
            "does not list the MIG devices 3g.20gb (MIG-22222222", "/dev/nvidia-caps",
        ),
        ({"cuda": (), "linked": ()}, "has no libcuda", "run deploys/gpu_node.py"),
        ({"linked": ()}, "no libcuda.so.1 beside it", "nvidia-container-cli.ldconfig"),
    ],
)  # fmt: skip
def test_each_fault_is_told_with_what_to_do(change: dict[str, Any], words: str, remedy: str) -> None:
    seen = replace(SEEN, **change)
    (problem,) = driver_problems(NODE, seen)
    assert words in problem and remedy in problem
    assert list(driver_notes(NODE, seen)) == []


@pytest.mark.parametrize(
    "node, change, note",
    [
        ({"gpus": ()}, {"smi_status": None, "smi_said": ()}, "the node has none that lists its GPUs"),
        ({"capabilities": ("compute",)}, {"smi_status": None, "smi_said": ()}, "has no utility"),
        ({"is_script": True}, {"smi_status": 127, "smi_said": ()}, "on the node it is a script"),
        ({"cuda": None}, {"cuda": (), "linked": ()}, "the node has no libcuda.so.1"),
        ({"capabilities": ("utility",)}, {"cuda": (), "linked": ()}, "has no compute"),
    ],
)
def test_what_a_container_is_not_to_get_is_said_and_no_fault(
    node: dict[str, Any], change: dict[str, Any], note: str
) -> None:
    handed, seen = replace(NODE, **node), replace(SEEN, **change)
    assert list(driver_problems(handed, seen)) == []
    (said,) = driver_notes(handed, seen)
    assert note in said


def test_by_cdi_a_container_gets_what_config_toml_does_not_name_and_it_is_looked_at() -> None:
    node = replace(NODE, capabilities=("graphics",))
    assert list(driver_problems(node, SEEN)) == list(driver_notes(node, SEEN)) == []
    (problem,) = driver_problems(node, replace(SEEN, smi_status=18))
    assert "exit code 18" in problem


def _printed(*seen: str, **node: str) -> list[str]:
    said = base64.b64encode("\n".join(("open=/dev/nvidia0", *seen)).encode()).decode()
    lines = [f"cuda={LIBRARY}.1", *(f"{key}={value}" for key, value in node.items())]
    return [
        "device=/dev/nvidia0", *(f"node={line}" for line in LIST), *lines, "by=ctr", "runtime=/r", "asking=0",
        f"asking_said={said}", "silent=0",
        "tested=yes",
    ]  # fmt: skip


def test_what_node_and_container_print_comes_to_a_verdict(host: Host) -> None:
    good = (f"cuda={LIBRARY}.580.95.05", f"linked={LIBRARY}.1", "smi.rc=0", *(f"smi={line.strip()}" for line in LIST))
    found = parse_smoke(_printed(*good, capabilities="compute, utility"))
    assert (found.problems, found.notes, found.handed.capabilities) == ((), (), ("compute", "utility"))
    host.readings[SmokeFact] = found
    commands(smoke.containers, host, reload=True)
    assert "nvidia-smi lists 2 GPUs, MIG 3g.20gb, MIG 1g.5gb+me there" in host.noops[0]
    assert f"{LIBRARY}.1 is there" in host.noops[0] and host.refusals == []
    wrong = parse_smoke(_printed(*good[:2], "smi.rc=12", "smi=NVIDIA-SMI couldn't find libnvidia-ml.so library"))
    assert len(wrong.problems) == 1 and "exit code 12" in wrong.problems[0]
    # Without a container there is nothing to say of it.
    assert Smoke("ctr", "/r", ("/dev/nvidia0",), Trial(False), handed=NODE).notes == ()


@pytest.mark.real
def test_the_script_in_the_container_finds_each_mounted_library_and_runs_nvidia_smi(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    for name in ("libcuda.so.1", "libcuda.so.580.95.05"):
        (folder / name).touch()
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "overlay / overlay rw 0 0\n"
        f"/dev/sda1 {folder}/libcuda.so.580.95.05 ext4 ro 0 0\n"
        f"/dev/sda1 {tmp_path}/other/libcuda.so.470.1 ext4 ro 0 0\n"
        f"/dev/sda1 {folder}/libnvidia-ml.so.580.95.05 ext4 ro 0 0\n"
    )
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n[ \"$1\" = -L ] && echo '{LIST[0]}' && echo '{LIST[1]}'\nexit 15\n")
    program.chmod(0o755)
    script = script_file("smoke_seen").replace("/proc/mounts", str(mounts))

    def seen(path: str) -> InContainer:
        done = subprocess.run(["/bin/sh", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True)
        return parse_in_container(done.stdout.splitlines())

    found = seen(f"{tmp_path}:/usr/bin:/bin")
    assert found.cuda == (f"{folder}/libcuda.so.580.95.05", f"{tmp_path}/other/libcuda.so.470.1")
    assert found.linked == (f"{folder}/libcuda.so.1",)
    assert found.smi_status == 15
    assert [(gpu.index, gpu.mig[0][0]) for gpu in found.gpus] == [(0, "3g.20gb")]
    assert seen("/nowhere").smi_status is None
    # As on a machine that has its driver in a folder of its own, known to ld.so alone: the toolkit mounts it there.
    mounts.write_text(f"/dev/sda1 {program} ext4 ro 0 0\n")
    assert seen("/usr/bin:/bin").smi_status == 15


@pytest.mark.real
@pytest.mark.parametrize("folder", ["usr/lib/x86_64-linux-gnu", "usr/lib64", "lib64", "lib"])
def test_the_node_s_libcuda_is_found_below_the_driver_s_root_wherever_it_has_libraries(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "libcuda.so.1").touch()
    text = f"DRIVER_ROOT={tmp_path}; SMI=absent=yes; CONFIG=/dev/null; ACCEPTED=x\n{script_file('smoke_choose')}"
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert f"cuda={tmp_path}/{folder}/libcuda.so.1" in done.stdout.splitlines()
