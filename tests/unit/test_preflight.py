"""Preflight: settings x node x tables, before anything is touched."""

from dataclasses import replace
from typing import Any

import pytest

from gpunode import tables
from gpunode.driver import DriverState
from gpunode.operating_system import OperatingSystem
from gpunode.pci import PciGpu
from gpunode.preflight import Refusal, cautions, chosen_flavour, refusals
from gpunode.reading import Unknown
from gpunode.settings import settings_from

pytestmark = pytest.mark.pure

DEBIAN = OperatingSystem("debian", "12", "bookworm", (), "Debian GNU/Linux 12 (bookworm)", "x86_64", "6.1.0-1", False)
UBUNTU = replace(DEBIAN, id="ubuntu", version_id="24.04", codename="noble", name="Ubuntu 24.04.3 LTS")
NO_DRIVER = DriverState((), None, None, None, None, None)
OPEN_550 = DriverState((), "550.54.15", "Dual MIT/GPL", "550.54.15", "open", "550.54.15")


def _gpu(device_id: str, address: str = "0000:1a:00.0") -> PciGpu:
    known = tables.pci_device(device_id)
    return PciGpu(address, device_id, known.name if known else None, known.generation if known else None)


H100, B200, V100, T4, P100 = map(_gpu, ("2330", "2901", "1DB1", "1EB8", "15F8"))
UNKNOWN_GPU = _gpu("FFFE")


def _refused(
    data: dict[str, Any] | None = None,
    system: OperatingSystem | Unknown = DEBIAN,
    gpus: tuple[PciGpu, ...] | Unknown = (H100,),
    driver: DriverState | Unknown = NO_DRIVER,
) -> tuple[Refusal, ...]:
    return refusals(settings_from(data or {}), system, gpus, driver)


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
    assert "open kernel module does not drive" in refusal.reason


@pytest.mark.parametrize("missing", ["system", "gpus", "driver"])
def test_what_the_node_did_not_answer_is_refused(missing: str) -> None:
    unknown = {missing: Unknown("the probe's answer is truncated")}
    (refusal,) = _refused(None, **unknown)
    assert "truncated" in refusal.reason


@pytest.mark.parametrize(
    ("flavour", "gpus", "chosen"),
    [
        ("auto", (H100,), "open"),
        ("auto", (B200,), "open"),
        ("auto", (V100,), "proprietary"),
        ("auto", (T4, V100), "proprietary"),
        ("auto", (_gpu("06C0"),), "proprietary"),
        ("auto", (UNKNOWN_GPU,), "open"),
        ("auto", (), "open"),
        ("proprietary", (H100,), "proprietary"),
        ("open", (H100,), "open"),
    ],
)
def test_flavour_follows_the_setting_then_the_gpus(flavour: str, gpus: tuple[PciGpu, ...], chosen: str) -> None:
    assert chosen_flavour(settings_from({"driver": {"flavour": flavour}}), gpus) == chosen


def test_an_unknown_gpu_and_an_old_branch_are_cautions() -> None:
    found = cautions(settings_from({"driver": {"branch": "550"}}), (UNKNOWN_GPU,), NO_DRIVER)
    assert [item.component for item in found] == ["gpu", "driver"]
    assert "FFFE" in found[0].reason
    assert "end of life" in found[1].reason
    assert cautions(settings_from({}), (H100,), NO_DRIVER) == ()


def test_cuda_without_any_driver_is_a_caution() -> None:
    settings = settings_from({"driver": {"enabled": False}})
    assert refusals(settings, DEBIAN, (H100,), NO_DRIVER) == ()
    assert [item.component for item in cautions(settings, (H100,), NO_DRIVER)] == ["cuda"]
