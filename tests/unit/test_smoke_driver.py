"""What a container has of the driver: what is said of it, and what the script that runs there finds."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.shell_file import script_file
from gpunode.components.smoke import (
    InContainer,
    Smoke,
    Trial,
    parse_in_container,
    parse_smoke,
)
from gpunode.facts.toolkit import Smoke as SmokeFact
from gpunode.operations import verify
from gpunode.system.smi import parse_list
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.smoke_driver import LIBRARY, LIST, NODE

pytestmark = pytest.mark.pure


@given(st.lists(st.text()))
def test_no_output_of_a_container_breaks_the_parser(lines: list[str]) -> None:
    found = parse_in_container(lines)
    assert found.gpus == parse_list(line.removeprefix("smi=") for line in lines if line.startswith("smi="))


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
    commands(verify.containers, host, reload=True)
    assert unnamed(host.noops[0], "2 GPUs", "3g.20gb", "1g.5gb+me", f"{LIBRARY}.1") == [] and host.refusals == []
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
    (tmp_path / folder / "libcuda.so.1").write_text("SIMULATED")
    text = f"DRIVER_ROOT={tmp_path}; SMI=absent=yes; CONFIG=/dev/null; ACCEPTED=x\n{script_file('smoke_choose')}"
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert f"cuda={tmp_path}/{folder}/libcuda.so.1" in done.stdout.splitlines()
