"""Preflight: settings x node x tables, before anything is touched."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.components.cuda import CudaToolkits
from gpunode.components.driver import DriverState
from gpunode.node.preflight import Caution, Refusal, cautions, chosen_flavour, refusals
from gpunode.node.preflight.anywhere import cautions_anywhere
from gpunode.packages.apt_sources import AptSources
from gpunode.settings import SettingsError, settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.disk import Disk
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu
from tests.support.messages import unnamed
from tests.support.preflight import (
    B200,
    DEBIAN,
    H100,
    OPEN_550,
    P100,
    T4,
    TODAY,
    UBUNTU,
    UNKNOWN_GPU,
    V100,
    _gpu,
    machine,
)

pytestmark = pytest.mark.pure


def _refused(data: dict[str, Any] | None = None, *args: Any, **more: Any) -> tuple[Refusal, ...]:
    return refusals(settings_from(data or {}), machine(*args, **more))


def _cautioned(data: dict[str, Any], **more: Any) -> tuple[Caution, ...]:
    return cautions(settings_from(data), machine(**more), TODAY)


def test_a_bare_debian_12_with_an_h100_is_accepted() -> None:
    assert _refused() == ()


def test_ubuntu_on_sbsa_with_grace_hopper_is_accepted() -> None:
    assert _refused(system=replace(UBUNTU, architecture="aarch64"), gpus=(_gpu("2342"),)) == ()


@pytest.mark.parametrize(
    ("system", "says"),
    [
        (replace(DEBIAN, version_id="11"), "is not supported"),
        (replace(DEBIAN, id="alpine", version_id="3.20"), "is not supported"),
        (replace(DEBIAN, architecture="aarch64"), "architecture aarch64 is not supported on Debian 12"),
        (replace(UBUNTU, architecture="riscv64"), "architecture riscv64"),
        (replace(UBUNTU, version_id="22.04", architecture="aarch64", tegra=True), "Tegra"),
    ],
)
def test_an_unsupported_system_is_refused(system: OperatingSystem, says: str) -> None:
    (refusal,) = _refused(system=system)
    assert says in refusal.reason
    assert refusal.remedy and refusal.source


def test_a_tegra_with_its_own_driver_is_accepted_without_a_pci_gpu() -> None:
    tegra = replace(UBUNTU, version_id="22.04", architecture="aarch64", tegra=True)
    data = {"driver": {"source": "present"}, "cuda": {"enabled": False}}
    assert _refused(data, tegra, (), OPEN_550) == ()


def test_a_node_without_gpu_is_refused() -> None:
    (refusal,) = _refused(gpus=())
    assert refusal.component == "gpu"
    assert "no NVIDIA GPU" in refusal.reason


@pytest.mark.parametrize(
    ("gpus", "data", "says"),
    [
        ((B200,), {"driver": {"flavour": "proprietary"}}, "proprietary kernel module does not drive"),
        ((V100,), {"driver": {"flavour": "open"}}, "open kernel module does not drive"),
        ((T4, V100), {"driver": {"flavour": "open"}}, "open kernel module does not drive"),
        ((V100, B200), {}, "one node cannot drive both"),
        ((V100,), {"driver": {"branch": "595"}}, "its last branch is 580"),
        ((P100,), {"driver": {"version": "590.48.01"}}, "its last branch is 580"),
        ((H100,), {"driver": {"branch": "515"}}, "needs driver 525.60.13 or newer"),
        ((H100,), {"driver": {"version": "525.53.01"}}, "needs driver 525.60.13 or newer"),
        ((H100,), {"driver": {"branch": "570"}, "cuda": {"compatibility": "full"}}, "needs driver 575.57.08"),
        ((H100,), {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}}, "needs driver 580 or newer"),
        ((V100,), {"cuda": {"version": "13.0"}}, "CUDA 13.0 no longer supports"),
        ((H100,), {"driver": {"source": "present"}}, "no NVIDIA driver"),
    ],
)
def test_what_cannot_work_is_refused(gpus: tuple[PciGpu, ...], data: dict[str, Any], says: str) -> None:
    (refusal,) = _refused(data, gpus=gpus)
    assert says in refusal.reason
    assert refusal.remedy and refusal.source


@pytest.mark.parametrize(
    ("gpus", "data"),
    [
        ((B200,), {}),
        ((V100,), {}),
        ((T4, H100), {"driver": {"flavour": "proprietary"}}),
        ((V100,), {"driver": {"version": "580.95.05", "flavour": "proprietary"}}),
        ((H100,), {"driver": {"branch": "525"}}),
        ((H100,), {"driver": {"branch": "575"}, "cuda": {"compatibility": "full"}}),
        ((H100,), {"driver": {"branch": "515"}, "cuda": {"enabled": False}}),
        ((UNKNOWN_GPU,), {}),
    ],
)
def test_what_works_is_accepted(gpus: tuple[PciGpu, ...], data: dict[str, Any]) -> None:
    assert _refused(data, gpus=gpus) == ()


def test_a_present_driver_is_judged_as_it_is() -> None:
    data = {"driver": {"source": "present"}, "cuda": {"version": "13.0"}}
    (refusal,) = _refused(data, driver=OPEN_550)
    assert "needs driver 580" in refusal.reason and "550.54.15" in refusal.reason
    (refusal,) = _refused({"driver": {"source": "present", "version": "580.95.05"}}, driver=OPEN_550)
    assert "550.54.15 is there, not 580.95.05" in refusal.reason
    (refusal,) = _refused({"driver": {"source": "present"}}, gpus=(V100,), driver=OPEN_550)
    assert refusal.code == "preflight.flavour-not-open"


@pytest.mark.parametrize(
    ("driver", "gpus", "chosen"),
    [
        ({}, (H100,), "open"),
        ({}, (B200,), "open"),
        ({}, (V100,), "proprietary"),
        ({}, (T4, V100), "proprietary"),
        ({}, (_gpu("06C0"),), "proprietary"),
        ({}, (UNKNOWN_GPU,), "open"),
        ({}, (), "open"),
        ({"flavour": "proprietary"}, (H100,), "proprietary"),
        ({"flavour": "open"}, (H100,), "open"),
        ({"branch": "560"}, (H100,), "open"),
        # NVIDIA's repository for apt has no nvidia-open before branch 560.
        ({"branch": "550"}, (H100,), "proprietary"),
        ({"version": "550.163.01"}, (T4,), "proprietary"),
        ({"branch": "550", "source": "distribution"}, (H100,), "open"),
        ({"branch": "550"}, (B200,), "open"),
    ],
)
def test_flavour_follows_the_setting_then_the_gpus_then_what_there_is_of_the_driver(
    driver: dict[str, str], gpus: tuple[PciGpu, ...], chosen: str
) -> None:
    assert chosen_flavour(settings_from({"driver": driver}), gpus, DEBIAN) == chosen


def test_a_gpu_that_needs_the_open_module_is_refused_a_branch_whose_packages_have_it_not() -> None:
    found = {refusal.code: refusal.reason for refusal in _refused({"driver": {"branch": "550"}}, gpus=(B200,))}
    assert unnamed(found["preflight.driver-flavour-not-packaged"], "CUDA repository", "open", "branch 560", "550") == []


def test_an_unknown_gpu_and_an_old_branch_are_cautions() -> None:
    found = _cautioned({"driver": {"branch": "550"}}, gpus=(UNKNOWN_GPU,))
    assert [item.component for item in found] == ["gpu", "driver"]
    assert "FFFE" in found[0].reason
    assert "end of life" in found[1].reason
    assert _cautioned({}) == ()


def test_a_setting_by_its_former_name_is_taken_with_a_caution_that_names_the_new_one() -> None:
    former = {"way": "manifest"}
    data = {"device_plugin": former}
    assert settings_from(data).device_plugin.method == "manifest"
    (caution,) = [item for item in _cautioned(data) if item.component == "device_plugin"]
    assert "device_plugin.way is called device_plugin.method now" in caution.reason
    assert caution in cautions_anywhere(settings_from(data), TODAY)
    now = {"device_plugin": {"method": "manifest"}}
    assert settings_from(now).digest() == settings_from(data).digest()
    assert not [item for item in _cautioned(now) if item.component == "device_plugin"]


def test_both_names_of_a_setting_at_once_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"device_plugin\.way.*is the former name of method, which is set, too"):
        settings_from({"device_plugin": dict(way="manifest", method="helm")})


def test_cuda_without_any_driver_is_a_caution() -> None:
    data = {"driver": {"enabled": False}}
    assert _refused(data) == ()
    assert [item.component for item in _cautioned(data)] == ["cuda"]


def test_a_cuda_newer_than_the_table_is_a_caution_for_packages() -> None:
    for version, compatibility in (("13.99", "minor"), ("13.99", "full"), ("99.0", "minor")):
        data = {"cuda": {"version": version, "compatibility": compatibility}}
        assert _refused(data) == ()
        (caution,) = _cautioned(data)
        assert caution.component == "cuda" and f"CUDA {version} is newer than" in caution.reason
        assert "gpunode/data/cuda.yaml" in caution.source and caution.remedy
    # What is promised of its major version holds for it, too.
    (refusal,) = _refused({"cuda": {"version": "13.99"}, "driver": {"branch": "570"}})
    assert "CUDA 13.99 needs driver 580 or newer" in refusal.reason


def test_a_branch_past_its_end_of_life_is_a_caution_with_the_date_and_no_refusal() -> None:
    data = {"driver": {"branch": "570"}}
    settings = settings_from(data)
    (caution,) = cautions(settings, machine(), date(2026, 3, 1))
    assert caution.code == "preflight.driver-end-of-life" and unnamed(caution.reason, "570", "(2026-02)") == []
    assert "580" in caution.remedy and "610" not in caution.remedy
    assert cautions(settings, machine(), date(2026, 2, 28)) == ()
    assert _refused(data) == ()


def test_a_stated_minimum_means_that_or_newer_never_the_compatible_release_operator() -> None:
    data = {"driver": {"source": "present"}, "cuda": {"enabled": False}}
    old = DriverState((), "384.81", "NVIDIA", "384.81", "proprietary", "384.81")
    assert _refused(data, gpus=(P100,), driver=old) == ()
    newer = replace(old, module_version="470.256.02", loaded_version="470.256.02")
    assert _refused(data, gpus=(P100,), driver=newer) == ()
    older = replace(old, module_version="384.66", loaded_version="384.66")
    (refusal,) = _refused(data, gpus=(P100,), driver=older)
    assert "older than 384.81" in refusal.reason and "minimums.yaml" in refusal.source


def test_cuda_12_on_535_is_accepted_by_minor_compatibility_alone() -> None:
    data = {"driver": {"branch": "535"}, "cuda": {"version": "12.9"}}
    assert _refused(data) == ()
    (refusal,) = _refused({**data, "cuda": {"version": "12.9", "compatibility": "full"}})
    assert "575.57.08" in refusal.reason


def test_mig_with_a_driver_that_is_too_old_for_it_is_refused() -> None:
    data = {"mig": {"config": "all-1g.5gb"}, "driver": {"version": "440.33.01"}, "cuda": {"enabled": False}}
    (refusal,) = _refused(data, gpus=(_gpu("20B0"),))
    assert refusal.component == "mig" and "450.80.02" in refusal.reason and "MIG user guide" in refusal.source
    assert _refused({**data, "driver": {"version": "450.80.02"}}, gpus=(_gpu("20B0"),)) == ()
    assert "440.33.01" not in "".join(each.reason for each in _refused(data, gpus=(_gpu("2236"),))), "an A10 has no MIG"
    assert _cautioned({"mig": {"config": "all-1g.10gb"}}) == ()


def test_another_branch_needs_a_setting_in_so_many_words() -> None:
    (refusal,) = _refused({"driver": {"branch": "580"}}, driver=OPEN_550)
    assert "550.54.15" in refusal.reason and "allow_branch_change" in refusal.remedy
    assert _refused({"driver": {"branch": "580", "allow_branch_change": True}}, driver=OPEN_550) == ()
    assert _refused({"driver": {"branch": "550"}}, driver=OPEN_550) == ()


def test_a_transitional_package_that_moves_to_another_branch_is_refused() -> None:
    data = {"driver": {"branch": "570"}}
    (refusal,) = _refused(data, candidates=(("cuda-drivers-570", "580.95.05-0ubuntu1"),))
    assert "580.95.05" in refusal.reason and "branch 570" in refusal.reason and "transitional" in refusal.reason
    assert _refused(data, candidates=(("nvidia-open-570", "570.172.08-1"), ("cuda-drivers-570", "odd"))) == ()
    assert _refused(data, candidates=(("nvidia-driver-570", "580.95.05"),)) == (), "the distribution's, not ours"
    assert _refused(data, candidates=(("nvidia-open", "580.95.05"),)) == (), "its older versions are still there"


NEXT = Kernel("6.1.0-40-amd64", headers=True)


def _boots(kernel: Kernel = NEXT, **more: Any) -> Boot:
    return Boot("6.1.0-40-amd64", kernel.release, "grub", (kernel,), **more)


def test_a_next_kernel_without_headers_is_refused_unless_they_are_to_be_installed() -> None:
    bare = _boots(replace(NEXT, headers=False))
    (refusal,) = _refused(boot=bare)
    assert refusal.component == "next boot" and "6.1.0-40-amd64" in refusal.reason and "GRUB" in refusal.reason
    assert "linux-headers-6.1.0-40-amd64" in refusal.remedy
    assert _refused({"driver": {"kernel_headers": "install"}}, boot=bare) == ()
    older = replace(OPEN_550, module_version="580.65.06", loaded_version="580.65.06", library_version="580.65.06")
    built = _boots(replace(NEXT, headers=False, module_version="580.65.06"))
    assert _refused({"driver": {"version": "580.65.06"}}, driver=older, boot=built) == (), "it is there already"
    (refusal,) = _refused({"driver": {"version": "580.95.05"}}, driver=older, boot=built)
    assert refusal.component == "next boot", "an upgrade would take the module away, and could build no other"
    assert _refused(boot=_boots()) == ()
    assert _refused({"driver": {"source": "present"}}, driver=OPEN_550, boot=bare) == ()


def test_secure_boot_with_a_module_that_nobody_signed_is_refused_with_the_enrolment_steps() -> None:
    (refusal,) = _refused(boot=_boots(secure_boot=True))
    assert "secure boot" in refusal.reason and "mokutil --import" in refusal.remedy
    assert _refused(boot=_boots(secure_boot=True, key_enrolled=True)) == ()
    assert _refused(boot=_boots(secure_boot=False)) == ()
    unsigned = _boots(replace(NEXT, module_version="550.54.15"), secure_boot=True)
    present = {"driver": {"source": "present"}}
    (refusal,) = _refused(present, driver=OPEN_550, boot=unsigned)
    assert "is not signed" in refusal.reason
    signed = _boots(replace(NEXT, module_version="550.54.15", module_signer="Debian Secure Boot CA"), secure_boot=True)
    assert _refused(present, driver=OPEN_550, boot=signed) == ()


def test_on_ubuntu_the_signed_modules_of_the_distribution_are_the_first_way_out_of_secure_boot() -> None:
    signed = "set driver.source = 'distribution', whose modules come signed"
    (refusal,) = _refused(system=UBUNTU, boot=_boots(secure_boot=True))
    assert refusal.remedy.startswith(signed) and "mokutil --import" in refusal.remedy
    unsigned = _boots(replace(NEXT, module_version="550.54.15"), secure_boot=True)
    (refusal,) = _refused({"driver": {"source": "present"}}, UBUNTU, driver=OPEN_550, boot=unsigned)
    assert signed in refusal.remedy
    # Debian's own modules are built by DKMS, too.
    assert "distribution'" not in _refused(boot=_boots(secure_boot=True))[0].remedy
    assert _refused({"driver": {"source": "distribution"}}, UBUNTU, boot=_boots(secure_boot=True)) == ()


def test_another_compiler_and_a_running_kernel_without_headers_are_cautions() -> None:
    boot = Boot("6.1.0-39-amd64", NEXT.release, "grub", (replace(NEXT, compiler="12"),), compiler="13")
    reasons = [item.reason for item in _cautioned({}, boot=boot)]
    assert len(reasons) == 2
    assert unnamed(reasons[0], "gcc", "13", "12") == [] and unnamed(reasons[1], "6.1.0-39-amd64", "reboot") == []
    assert _cautioned({}, boot=_boots(replace(NEXT, compiler="12"), compiler="12")) == ()


def test_a_disk_that_would_be_full_halfway_is_refused_and_what_is_installed_counts_no_more() -> None:
    gib = 1024**3
    small = Disk(
        (("/usr", "/", 5 * gib), ("/usr/local", "/", 5 * gib), ("/var", "/", 5 * gib), ("/boot", "/boot", gib))
    )
    (refusal,) = _refused(disk=small)
    assert refusal.component == "disk" and refusal.reason.startswith("/ has 5.0 GiB free, and 12.2 GiB are needed")
    assert _refused({"cuda": {"enabled": False}}, disk=small) == ()
    there = CudaToolkits(("12.9",), "/usr/local/cuda-12.9", "12.9", True)
    assert _refused({"driver": {"branch": "550"}}, driver=OPEN_550, cuda=there, disk=small) == ()


def test_other_lists_with_nvidia_packages_and_retired_keys_are_cautions() -> None:
    retired = tables.drivers().retired_key_ids[0]
    sources = AptSources(
        "amd64",
        (("/etc/apt/sources.list.d/cuda.list", "deb https://example.org/cuda /\n"), ("/etc/apt/x.list", "# nvidia\n")),
        (("/etc/apt/trusted.gpg", (f"AE09FE4BBD223A84B2CCFCE3{retired}", "A" * 40)),),
    )
    found = _cautioned({}, apt_sources=sources)
    assert [item.component for item in found] == ["repositories", "repositories"]
    assert "cuda.list" in found[0].reason and retired in found[1].reason


def test_modules_of_another_source_are_none_that_the_next_boot_will_have() -> None:
    built = _boots(replace(NEXT, headers=False, module_version="580.95.05"))
    signed = DriverState((("nvidia-utils-580-server", "580.95.05-0ubuntu1"),), "580.95.05", "NVIDIA", None, None, None)
    (refusal,) = _refused({"driver": {"branch": "580"}}, driver=signed, boot=built)
    assert refusal.component == "next boot" and "headers" in refusal.reason


def test_mig_that_is_switched_off_asks_nothing_of_the_driver() -> None:
    data = {"mig": {"config": "all-disabled"}, "driver": {"version": "440.33.01"}, "cuda": {"enabled": False}}
    assert _refused(data, gpus=(_gpu("20B0"),)) == ()
