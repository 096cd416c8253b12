"""NVIDIA's .run files: names by architecture, options by branch, and which nodes are refused before a fetch."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.components import runfile
from gpunode.components.cuda import parse_cuda
from gpunode.components.driver import parse_driver
from gpunode.facts.driver import Driver as DriverFact
from gpunode.lab.packages.nvidia_installer import parsed
from gpunode.lab.packages.runfile import RUNFILE_VERSIONS
from gpunode.node.preflight import Refusal, refusals
from gpunode.settings import SettingsError, settings_from
from gpunode.system.boot import Kernel
from gpunode.system.disk import Disk
from gpunode.system.pci import PciGpus
from tests.support.messages import unnamed
from tests.support.preflight import DEBIAN, H100, OPEN_550, UBUNTU, V100, machine
from tests.support.runfile import ASKED, SHA, TOOLS, toolkits_of

pytestmark = pytest.mark.pure

RUNFILE = replace(OPEN_550, runfile=True)
PACKAGES = replace(OPEN_550, packages=(("nvidia-open", "550.54.15-1"),))


def _refused(more: dict[str, Any] | None = None, **node: Any) -> tuple[Refusal, ...]:
    settings = settings_from({"driver": {**ASKED, **(more or {})}, "cuda": {"enabled": False}})
    return refusals(settings, machine(**{"boot": TOOLS, **node}))


def test_the_driver_s_file_is_nvidia_s_own_for_the_node_s_architecture() -> None:
    settings = settings_from({"driver": ASKED})
    found = runfile.driver_runfile(settings, DEBIAN)
    assert found.url == "https://us.download.nvidia.com/tesla/580.95.05/NVIDIA-Linux-x86_64-580.95.05.run"
    assert (found.path, found.sha256) == (f"{runfile.FOLDER}/NVIDIA-Linux-x86_64-580.95.05.run", SHA)
    arm = runfile.driver_runfile(settings, replace(UBUNTU, architecture="aarch64"))
    assert arm.url == "https://us.download.nvidia.com/tesla/580.95.05/NVIDIA-Linux-aarch64-580.95.05.run"
    assert arm.name == "NVIDIA-Linux-aarch64-580.95.05.run"


def test_cuda_s_file_has_its_driver_in_its_name_and_sbsa_on_servers_of_arm() -> None:
    asked = {"source": "runfile", "version": "12.9", "release": "12.9.1", "runfile_sha256": SHA}
    settings = settings_from({"cuda": asked})
    found = runfile.cuda_runfile(settings, DEBIAN)
    base = "https://developer.download.nvidia.com/compute/cuda/12.9.1/local_installers"
    assert found.url == f"{base}/cuda_12.9.1_575.57.08_linux.run"
    arm = runfile.cuda_runfile(settings, replace(UBUNTU, architecture="aarch64"))
    assert (arm.url, arm.name) == (f"{base}/{arm.name}", "cuda_12.9.1_575.57.08_linux_sbsa.run")


def test_from_13_4_on_cuda_s_file_has_no_driver_in_its_name() -> None:
    asked = {"source": "runfile", "version": "13.4", "release": "13.4.1", "runfile_sha256": SHA}
    found = runfile.cuda_runfile(settings_from({"cuda": asked}), DEBIAN)
    assert found.name == "cuda_13.4.1_linux.run"
    assert found.url.endswith("/13.4.1/local_installers/cuda_13.4.1_linux.run")
    mirror = {**asked, "runfile_url": "http://mirror.example.org/{release}/{driver}.run"}
    assert runfile.cuda_runfile(settings_from({"cuda": mirror}), DEBIAN).url.startswith(
        "http://mirror.example.org/13.4.1/"
    )


def test_a_mirror_may_be_named_with_placeholders() -> None:
    mirror = {**ASKED, "runfile_url": "http://mirror.example.org/{architecture}/{version}.run"}
    found = runfile.driver_runfile(settings_from({"driver": mirror}), DEBIAN)
    assert found.url == "http://mirror.example.org/x86_64/580.95.05.run"
    with pytest.raises(SettingsError, match=r"may hold only the placeholders \{version\}, \{architecture\}"):
        settings_from({"driver": {**ASKED, "runfile_url": "http://mirror.example.org/{distribution}"}})


def test_every_architecture_of_a_supported_distribution_has_a_driver_and_a_cuda_file() -> None:
    known = {name for row in tables.distributions() for name in row.architectures}
    assert known == set(tables.driver_runfile().architectures) == set(tables.cuda_runfile().platforms)


@pytest.mark.parametrize(
    "version, flavour, has, lacks",
    [
        ("580.95.05", "open", ["--kernel-module-type=open"], ["--kernel-module-build-directory=kernel-open"]),
        ("560.35.05", "proprietary", ["--kernel-module-type=proprietary"], []),
        ("550.54.15", "open", ["--kernel-module-build-directory=kernel-open"], ["--kernel-module-type=open"]),
        ("550.54.15", "proprietary", ["--kernel-module-build-directory=kernel"], []),
        ("550.40.07", "open", ["--skip-module-load", "--no-dkms"], []),
        ("545.29.06", "open", ["--allow-installation-with-running-driver"], ["--skip-module-load"]),
        ("535.104.05", "open", ["--no-dkms"], ["--skip-module-load", "--allow-installation-with-running-driver"]),
        ("515.105.01", "open", [], ["--no-dkms", "--skip-module-load"]),
        ("470.82.01", "proprietary", [], ["--skip-module-load", "--kernel-module-build-directory=kernel"]),
    ],
)
def test_an_installer_is_told_only_what_its_version_knows(
    version: str, flavour: str, has: list[str], lacks: list[str]
) -> None:
    found = runfile.install_arguments(version, flavour, dkms=False)
    assert set(has) <= set(found) and not set(lacks) & set(found)
    assert found[0] == "--silent" and "--dkms" not in found
    with_dkms = runfile.install_arguments(version, flavour, dkms=True)
    assert "--dkms" in with_dkms and "--no-dkms" not in with_dkms


@pytest.mark.parametrize("version", [*RUNFILE_VERSIONS, "515.105.01", "470.82.01", "545.29.06", "550.40.07"])
@pytest.mark.parametrize("dkms", [True, False])
def test_the_installer_of_each_version_knows_all_that_it_is_told(version: str, dkms: bool) -> None:
    for flavour in ("open", "proprietary"):
        told = list(runfile.install_arguments(version, flavour, dkms))
        assert parsed(told, version), told
    assert parsed([*runfile.uninstall_arguments(version)], version)


def test_the_way_back_is_the_installed_driver_s_own_version_and_module() -> None:
    found = runfile.way_back(replace(RUNFILE, dkms=True))
    assert found["before_version"] == "550.54.15"
    assert "--kernel-module-build-directory=kernel-open --skip-module-load" in found["before_install"]
    assert found["before_install"].endswith("--dkms")
    assert runfile.way_back(OPEN_550)["before_version"] == "", "packages put themselves back"


def test_uninstalling_leaves_the_loaded_module_to_the_next_boot() -> None:
    assert runfile.uninstall_arguments("580.95.05") == ("--silent", "--skip-module-unload")
    assert runfile.uninstall_arguments("460.32.03") == ("--silent",)


@pytest.mark.parametrize(
    "data, key, says",
    [
        ({"driver": {"source": "runfile", "runfile_sha256": SHA}}, "driver.version", "each version is a file"),
        ({"driver": {"source": "runfile", "version": "580.95.05"}}, "driver.runfile_sha256", "is needed"),
        ({"driver": {**ASKED, "runfile_sha256": "abc"}}, "driver.runfile_sha256", "64 hexadecimal digits"),
        ({"driver": {**ASKED, "runfile_sha256": SHA.upper()}}, "driver.runfile_sha256", "lower case"),
        ({"cuda": {"source": "runfile", "runfile_sha256": SHA}}, "cuda.release", "12.9.1, 12.9.0"),
        ({"cuda": {"source": "runfile", "release": "12.9.1"}}, "cuda.runfile_sha256", "is needed"),
        ({"cuda": {"version": "12.8", "release": "12.9.1"}}, "cuda.release", "is not of cuda.version '12.8'"),
        ({"cuda": {"version": "12.9", "release": "12.9.7"}}, "cuda.release", "no CUDA release"),
        ({"cuda": {"version": "99.1", "source": "runfile"}}, "cuda.version", "set cuda.source = 'cuda-repository'"),
    ],
)
def test_a_runfile_without_exact_version_or_checksum_is_refused_before_any_connection(
    data: dict[str, Any], key: str, says: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_from(data)
    (problem,) = refused.value.problems
    assert problem.key == key and says in str(problem)


def test_a_bare_machine_with_compiler_make_and_dkms_is_accepted() -> None:
    assert _refused() == ()
    arm = replace(UBUNTU, architecture="aarch64")
    assert _refused(system=arm) == ()


def test_packages_over_a_runfile_are_refused_unless_a_migration_is_asked_for() -> None:
    data = {"source": "cuda-repository", "version": None, "branch": "550"}
    (refusal,) = _refused(data, driver=RUNFILE)
    assert ".run installer" in refusal.reason and "driver.migrate = True" in refusal.remedy
    assert _refused({**data, "migrate": True}, driver=RUNFILE) == ()
    assert _refused({"source": "present", "version": None}, driver=RUNFILE) == ()


def test_a_runfile_over_packages_is_refused_unless_a_migration_is_asked_for() -> None:
    (refusal,) = _refused({"version": "550.54.15"}, driver=PACKAGES)
    assert "nvidia-open" in refusal.reason and "driver.migrate = True" in refusal.remedy
    assert "do not mix" in refusal.source
    assert _refused({"version": "550.54.15", "migrate": True}, driver=PACKAGES) == ()
    assert _refused({"version": "550.54.15"}, driver=RUNFILE) == ()


def test_where_both_are_on_a_node_the_packages_go_first() -> None:
    both = replace(RUNFILE, packages=PACKAGES.packages)
    data = {"source": "cuda-repository", "version": None, "branch": "550", "migrate": True}
    (refusal,) = _refused(data, driver=both)
    assert "in pieces" in refusal.reason and "driver.source = 'runfile' first" in refusal.remedy
    assert _refused({"version": "550.54.15", "migrate": True}, driver=both) == ()


def test_another_branch_by_runfile_needs_the_same_setting_as_by_packages() -> None:
    (refusal,) = _refused(driver=RUNFILE)
    assert "550.54.15" in refusal.reason and "allow_branch_change" in refusal.remedy
    assert _refused({"allow_branch_change": True}, driver=RUNFILE) == ()


@pytest.mark.parametrize(
    "there, dkms, says",
    [((), True, "gcc make dkms"), (("gcc", "make"), True, "dkms"), (("gcc",), False, "make")],
)
def test_what_the_module_is_built_with_must_be_there_and_the_packages_are_named(
    there: tuple[str, ...], dkms: bool, says: str
) -> None:
    boot = replace(TOOLS, build_tools=there)
    (refusal,) = _refused({"dkms": dkms}, boot=boot)
    assert f"apt-get install {says}," in refusal.remedy
    assert _refused({"dkms": dkms, "kernel_headers": "install"}, boot=boot) == ()
    # One that is there already is not built again.
    driver = replace(OPEN_550, runfile=True)
    assert _refused({"dkms": dkms, "version": "550.54.15"}, boot=boot, driver=driver) == ()


def test_on_rhel_the_package_manager_is_dnf_and_dkms_is_in_epel_and_amazon_linux_has_its_own() -> None:
    rocky = replace(DEBIAN, id="rocky", version_id="9.6", name="Rocky Linux 9.6")
    settings = settings_from(
        {"driver": ASKED, "cuda": {"enabled": False}, "containerd": {"source": "docker-repository"}}
    )
    (refusal,) = refusals(settings, machine(rocky, boot=replace(TOOLS, build_tools=("gcc",))))
    assert "dnf install make" in refusal.remedy and unnamed(refusal.remedy, "dkms", "EPEL") == []
    amazon = replace(DEBIAN, id="amzn", version_id="2023", name="Amazon Linux 2023")
    own = {"driver": ASKED, "cuda": {"enabled": False}, "containerd": {"source": "distribution"}}
    (refusal,) = refusals(settings_from(own), machine(amazon, boot=replace(TOOLS, build_tools=("gcc",))))
    assert "dnf install make" in refusal.remedy and unnamed(refusal.remedy, "dkms", "EPEL") == ["EPEL"]


@pytest.mark.parametrize(
    "os_id, version, kernel, package, by_name",
    [
        ("debian", "12", "6.1.0-40-amd64", "linux-headers-6.1.0-40-amd64", True),
        ("rocky", "9.6", "5.14.0-570.el9.x86_64", "kernel-devel-5.14.0-570.el9.x86_64", False),
    ],
)
def test_headers_of_the_next_kernel_must_be_there_and_their_package_is_named(
    os_id: str, version: str, kernel: str, package: str, by_name: bool
) -> None:
    boot = replace(TOOLS, next_release=kernel, decided_by="newest", kernels=(Kernel(kernel, False),))
    node = machine(replace(DEBIAN, id=os_id, version_id=version), boot=boot)
    data: dict[str, Any] = {"cuda": {"enabled": False}, "containerd": {"enabled": False}}
    (refusal,) = refusals(settings_from({**data, "driver": ASKED}), node)
    assert f"install {package}" in refusal.remedy
    assert "kernel_headers = 'install'" in refusal.remedy
    installing = settings_from({**data, "driver": {**ASKED, "kernel_headers": "install"}})
    assert refusals(installing, node) == ()
    # Else an operation of its own brings them (operations/kernel_headers.py).
    assert (package in runfile.build_packages(installing, node.operating_system, boot)) is by_name


def test_nvswitches_need_a_fabric_manager_that_no_runfile_brings() -> None:
    settings = settings_from({"driver": ASKED, "cuda": {"enabled": False}})
    node = replace(machine(boot=TOOLS), pci=PciGpus((H100,), 4))
    (refusal,) = refusals(settings, node)
    assert "NVSwitches" in refusal.reason and "802" in refusal.reason and "cuda-repository" in refusal.remedy


def test_an_old_installer_under_a_loaded_driver_is_refused() -> None:
    old = {"version": "535.104.05", "allow_branch_change": True}
    (refusal,) = _refused(old, driver=RUNFILE)
    assert "550.54.15" in refusal.reason and "modprobe -r" in refusal.remedy
    assert _refused(old, driver=replace(RUNFILE, loaded_version=None)) == ()
    assert _refused({**old, "version": "545.23.08"}, driver=RUNFILE) == ()


def test_a_runfile_without_an_open_module_is_refused_where_one_is_needed() -> None:
    (refusal,) = _refused({"version": "510.47.03", "flavour": "open"})
    assert refusal.code == "preflight.runfile-no-open-module" and unnamed(refusal.reason, "510.47.03") == []
    assert _refused({"version": "510.47.03"}) == _refused({"version": "510.47.03"}, gpus=(V100,)) == ()


def test_a_module_that_nobody_signs_is_refused_under_secure_boot() -> None:
    boot = replace(TOOLS, secure_boot=True, key_enrolled=True)
    (refusal,) = _refused({"dkms": False}, boot=replace(boot, next_release="6.1.0-40-amd64"))
    assert "secure boot" in refusal.reason and "driver.dkms = True" in refusal.remedy
    assert _refused({"dkms": True}, boot=boot) == ()
    (refusal,) = _refused({"dkms": False}, system=UBUNTU, boot=replace(boot, next_release="6.8.0-31-generic"))
    assert "set driver.source = 'distribution'" in refusal.remedy


def test_a_tegra_s_driver_is_left_to_the_board_whatever_the_source() -> None:
    board = replace(UBUNTU, version_id="22.04", architecture="aarch64", tegra=True)
    found = _refused(system=board, gpus=())
    assert any("Tegra" in item.reason and "present" in item.remedy for item in found)


def test_a_driver_s_log_names_a_cause_and_its_remedy_once() -> None:
    patterns = [pattern for pattern, _ in runfile.CAUSES]
    assert len(patterns) == len(set(patterns))
    assert all("'" not in pattern for pattern in patterns)


def test_a_file_is_whole_only_if_it_was_found_to_have_the_checksum() -> None:
    assert runfile.parse_fetched(["present=yes", f"sha256={SHA}"]).is_whole(SHA)
    assert not runfile.parse_fetched(["present=yes", f"sha256={SHA}"]).is_whole("f" * 64)
    assert not runfile.parse_fetched(["present=yes"]).is_whole(SHA)
    assert not runfile.parse_fetched([f"sha256={SHA}"]).is_whole(SHA)


# --- CUDA ------------------------------------------------------------------------------------------------------------

CUDA = {"source": "runfile", "version": "12.9", "release": "12.9.1", "runfile_sha256": SHA}


@pytest.mark.parametrize(
    "asked, by_runfile, says",
    [
        (CUDA, (), "apt-get remove cuda-toolkit-12-9"),
        ({"version": "12.9"}, ("12.9",), "/usr/local/cuda-12.9/bin/cuda-uninstaller"),
        (CUDA, ("12.9",), None),
        ({"version": "12.9"}, (), None),
        ({**CUDA, "version": "12.8", "release": "12.8.1"}, (), None),
    ],
)
def test_one_toolkit_is_never_of_packages_and_of_a_runfile(
    asked: dict[str, Any], by_runfile: tuple[str, ...], says: str | None
) -> None:
    settings = settings_from({"driver": ASKED, "cuda": asked})
    found = refusals(settings, machine(boot=TOOLS, cuda=toolkits_of(by_runfile)))
    assert len(found) == (says is not None)
    assert all(str(says) in item.remedy for item in found)


def test_toolkits_of_a_runfile_and_their_releases_are_read() -> None:
    lines = [
        "toolkit=/usr/local/cuda-12.8",
        "told=/usr/local/cuda-12.8 12.8.1",
        "toolkit=/usr/local/cuda-12.9",
        "runfile=/usr/local/cuda-12.9",
        "release=/usr/local/cuda-12.9 12.9.1",
        "toolkit=/usr/local/cuda-12.9.gpunode-before",
        "default=/usr/local/cuda-12.9",
    ]
    found = parse_cuda(lines)
    assert (found.versions, found.by_runfile) == (("12.8", "12.9"), ("12.9",))
    assert found.releases == (("12.8", "12.8.1"), ("12.9", "12.9.1"))
    dated = parse_cuda(["toolkit=/usr/local/cuda-12.6", "told=/usr/local/cuda-12.6 12.6.20241114"])
    assert dated.releases == (), "a date is no release"
    recorded = [*lines, "told=/usr/local/cuda-12.9 12.9.0"]
    assert parse_cuda(recorded).releases == found.releases, "what gpunode recorded counts first"


@pytest.mark.parametrize(
    "left, dkms", [([], False), (["580.95.05"], True), (["550.54.15"], False), (["550.54.15", "580.95.05"], True)]
)
def test_sources_that_dkms_has_of_another_version_are_not_the_driver_s(left: list[str], dkms: bool) -> None:
    lines = ["modinfo=version:        580.95.05", "library=/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"]
    assert parse_driver([*lines, *(f"dkms={version}" for version in left)]).dkms == dkms
    assert parse_driver([f"dkms={version}" for version in left]).dkms == bool(left)


def test_the_versions_that_dkms_has_sources_of_are_read(tmp_path: Path) -> None:
    (tmp_path / "nvidia/580.95.05/source").mkdir(parents=True)
    (tmp_path / "nvidia/550.54.15").mkdir()
    text = DriverFact().command().replace("/var/lib/dkms", str(tmp_path))
    said = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False).stdout
    assert [line for line in said.splitlines() if line.startswith("dkms=")] == ["dkms=580.95.05"]


@pytest.mark.parametrize("dkms", [True, False])
def test_a_next_kernel_without_headers_is_refused_for_a_runfile_unless_they_are_installed_or_it_has_the_module(
    dkms: bool,
) -> None:
    kernel = Kernel("6.1.0-41-amd64", headers=False)
    boot = replace(TOOLS, next_release=kernel.release, decided_by="grub", kernels=(kernel,))
    (refusal,) = _refused({"dkms": dkms}, boot=boot)
    assert refusal.code == "preflight.boot-no-headers" and unnamed(refusal.reason, kernel.release) == []
    assert refusal.remedy == "install linux-headers-6.1.0-41-amd64, or set driver.kernel_headers = 'install'"
    assert _refused({"dkms": dkms, "kernel_headers": "install"}, boot=boot) == ()
    there = replace(boot, kernels=(replace(kernel, module_version="580.95.05"),))
    assert _refused({"dkms": dkms}, boot=there) == ()
    migrates = {"dkms": dkms, "migrate": True, "allow_branch_change": True}
    (refusal,) = _refused(migrates, boot=there, driver=PACKAGES)
    assert refusal.code == "preflight.boot-no-headers", "the packages' module goes with them"


@pytest.mark.parametrize("asked", [CUDA, {"version": "12.9"}])
@pytest.mark.parametrize("by_runfile", [(), ("12.9",)])
def test_what_our_own_interrupted_installation_left_does_not_lock_the_node_out(
    asked: dict[str, Any], by_runfile: tuple[str, ...]
) -> None:
    settings = settings_from({"driver": ASKED, "cuda": asked})
    left = replace(toolkits_of(by_runfile), interrupted="12.9")
    assert refusals(settings, machine(boot=TOOLS, cuda=left)) == ()
    of_another = replace(toolkits_of(by_runfile), interrupted="12.8")
    mixed = (asked is CUDA) != bool(by_runfile)
    assert len(refusals(settings, machine(boot=TOOLS, cuda=of_another))) == int(mixed)


def test_cuda_by_runfile_needs_room_for_the_file_and_for_what_it_unpacks() -> None:
    disk = Disk(tuple((folder, "/", 15 * 1024**3) for folder in ("/usr", "/usr/local", "/var", "/boot")))
    settings = settings_from({"driver": ASKED, "cuda": CUDA})
    (refusal,) = refusals(settings, machine(boot=TOOLS, disk=disk))
    assert refusal.component == "disk" and "cuda in /var" in refusal.reason
    assert refusals(settings_from({"driver": ASKED}), machine(boot=TOOLS, disk=disk)) == ()


def test_the_driver_by_runfile_needs_room_in_var_for_the_file_and_for_what_it_unpacks() -> None:
    gib = 1024**3
    disk = Disk((("/usr", "/", 4 * gib), ("/var", "/var", gib), ("/boot", "/boot", gib)))
    without_cuda = {"cuda": {"enabled": False}}
    (refusal,) = refusals(settings_from({"driver": ASKED, **without_cuda}), machine(boot=TOOLS, disk=disk))
    assert refusal.component == "disk" and refusal.reason.startswith("/var has 1.0 GiB free, and 2.5 GiB are needed")
    assert "(driver in /var)" in refusal.reason
    packages = settings_from({"driver": {"branch": "580"}, **without_cuda})
    assert refusals(packages, machine(boot=TOOLS, disk=disk)) == ()
