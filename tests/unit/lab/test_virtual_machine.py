"""The lab's virtual machine: what it is made of, and what keeps it from touching anything that is not its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpunode.lab import image as node_image
from gpunode.lab import nodes
from gpunode.lab.errors import LabError
from gpunode.lab.hardware.simulated import boundary, module
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.packages.built_driver import VERSIONS, built_driver_packages
from gpunode.lab.state import write_json
from gpunode.lab.vm import image, machine


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of all labs, here a temporary one."""
    monkeypatch.setattr("gpunode.lab.vm.machine.labs_folder", lambda: tmp_path)
    monkeypatch.setattr("gpunode.lab.vm.machine.lab_folder", lambda lab: tmp_path / lab)
    return tmp_path


@pytest.mark.pure
def test_a_process_id_that_another_program_has_got_is_not_the_virtual_machine_s(labs: Path) -> None:
    folder = labs / "a" / "vm"
    folder.mkdir(parents=True)
    (folder / "pid").write_text(f"{os.getpid()}\n")
    assert machine._process(folder) is None
    command = [sys.executable, "-c", "print(flush=True); input()", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as own:
        # Until it has begun, it is still called what this process is.
        assert own.stdout is not None and own.stdout.readline()
        (folder / "pid").write_text(f"{own.pid}\n")
        assert machine._process(folder) == own.pid
        own.communicate(b"\n")


@pytest.mark.pure
def test_to_remove_none_is_fine_and_leaves_a_lab_of_containers_alone(labs: Path) -> None:
    (labs / "a").mkdir()
    assert not machine.down("a")
    assert (labs / "a").is_dir()


@pytest.mark.pure
def test_a_lab_of_containers_gets_no_virtual_machine_beside_them(labs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpunode.lab.vm.machine._check_preconditions", lambda: None)
    monkeypatch.setattr("gpunode.lab.nodes.lab_folder", lambda lab: labs / lab)
    node = {"name": "gpu-1", "container": "c", "address": "10.0.0.2", "gpu": "t4", "gpus": 1}
    write_json(labs / "a" / "nodes.json", {"nodes": [node]})
    with pytest.raises(LabError, match="has nodes already"):
        machine.up("a")
    with pytest.raises(LabError, match="no virtual machine"):
        machine.machine("a")


@pytest.mark.pure
def test_a_virtual_machine_gets_no_containers_beside_it(labs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpunode.lab.nodes.check_preconditions", lambda: None)
    monkeypatch.setattr("gpunode.lab.nodes._check_owner", lambda lab: None)
    monkeypatch.setattr("gpunode.lab.nodes._containers", lambda lab: pytest.fail("it goes on"))
    monkeypatch.setattr("gpunode.lab.nodes.labs_folder", lambda: labs)
    monkeypatch.setattr("gpunode.lab.nodes.lab_folder", lambda lab: labs / lab)
    (labs / "a" / "vm").mkdir(parents=True)
    with pytest.raises(LabError, match="is a virtual machine"):
        nodes.up("a", 1, "t4", 1)


@pytest.mark.pure
def test_the_disk_is_another_one_when_any_file_of_it_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gpunode.lab.vm.image.base_digest", lambda: "base")
    before = image._digest()
    assert image._digest() == before
    for path in image._FILES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr("gpunode.lab.vm.image._FILES", tmp_path)
    assert image._digest() == before
    (tmp_path / "loader.cfg").write_text("another")
    assert image._digest() != before


@pytest.mark.pure
def test_the_three_newest_kernels_are_taken_by_number_and_fewer_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [f"linux-headers-6.1.0-{number}-cloud-amd64 - Header files" for number in (100, 47, 9, 50)]
    monkeypatch.setattr("gpunode.lab.vm.image.within", lambda *_: "\n".join(listed))
    assert image._kernels(Path("/")) == tuple(f"6.1.0-{number}-cloud-amd64" for number in (47, 50, 100))
    listed[2:] = []
    with pytest.raises(LabError, match="2 kernels for clouds"):
        image._kernels(Path("/"))


@pytest.mark.pure
@pytest.mark.parametrize(
    ("name", "title", "license_name"),
    [
        ("nvidia-kernel-open-dkms", "Open Kernel Module for x86_64", "Dual MIT/GPL"),
        ("nvidia-kernel-dkms", "x86_64 Kernel Module", "NVIDIA"),
    ],
)
def test_a_built_driver_is_a_source_for_dkms_that_says_simulated(name: str, title: str, license_name: str) -> None:
    for version in VERSIONS:
        (deb,) = [deb for deb in built_driver_packages() if (deb.name, deb.version) == (name, f"{version}-1")]
        files = {file.path.removeprefix(f"usr/src/nvidia-{version}/"): file.content.decode() for file in deb.files}
        assert set(files) == {"nvidia.c", "nvidia-uvm.c", "Kbuild", "settings.h", "dkms.conf"}
        assert (
            f'LAB_VERSION "{version}"' in files["settings.h"] and f'LAB_LICENSE "{license_name}"' in files["settings.h"]
        )
        assert title in files["settings.h"] and f'PACKAGE_VERSION="{version}"' in files["dkms.conf"]
        assert all("SIMULATED" in files[source] for source in ("nvidia.c", "nvidia-uvm.c"))
        assert "dkms" in deb.depends and "SIMULATED" in deb.control()


@pytest.mark.simulated
def test_a_loaded_module_of_its_own_kernel_is_taken_for_the_lab_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Machine(tmp_path)
    node.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "h100-80gb", "count": 1})
    loaded = node.path("/sys/module/nvidia/version")
    loaded.parent.mkdir(parents=True)
    loaded.write_text("580.95.05\n")
    assert module.real_driver_loaded(node)
    monkeypatch.setattr(boundary, "Machine", lambda: node)
    monkeypatch.setattr(boundary, "_mounted", lambda *_: True)
    assert boundary.pci_alone() == 0
    assert not module.real_driver_loaded(node)
    assert node.path("/run/gpunode-lab/pci-devices/0000:1a:00.0/vendor").read_text() == "0x10de\n"


@pytest.mark.parametrize("places", [image._PLACES, node_image._PLACES], ids=["virtual machine", "node"])
def test_what_a_unit_of_the_lab_s_own_starts_is_there_with_it(places: tuple[tuple[Path | str, str, int], ...]) -> None:
    folder = Path(node_image.__file__).parent / "node"
    there = {f"/{target}" for _, target, _ in places}
    units = [folder / Path(source).name for source, target, _ in places if target.endswith(".service")]
    assert units
    for unit in units:
        words = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[0].split()
        assert {word for word in words if word.startswith("/usr/lib/gpunode")} <= there
