"""Parsers of what probes print: right answers, and garbage that must not pass for one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api.exceptions import FactProcessError

from gpunode.base import probe_output
from gpunode.base.reading import ParseError
from gpunode.base.versions import program_version
from gpunode.components.containerd.state import parse_containerd
from gpunode.components.cuda import parse_cuda
from gpunode.components.driver import parse_driver
from gpunode.facts.machine import Machine as MachineFact
from gpunode.facts.node import PARTS, Node
from gpunode.node import Node as NodeReading
from gpunode.packages.deb import parse_apt_repository
from gpunode.packages.installed_packages import InstalledPackages, satisfies
from gpunode.packages.keyring import parse_keyrings
from gpunode.system.gpu import parse_gpus
from gpunode.system.operating_system import parse_operating_system
from gpunode.system.pci import parse_pci_gpus
from tests.support.readings import encoded
from tests.support.smi_rows import row

pytestmark = pytest.mark.pure

OPEN = "proc=NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)"
PROPRIETARY = "proc=NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"


def test_debian_and_its_kernel_are_read() -> None:
    system = parse_operating_system(
        ["os.ID=debian", 'os.VERSION_ID="12"', "os.VERSION_CODENAME=bookworm", "architecture=x86_64", "kernel=6.1.0-31"]
    )
    assert (system.id, system.version_id, system.tegra) == ("debian", "12", False)


def test_a_system_like_others_names_them_and_a_tegra_board_says_so() -> None:
    system = parse_operating_system(
        ["os.ID=pop", 'os.ID_LIKE="ubuntu debian"', "architecture=aarch64", "kernel=5.15.0", "tegra=yes"]
    )
    assert (system.id_like, system.tegra) == (("ubuntu", "debian"), True)


def test_a_gpu_on_the_bus_gets_name_and_generation_from_the_table() -> None:
    (gpu,) = parse_pci_gpus(["gpu=0000:1A:00.0 0x10de 0x2330"]).gpus
    assert (gpu.address, gpu.device_id, gpu.generation) == ("0000:1a:00.0", "2330", "hopper")
    assert gpu.name is not None and "H100" in gpu.name


def test_a_gpu_that_the_table_does_not_know_is_still_a_gpu() -> None:
    (gpu,) = parse_pci_gpus(["gpu=0000:1a:00.0 0x10de 0xfffe"]).gpus
    assert (gpu.device_id, gpu.name, gpu.generation) == ("FFFE", None, None)


@pytest.mark.parametrize("line, flavour", [(OPEN, "open"), (PROPRIETARY, "proprietary")])
def test_the_loaded_flavour_is_told_by_the_kernel_s_own_line(line: str, flavour: str) -> None:
    driver = parse_driver([line])
    assert (driver.loaded_flavour, driver.loaded_version) == (flavour, "580.95.05")


def test_an_upgrade_under_a_loaded_module_is_a_reboot_pending() -> None:
    driver = parse_driver(
        ["loaded=570.172.08", "modinfo=version:        580.95.05", "modinfo=license:        Dual MIT/GPL"]
    )
    assert driver.reboot_pending
    assert driver.module_flavour == "open"
    assert driver.branch == "570"


def test_a_loaded_uvm_module_is_told_from_none() -> None:
    assert parse_driver([OPEN, "uvm=loaded"]).uvm_loaded
    assert not parse_driver([OPEN]).uvm_loaded
    assert parse_driver([OPEN, "uvm=loaded", "uvm_device=missing"]).uvm_without_device
    assert not parse_driver([OPEN, "uvm=loaded"]).uvm_without_device


def test_the_library_s_version_is_that_of_the_file_behind_the_link() -> None:
    driver = parse_driver(["library=/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"])
    assert driver.library_version == "580.95.05"


def test_nvidia_smi_rows_become_gpus() -> None:
    gpus = parse_gpus(["gpu.rc=0", row()])
    assert gpus.status == "ok"
    assert (gpus.gpus[0].memory_mib, gpus.gpus[0].pci_address, gpus.gpus[0].mig_mode.current) == (
        81559, "0000:1a:00.0", "Disabled",
    )  # fmt: skip


@pytest.mark.parametrize(
    "code, status",
    [
        (9, "no driver"),
        (12, "no library"),
        (15, "lost"),
        (18, "mismatch"),
        (124, "hangs"),
        (137, "hangs"),
        (255, "error"),
    ],
)
def test_each_way_in_which_nvidia_smi_fails_has_its_name(code: int, status: str) -> None:
    gpus = parse_gpus([f"gpu.rc={code}", "gpu=Failed to initialize NVML"])
    assert (gpus.status, gpus.gpus, gpus.message) == (status, (), "Failed to initialize NVML")


def test_a_row_with_too_few_columns_is_no_gpu() -> None:
    with pytest.raises(ParseError, match="columns"):
        parse_gpus(["gpu.rc=0", "gpu=0, GPU-1"])


def test_nvcc_tells_the_patch_release() -> None:
    cuda = parse_cuda(
        [
            "toolkit=/usr/local/cuda-12.9",
            "default=/usr/local/cuda-12.9",
            "nvcc=Cuda compilation tools, release 12.9, V12.9.86",
        ]
    )
    assert (cuda.versions, cuda.default_version, cuda.nvcc_version) == (("12.9",), "12.9", "12.9.86")


MERGED = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
SystemdCgroup = true
"""
CONTAINERD = [
    "ActiveState=active", "UnitFileState=enabled", "started=Tue 2023-11-14 22:13:20.250000 UTC",
    "written=1700000000.500000", "binary=/usr/bin/containerd", "config=/etc/containerd/config.toml",
    "version=containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1",
    f"merged={encoded(MERGED)}", f"text={encoded('version = 2')}",
    "plugin=io.containerd.grpc.v1  cri  linux/amd64  ok", "shims=0",
]  # fmt: skip


def test_containerd_is_read_as_the_running_unit_has_it() -> None:
    containerd = parse_containerd(CONTAINERD)
    assert (containerd.version, containerd.default_runtime, containerd.cri_plugin) == ("1.6.20", "nvidia", "ok")
    nvidia = containerd.runtime("nvidia")
    assert nvidia is not None and nvidia.systemd_cgroup


def test_a_file_written_in_the_second_of_the_start_makes_the_daemon_stale() -> None:
    assert parse_containerd(CONTAINERD).stale
    assert not parse_containerd([line.replace("20.250000", "20.750000") for line in CONTAINERD]).stale


def test_the_worse_part_of_the_cri_plugin_counts() -> None:
    lines = [*CONTAINERD, "plugin=io.containerd.cri.v1  runtime  linux/amd64  error"]
    assert parse_containerd(lines).cri_plugin == "error"


def test_registry_credentials_in_the_file_are_not_in_a_fact_s_json() -> None:
    lines = [line for line in CONTAINERD if not line.startswith("text=")] + [f"text={encoded('password = 123')}"]
    assert "password" not in json.dumps(parse_containerd(lines).to_json())
    assert "123" not in repr(parse_containerd(lines))


@pytest.mark.parametrize(
    "deb, rule, fits",
    [
        ("580.95.05-1", "580.95.05", True),
        ("580.95.05-1", "580", True),
        ("580.95.05-1", "58", False),
        ("580.195.05-1", "580.19", False),
        ("1:1.6.20~ds1-1+deb12u1", "1.6.20", True),
        ("1.17.8-1", "1.17.9", False),
        ("1.17.8-1", None, True),
        ("1.18.0~rc.1-1", "1.18.0", False),
        ("1.18.0~rc.1-1", "1.18.0-rc.1", True),
        ("1.18.0-1", "1.18.0-rc.1", False),
        ("rubbish", "1", False),
    ],
)
def test_a_package_fits_a_rule_by_its_upstream_version(deb: str, rule: str | None, fits: bool) -> None:
    assert satisfies(deb, rule) is fits


def test_a_line_that_is_no_fingerprint_is_refused() -> None:
    with pytest.raises(ParseError, match="fingerprint"):
        parse_apt_repository(["fingerprint=DEADBEEF"])


ANY = {"toolkit": None, "base": None}


@pytest.mark.parametrize(
    "installed, wanted, asked",
    [
        ({}, ANY, ANY),
        ({"toolkit": "1.17.8-1", "base": "1.17.8-1"}, ANY, ANY),
        ({"toolkit": "1.17.8-1", "base": "1.17.8-2"}, ANY, ANY),
        ({"toolkit": "1.17.7-1", "base": "1.17.8-1"}, ANY, dict.fromkeys(ANY, "1.17.8")),
        ({"toolkit": "1.17.10-1", "base": "1.17.9-1"}, ANY, dict.fromkeys(ANY, "1.17.10")),
        ({"toolkit": "1.17.8-1"}, ANY, dict.fromkeys(ANY, "1.17.8")),
        (
            {"toolkit": "1.17.8-1", "base": "1.18.0-1"},
            dict.fromkeys(ANY, "1.17.8"),
            dict.fromkeys(ANY, "1.17.8"),
        ),
    ],
)
def test_packages_that_belong_together_are_asked_for_at_the_newest_version_that_is_there(
    installed: dict[str, str], wanted: dict[str, str | None], asked: dict[str, str | None]
) -> None:
    present = InstalledPackages(tuple(sorted({**installed, "another": "99-1"}.items())))
    assert present.together(wanted) == asked


def test_a_keyring_s_permissions_are_read_with_its_keys() -> None:
    keyrings = parse_keyrings(["permissions=cuda 644 root:root", f"key=cuda {'a' * 40}", "permissions=x 664 me:us"])
    assert keyrings.of("cuda") == ("A" * 40,)
    assert [keyrings.permissions_of(name) for name in ("cuda", "x", "toolkit")] == ["644 root:root", "664 me:us", None]
    assert parse_apt_repository(["permissions=666 root:root"]).permissions == "666 root:root"


@pytest.mark.parametrize(
    "printed, version",
    [
        ("Kubernetes v1.29.3", "1.29.3"),
        ("Docker version 20.10.24+dfsg1, build 297e128", "20.10.24"),
        ("garbage", None),
        (None, None),
    ],
)
def test_a_program_s_version_is_the_first_dotted_number_that_it_prints(
    printed: str | None, version: str | None
) -> None:
    assert program_version(printed) == version


def test_a_truncated_answer_is_not_taken_for_a_whole_one() -> None:
    with pytest.raises(ParseError, match="truncated"):
        probe_output.checked(["os.ID=debian"])


@pytest.mark.parametrize("output", [[], [""], ["rubbish"], ["rubbish", probe_output.END], [probe_output.END]])
def test_garbage_in_place_of_a_node_is_a_fact_process_error(output: list[str]) -> None:
    with pytest.raises(FactProcessError):
        Node().process(output)


@given(lines=st.lists(st.text(max_size=60), max_size=12), name=st.sampled_from(sorted(PARTS)))
def test_no_parser_raises_anything_but_fact_process_error(lines: list[str], name: str) -> None:
    fact = PARTS[name]()
    with contextlib.suppress(FactProcessError):
        fact.process([*lines, probe_output.END])


def test_a_node_s_reading_can_be_printed_as_json() -> None:
    lines = []
    minimal: dict[str, list[str]] = {
        "operating_system": ["os.ID=debian", "architecture=x86_64", "kernel=6.1"], "gpus": ["absent=yes"],
        "boot": ["running=6.1"], "mig": ["absent=yes"],
    }  # fmt: skip
    for name in PARTS:
        lines += [f"{probe_output.SECTION}{name}", *minimal.get(name, [])]
    reading = Node().process([*lines, "", probe_output.END])
    assert isinstance(reading, NodeReading)
    assert json.loads(json.dumps(reading.to_json()))["operating_system"]["id"] == "debian"


def test_every_fact_prints_its_closing_line_and_exits_zero(run_shell: Callable[[str], tuple[int, list[str]]]) -> None:
    for fact in PARTS.values():
        code, lines = run_shell(fact().command())
        assert code == 0, fact
        assert lines[-1] == probe_output.END, fact
        fact().process(lines)


@pytest.mark.real
def test_whoever_is_not_root_gets_no_reading_of_a_node() -> None:
    """A node hides most of itself from others: what they read would be judged as a bare one."""
    fact = MachineFact()
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()
    done = subprocess.run(
        ["sh", "-c", fact.command()], capture_output=True, text=True, timeout=60, check=True, user=nobody, cwd="/"
    )
    with pytest.raises(FactProcessError, match=rf"read as user {nobody}, not as root.*Set `_sudo = True`") as refused:
        fact.process(done.stdout.splitlines())
    assert "\n" not in str(refused.value)


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads as root")
def test_root_is_not_told_of(run_shell: Callable[[str], tuple[int, list[str]]]) -> None:
    assert "user=0" not in "".join(run_shell(MachineFact().command())[1])
    assert MachineFact().process(run_shell(MachineFact().command())[1]).operating_system.architecture
