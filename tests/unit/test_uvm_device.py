"""The device of nvidia_uvm where nobody makes it: a driver without nvidia-modprobe, by the module's number."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.base.shell_file import script_file
from gpunode.operations.script import script

pytestmark = [pytest.mark.real, pytest.mark.starts_programs]

VERSION = "580.95.05"


def load(folder: Path, devices: str, own: str | None = None) -> subprocess.CompletedProcess[str]:
    """Load the module, which SIMULATED programs say is loaded; own: a SIMULATED nvidia-modprobe."""
    programs = folder / "bin"
    programs.mkdir()
    # A link to a character device stands in for one, which root alone can make.
    texts = {"modprobe": "exit 0", "mknod": 'ln -s /dev/null "$3"; echo "$@" >> "$OUT"', "nvidia-modprobe": own}
    for name, text in texts.items():
        if text is not None:
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
    (folder / "devices").write_text(f"Character devices:\n  1 mem\n{devices}\nBlock devices:\n259 blkext\n")
    (folder / "version").write_text(f"{VERSION}\n")
    text = script_file("nouveau", "driver_load").replace("/dev/nvidia-uvm", f"{folder}/nvidia-uvm")
    text = text.replace("/proc/devices", f"{folder}/devices").replace("/sys/module/nvidia/version", f"{folder}/version")
    words = {"wanted": VERSION, "folder": str(folder / "none"), "transaction": "driver", "OUT": str(folder / "made")}
    return subprocess.run(
        ["/bin/sh", "-c", script(text)], capture_output=True, text=True, check=False,
        env={"PATH": f"{programs}:/usr/bin:/bin", **words},
    )  # fmt: skip


@pytest.mark.parametrize("own", [None, "exit 1"], ids=["not there", "fails"])
def test_the_device_is_made_by_the_modules_number_where_nvidia_modprobe_does_not(
    tmp_path: Path, own: str | None
) -> None:
    done = load(tmp_path, "511 nvidia-uvm\n510 nvidia-uvm-other", own)
    assert (done.returncode, done.stderr) == (0, "")
    made = (tmp_path / "made").read_text().splitlines()
    assert made == [f"-m 666 {tmp_path}/nvidia-uvm c 511 0", f"-m 666 {tmp_path}/nvidia-uvm-tools c 511 1"]


def test_where_nobody_can_make_the_device_the_run_says_so(tmp_path: Path) -> None:
    done = load(tmp_path, "195 nvidia")
    assert done.returncode == 1 and "/dev/nvidia-uvm" not in done.stdout
    assert "cannot be made: nvidia-modprobe is not there or fails" in done.stderr
