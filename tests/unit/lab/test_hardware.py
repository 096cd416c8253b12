"""Loading and unloading the simulated module, and what the kernel then shows."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gpunode.lab.hardware import hardware_digest, install_hardware
from gpunode.lab.hardware.image import HardwareInstallError
from gpunode.lab.hardware.simulated import fault, kmod, module
from gpunode.lab.hardware.simulated.boundary import publish_pci
from gpunode.lab.hardware.simulated.machine import Machine, gpu_models
from tests.support.installed_driver import install

pytestmark = pytest.mark.simulated


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "h100-80gb", "count": 2})
    return machine


def test_module_that_is_not_on_disk_is_not_found(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert kmod.main(["modprobe", "nvidia"], machine) == 1
    expected = f"modprobe: FATAL: Module nvidia not found in directory /lib/modules/{machine.kernel}\n"
    assert capsys.readouterr().err == expected
    assert kmod.main(["modinfo", "-F", "version", "nvidia"], machine) == 1
    assert capsys.readouterr().err == "modinfo: ERROR: Module nvidia not found.\n"


def test_load_shows_version_devices_and_flavour(machine: Machine) -> None:
    install(machine, "580.95.05")
    assert kmod.main(["modprobe", "nvidia"], machine) == 0
    assert machine.path("/sys/module/nvidia/version").read_text() == "580.95.05\n"
    proc = machine.path("/proc/driver/nvidia/version").read_text()
    assert proc.startswith("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (")
    assert sorted(path.name for path in machine.path("/dev").iterdir()) == ["nvidia0", "nvidia1", "nvidiactl"]


def test_proprietary_module_reads_differently(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    install(machine, "580.95.05", "proprietary")
    assert kmod.main(["modprobe", "nvidia"], machine) == 0
    proc = machine.path("/proc/driver/nvidia/version").read_text()
    assert proc.startswith("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ")
    assert "Open" not in proc
    assert kmod.main(["modinfo", "-F", "license", "nvidia"], machine) == 0
    assert capsys.readouterr().out == "NVIDIA\n"


@pytest.mark.parametrize(
    ("gpu", "flavour", "version", "loads"),
    [
        ("v100", "open", "580.95.05", False),
        ("v100", "proprietary", "580.95.05", True),
        ("v100", "proprietary", "590.48.01", False),
        ("b200", "proprietary", "580.95.05", False),
        ("b200", "open", "580.95.05", True),
    ],
)
def test_module_loads_only_for_a_gpu_it_drives(
    machine: Machine, capsys: pytest.CaptureFixture[str], gpu: str, flavour: str, version: str, loads: bool
) -> None:
    machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": gpu, "count": 1})
    install(machine, version, flavour)
    assert (kmod.main(["modprobe", "nvidia"], machine) == 0) is loads
    expected = "" if loads else "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    assert capsys.readouterr().err == expected


def test_a_module_that_does_not_load_says_so_as_the_kernel_does(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    install(machine, "595.45.04")
    path = machine.path(f"/lib/modules/{machine.kernel}/updates/dkms/nvidia.ko")
    path.write_text(path.read_text() + "loads=no\n")
    assert kmod.main(["modprobe", "nvidia"], machine) == 1
    assert capsys.readouterr().err == "modprobe: ERROR: could not insert 'nvidia': Invalid argument\n"


@pytest.mark.parametrize(("gpu", "switches"), [("hgx-h100", 4), ("h100-80gb", 0)])
def test_the_nvswitches_of_a_board_are_on_the_pci_bus(machine: Machine, gpu: str, switches: int) -> None:
    machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": gpu, "count": 2})
    mounts = machine.path("/proc/self/mountinfo")
    mounts.parent.mkdir(parents=True, exist_ok=True)
    mounts.write_text("1 1 0:1 / /sys/bus/pci/devices rw\n")
    publish_pci(machine, machine.gpus())
    devices = machine.path("/run/gpunode-lab/pci-devices").iterdir()
    classes = sorted((device / "class").read_text().strip() for device in devices)
    assert classes == ["0x030200"] * 2 + ["0x068000"] * switches


def test_no_gpu_is_no_such_device(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "h100-80gb", "count": 0})
    install(machine, "580.95.05")
    assert kmod.main(["modprobe", "nvidia"], machine) == 1
    assert capsys.readouterr().err == "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    assert not machine.path("/sys/module/nvidia").exists()


def test_module_in_use_stays(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    install(machine, "580.95.05")
    assert kmod.main(["modprobe", "nvidia-uvm"], machine) == 0
    assert kmod.main(["rmmod", "nvidia"], machine) == 1
    assert capsys.readouterr().err == "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm\n"
    assert kmod.main(["modprobe", "-r", "nvidia"], machine) == 1
    assert capsys.readouterr().err == "modprobe: FATAL: Module nvidia is in use by: nvidia_uvm\n"
    assert kmod.main(["rmmod", "nvidia_uvm", "nvidia"], machine) == 0
    assert not machine.path("/sys/module/nvidia").exists()
    assert not list(machine.path("/dev").iterdir())
    assert kmod.main(["rmmod", "nvidia"], machine) == 1
    assert capsys.readouterr().err == "rmmod: ERROR: Module nvidia is not currently loaded\n"


def test_blacklist_stops_only_those_who_ask_for_it(machine: Machine) -> None:
    install(machine, "580.95.05")
    folder = machine.path("/etc/modprobe.d")
    folder.mkdir(parents=True)
    (folder / "gpu.conf").write_text("# no driver here\nblacklist nvidia\n")
    assert kmod.main(["modprobe", "-b", "nvidia"], machine) == 0
    assert module.loaded_version(machine) is None
    assert kmod.main(["modprobe", "nvidia"], machine) == 0
    assert module.loaded_version(machine) == "580.95.05"


def test_other_modules_go_to_the_real_kmod(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def execv(path: str, arguments: list[str]) -> None:
        started.append([path, *arguments])
        sys.exit(0)

    monkeypatch.setattr("os.execv", execv)
    for command in (["modprobe", "overlay"], ["modprobe", "-a", "nvidia", "overlay"], ["modinfo", "--version"]):
        with pytest.raises(SystemExit):
            kmod.main(command, machine)
    assert started == [
        ["/usr/bin/kmod", "modprobe", "overlay"],
        ["/usr/bin/kmod", "modprobe", "-a", "nvidia", "overlay"],
        ["/usr/bin/kmod", "modinfo", "--version"],
    ]


def test_pci_devices_follow_the_hardware_file(machine: Machine) -> None:
    machine.path("/proc/self").mkdir(parents=True)
    machine.path("/proc/self/mountinfo").write_text("")
    publish_pci(machine, machine.gpus())
    folder = machine.path("/run/gpunode-lab/pci-devices")
    assert sorted(path.name for path in folder.iterdir()) == ["0000:1a:00.0", "0000:40:00.0"]
    device = folder / "0000:1a:00.0"
    assert [(device / name).read_text() for name in ("vendor", "device", "class")] == [
        "0x10de\n",
        "0x2330\n",
        "0x030200\n",
    ]
    machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "t4", "count": 1})
    publish_pci(machine, machine.gpus())
    assert sorted(path.name for path in folder.iterdir()) == ["0000:3b:00.0"]


def test_faults_are_set_checked_and_cleared(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert fault.main(["set", "lost_gpu", "1"], machine) == 0
    assert fault.main(["set", "hang"], machine) == 0
    assert machine.faults == {"lost_gpu": 1, "hang": True}
    assert fault.main(["clear", "hang"], machine) == 0
    assert machine.faults == {"lost_gpu": 1}
    assert fault.main(["set", "lost_gpu", "2"], machine) == 64
    assert "allowed: the index of one of this node's 2 GPU(s)" in capsys.readouterr().err
    assert fault.main(["set", "fire"], machine) == 64
    assert fault.main(["clear"], machine) == 0
    assert machine.faults == {}


def test_what_modprobe_d_names_after_a_module_is_loaded_after_it(machine: Machine) -> None:
    install(machine, "580.95.05")
    kmod.insert(machine, "nvidia")
    assert module.loaded_modules(machine) == ("nvidia",)
    module.unload(machine, "nvidia")
    folder = machine.path("/etc/modprobe.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ours.conf").write_text(
        "softdep nvidia post: nvidia-uvm nvidia_not_there\n# softdep nvidia post: nvidia-drm\n"
    )
    kmod.insert(machine, "nvidia")
    assert set(module.loaded_modules(machine)) == {"nvidia", "nvidia_uvm"}


def test_a_reboot_unloads_but_the_file_stays(machine: Machine) -> None:
    install(machine, "580.95.05")
    module.load(machine, "nvidia")
    assert module.STATE.startswith("/run/")
    assert module.module_file(machine) is not None


def test_every_model_has_eight_places_and_a_flavour() -> None:
    models = gpu_models()
    assert set(models) >= {"h100-80gb", "a100-40gb", "a100-80gb", "h200", "t4", "v100", "b200", "l40s"}
    for model in models.values():
        assert len(set(model.buses)) == 8
        assert set(model.modules) <= {"open", "proprietary"}
        assert model.modules


def test_digest_is_stable() -> None:
    assert hardware_digest() == hardware_digest()
    assert len(hardware_digest()) == 64


@pytest.mark.skipif(shutil.which("dpkg-divert") is None, reason="needs dpkg-divert")
def test_image_gets_wrappers_beside_kmod_and_an_enabled_unit(tmp_path: Path) -> None:
    for folder in ("usr/bin", "usr/sbin", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    (tmp_path / "var/lib/dpkg/info/kmod.list").write_text("/usr/sbin/modprobe\n/usr/sbin/rmmod\n/usr/sbin/modinfo\n")
    kmod_program = tmp_path / "usr/bin/kmod"
    kmod_program.write_text("kmod")
    (tmp_path / "usr/bin/python3").touch()
    (tmp_path / "usr/sbin/modprobe").symlink_to("../bin/kmod")
    for _ in range(2):
        install_hardware(tmp_path)
    assert kmod_program.read_text() == "kmod"
    modprobe = tmp_path / "usr/sbin/modprobe"
    assert "SIMULATED" in modprobe.read_text()
    assert modprobe.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "usr/lib/gpunode-lab/simulated/gpus.json").exists()
    wanted = tmp_path / "etc/systemd/system/sysinit.target.wants/gpunode-lab-hardware.service"
    assert (tmp_path / str(wanted.readlink()).lstrip("/")).exists()
    assert "/usr/sbin/modprobe.kmod" in (tmp_path / "var/lib/dpkg/diversions").read_text()


def test_image_without_kmod_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(HardwareInstallError, match="install the packages kmod and python3"):
        install_hardware(tmp_path)


def test_the_page_on_simulated_gpus_has_every_fault_and_every_product() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulated-gpus.md").read_text()
    names = {*fault.OF_ONE_GPU, *fault.OF_A_MOMENT, "hang"}
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert {word.strip("`,") for word in rows.split()} == names
    products = page.partition("Products (")[2].partition("\n\n")[0].replace("\n", " ")
    assert {word.strip(",.;") for word in products.split()} >= set(gpu_models())
