"""The device of nvidia_uvm where nobody makes it: a driver without nvidia-modprobe, by the module's number."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from gpunode.base.shell_file import script_file
from gpunode.base.template import rendered
from gpunode.operations.script import script

pytestmark = pytest.mark.real

VERSION = "580.95.05"
# What udev puts something in for, behind a dollar sign (udev(7)).
OF_UDEV = (
    "kernel", "number", "devpath", "id", "driver", "attr", "env", "major", "minor", "result", "parent", "name", "links",
    "root", "sys", "devnode", "tempnode",
)  # fmt: skip


def load(folder: Path, devices: str, own: str | None = None) -> subprocess.CompletedProcess[str]:
    """Load the module, which SIMULATED programs say is loaded; own: a SIMULATED nvidia-modprobe."""
    text = script_file("nouveau", "driver_load").replace("/sys/module/nvidia/version", f"{folder}/version")
    (folder / "version").write_text(f"{VERSION}\n")
    words = {"wanted": VERSION, "folder": str(folder / "none"), "transaction": "driver"}
    return run(folder, ["/bin/sh", "-c", script(text)], devices, own, **words)


def run(
    folder: Path, command: list[str], devices: str, own: str | None = None, /, **words: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with SIMULATED programs in place of those that take root, and the devices in the folder."""
    programs = folder / "bin"
    programs.mkdir()
    # A link to a character device stands in for one, which root alone can make.
    texts = {"modprobe": "exit 0", "mknod": 'ln -s /dev/null "$3"; echo "$@" >> "$OUT"', "nvidia-modprobe": own}
    for name, text in texts.items():
        if text is not None:
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
    (folder / "devices").write_text(f"Character devices:\n  1 mem\n{devices}\nBlock devices:\n259 blkext\n")
    there = {"/dev/nvidia-uvm": f"{folder}/nvidia-uvm", "/proc/devices": f"{folder}/devices"}
    command = [re.sub("|".join(there), lambda found: there[found[0]], word) for word in command]
    return subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={"PATH": f"{programs}:/usr/bin:/bin", "OUT": str(folder / "made"), **words},
    )  # fmt: skip


def made(folder: Path) -> list[str]:
    """Return what mknod was asked for."""
    return (folder / "made").read_text().splitlines() if (folder / "made").exists() else []


def of_udev(rule: str) -> list[str]:
    """Return the command of a rule's RUN, as udev reads it: `$$` is a dollar sign, single quotes hold a word."""
    (run,) = re.findall(r'RUN\+="([^"]*)"', rule)
    assert re.findall(r"\$[^$]|%", run.replace("$$", "")) == []
    # What `udevadm test` prints has been through it twice: then `$$name` is the device's name, as `$name` is.
    assert re.findall(rf"\$\$(?:{'|'.join(OF_UDEV)})", run) == []
    return shlex.split(run.replace("$$", "$"))


@pytest.mark.parametrize("own", [None, "exit 1"], ids=["not there", "fails"])
@pytest.mark.parametrize("by_rule", [False, True], ids=["load", "rule of a boot"])
def test_the_device_is_made_by_the_module_s_number_where_nvidia_modprobe_does_not(
    tmp_path: Path, own: str | None, by_rule: bool
) -> None:
    devices = "511 nvidia-uvm\n510 nvidia-uvm-other"
    if by_rule:
        run(tmp_path, of_udev(rendered("nvidia-uvm.rules")), devices, own)
    else:
        done = load(tmp_path, devices, own)
        assert (done.returncode, done.stderr) == (0, "")
    assert made(tmp_path) == [f"-m 666 {tmp_path}/nvidia-uvm c 511 0", f"-m 666 {tmp_path}/nvidia-uvm-tools c 511 1"]


def test_where_nobody_can_make_the_device_the_run_says_so(tmp_path: Path) -> None:
    done = load(tmp_path, "195 nvidia")
    assert done.returncode == 1 and "/dev/nvidia-uvm" not in done.stdout
    assert "nvidia-modprobe" in done.stderr


def test_a_boot_s_rule_leaves_to_nvidia_modprobe_what_it_makes(tmp_path: Path) -> None:
    own = f'echo "$@" > {tmp_path}/asked; ln -s /dev/null {tmp_path}/nvidia-uvm'
    run(tmp_path, of_udev(rendered("nvidia-uvm.rules")), "511 nvidia-uvm", own)
    assert ((tmp_path / "asked").read_text(), made(tmp_path)) == ("-u -c=0\n", [])


def test_the_rule_s_command_is_within_what_udev_takes() -> None:
    # UTIL_PATH_SIZE of systemd's sources.
    assert len(" ".join(of_udev(rendered("nvidia-uvm.rules")))) < 1024
