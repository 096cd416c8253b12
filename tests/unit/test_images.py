"""An image that is made in a root directory: what is judged of it, and what its first boot does.

SIMULATED: the machine at its first boot, by programs of our own on the path and a folder for its root.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.probe import shell_text
from gpunode.node.first_boot import SCRIPT, UNIT_FILE, files, units
from gpunode.node.machine import without_hardware
from gpunode.node.preflight import cautions, refusals
from gpunode.settings import settings_from
from gpunode.system.operating_system import parse_operating_system
from tests.support.preflight import TODAY, machine

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
SYSTEM = ["os.ID=debian", "os.VERSION_ID=12", "architecture=x86_64", "kernel=6.1.0-40-amd64"]


def test_a_root_directory_that_no_systemd_booted_is_an_image() -> None:
    assert parse_operating_system(SYSTEM).booted
    assert not parse_operating_system([*SYSTEM, "booted=no"]).booted
    assert "booted=no" in str(shell_text("system/operating_system"))


def test_what_the_build_machine_has_of_gpus_and_modules_is_not_the_image_s() -> None:
    here = machine()
    assert here.pci.gpus and without_hardware(here) == here
    image = without_hardware(replace(here, operating_system=replace(here.operating_system, booted=False)))
    assert image.is_image and not image.has_gpu and image.driver.loaded_version is None


def test_an_image_needs_no_gpu_and_a_machine_without_one_is_refused() -> None:
    settings, here = settings_from({}), machine()
    bare = replace(here, pci=replace(here.pci, gpus=()))
    assert [item.component for item in refusals(settings, bare, TODAY)] == ["gpu"]
    image = replace(bare, operating_system=replace(here.operating_system, booted=False))
    assert refusals(settings, image, TODAY) == ()


def test_what_an_image_cannot_have_is_told_before() -> None:
    here = machine()
    image = without_hardware(replace(here, operating_system=replace(here.operating_system, booted=False)))
    told = {item.code: item.reason for item in cautions(settings_from({"mps": {"enabled": True}}), image, TODAY)}
    assert "mps.enabled" in told["preflight.image-late"] and "driver.flavour" in told["preflight.image-flavour"]
    quiet = settings_from({"driver": {"flavour": "open"}})
    assert {"image", "driver"}.isdisjoint(item.component for item in cautions(quiet, image, TODAY))


@given(st.booleans(), st.booleans(), st.booleans())
def test_the_first_boot_waits_for_the_runtimes_that_are_asked_for(containerd: bool, docker: bool, cdi: bool) -> None:
    settings = settings_from(
        {
            "containerd": {"enabled": containerd},
            "docker": {"enabled": docker},
            "toolkit": {"cdi": "generate" if cdi else "off"},
        }
    )
    desired = [name for name, is_asked in (("containerd", containerd), ("docker", docker)) if is_asked]
    assert units(settings) == tuple(f"{name}.service" for name in desired)
    found = files(settings, "1.0")
    assert f"After={' '.join(units(settings))}".rstrip() in found[UNIT_FILE]
    assert f"ExecStart=/bin/sh {SCRIPT}" in found[UNIT_FILE]
    assert ("cdi=yes\n" in found[SCRIPT]) == cdi


def _boot(folder: Path, gpus: int, answering: int, service: str = "active") -> subprocess.CompletedProcess[str]:
    """Run the first boot's script on a folder that stands for a machine."""
    programs = {
        "nvidia-smi": "".join(f"echo 'GPU {number}: SIMULATED'\n" for number in range(answering)),
        "systemctl": f"[ {service} = active ]\n",
        "modprobe": "",
        "nvidia-ctk": "",
        "sleep": "",
    }
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (folder / "bin" / name).chmod(0o755)
    for number in range(gpus):
        device = folder / "sys" / f"{number}"
        device.mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    text = files(settings_from({}), "1.0")[SCRIPT]
    text = text.replace("/sys/bus/pci/devices", str(folder / "sys")).replace("/var/lib/gpunode", str(folder / "lib"))
    (folder / "script").write_text(text)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", folder / "script"], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "gpus, answering, service, wrong",
    [
        (2, 2, "active", None),
        (0, 0, "active", "PCI"),
        (2, 1, "active", "1 of 2"),
        (2, 2, "failed", "containerd.service"),
    ],
)
def test_the_first_boot_records_that_all_is_well_or_what_is_wrong(
    tmp_path: Path, gpus: int, answering: int, service: str, wrong: str | None
) -> None:
    unproven = tmp_path / "lib" / "transactions" / "driver" / "unproven"
    unproven.parent.mkdir(parents=True)
    unproven.touch()
    done = _boot(tmp_path, gpus, answering, service)
    good, bad = tmp_path / "lib" / "first-boot", tmp_path / "lib" / "first-boot.failed"
    assert (done.returncode == 0) == good.exists() == (not bad.exists()) == (wrong is None), done.stderr
    verdict = (bad if wrong else good).read_text()
    assert ("verdict=ok" in verdict) == (wrong is None) and (wrong or "ok") in verdict
    assert unproven.exists() == (answering < gpus or not gpus)


def test_a_later_boot_that_is_well_takes_the_failure_away(tmp_path: Path) -> None:
    assert _boot(tmp_path, 2, 0).returncode == 1
    assert _boot(tmp_path, 2, 2).returncode == 0
    assert not (tmp_path / "lib" / "first-boot.failed").exists()
