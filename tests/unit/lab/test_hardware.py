"""Loading and unloading the simulated module, and what the kernel then shows."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gpunode.lab.hardware import hardware_digest, install_hardware
from gpunode.lab.hardware.image import HardwareInstallError
from gpunode.lab.hardware.simulated import fault, kmod, module
from gpunode.lab.hardware.simulated.machine import Machine, gpu_models

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    "command", [["modprobe", "overlay"], ["modprobe", "-a", "nvidia", "overlay"], ["modinfo", "--version"]]
)
def test_other_modules_go_to_the_real_kmod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    started: list[str] = []

    def execv(path: str, arguments: list[str]) -> None:
        started.extend([path, *arguments])
        sys.exit(0)

    monkeypatch.setattr("os.execv", execv)
    with pytest.raises(SystemExit):
        kmod.main(command, Machine(tmp_path))
    assert started == ["/usr/bin/kmod", *command]


def test_every_model_has_eight_places_and_a_flavour() -> None:
    for model in gpu_models().values():
        assert len(set(model.buses)) == 8 and model.modules and {*model.modules} <= {"open", "proprietary"}
    # What the module's state says is lost at a boot.
    assert module.STATE.startswith("/run/") and hardware_digest() == hardware_digest()


@pytest.mark.skipif(shutil.which("dpkg-divert") is None, reason="needs dpkg-divert")
def test_image_gets_wrappers_beside_kmod_and_an_enabled_unit(tmp_path: Path) -> None:
    with pytest.raises(HardwareInstallError):
        install_hardware(tmp_path)
    for folder in ("usr/bin", "usr/sbin", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    (tmp_path / "var/lib/dpkg/info/kmod.list").write_text("/usr/sbin/modprobe\n/usr/sbin/rmmod\n/usr/sbin/modinfo\n")
    kmod_program, modprobe = tmp_path / "usr/bin/kmod", tmp_path / "usr/sbin/modprobe"
    kmod_program.write_text("kmod")
    (tmp_path / "usr/bin/python3").touch()
    modprobe.symlink_to("../bin/kmod")
    for _ in range(2):
        install_hardware(tmp_path)
    assert kmod_program.read_text() == "kmod" and "SIMULATED" in modprobe.read_text()
    assert modprobe.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "usr/lib/gpunode-lab/simulated/gpus.json").exists()
    wanted = tmp_path / "etc/systemd/system/sysinit.target.wants/gpunode-lab-hardware.service"
    assert (tmp_path / str(wanted.readlink()).lstrip("/")).exists()
    assert "/usr/sbin/modprobe.kmod" in (tmp_path / "var/lib/dpkg/diversions").read_text()


def test_the_page_on_simulated_gpus_has_every_fault_and_every_product() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulated-gpus.md").read_text()
    names = {*fault.OF_ONE_GPU, *fault.OF_A_MOMENT, "hang"}
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert {word.strip("`,") for word in rows.split()} == names
    products = page.partition("Products (")[2].partition("\n\n")[0].replace("\n", " ")
    assert {word.strip(",.;") for word in products.split()} >= set(gpu_models())
