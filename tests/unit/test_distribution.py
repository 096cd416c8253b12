"""A driver of the distribution's archive: what preflight refuses, and what the verdict says, without a GPU, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.findings import ExitCode, FindingClass, verdict
from gpunode.components.driver.state import DriverState
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpus
from tests.support.preflight import DEBIAN, UBUNTU
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

ALONE = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}


def asked(**driver: Any) -> Any:
    return settings_from({**ALONE, "driver": {"source": "distribution", **driver}})


# All that a run brings of Debian's own driver.
BROUGHT = (
    "nvidia-smi", "libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "nvidia-persistenced", "nvidia-open-kernel-dkms",
    "nvidia-open-kernel-support",
)  # fmt: skip
WHOLE = tuple((name, "535.261.03-1") for name in BROUGHT)
IMAGE = replace(
    GOOD, pci=PciGpus(()), boot=Boot("6.1.0-40"), gpus=Gpus("no driver", 9, "NVIDIA-SMI has failed", ()),
    driver=DriverState(WHOLE, None, None, None, None, "535.261.03", held=BROUGHT),
)  # fmt: skip
BUILT = Boot(
    "6.1.0-40", "6.1.0-41", "grub", (Kernel("6.1.0-41", True, "535.261.03"),), blacklist_written=1.0
)  # fmt: skip


def bad(settings: Any, node: Any) -> list[tuple[str, FindingClass]]:
    found = judge(settings, node)
    return [(item.what, item.finding_class) for item in found if item.finding_class is not FindingClass.OK]


def test_the_verdict_of_a_driver_without_a_gpu_is_no_gpu_and_nothing_else() -> None:
    settings = asked(without_gpu="install")
    assert bad(settings, IMAGE) == [("GPU", FindingClass.UNSUPPORTED)]
    assert verdict(judge(settings, IMAGE)) is ExitCode.NEGATIVE
    built = replace(IMAGE, boot=BUILT, driver=IMAGE.driver.with_next_kernel(BUILT))
    assert bad(settings, built) == [("GPU", FindingClass.UNSUPPORTED)]
    lacking = replace(IMAGE, driver=replace(IMAGE.driver, library_version="550.1.1"))
    assert ("library", FindingClass.DRIFT) in bad(settings, lacking)
    unbuilt = replace(IMAGE, boot=replace(BUILT, kernels=(Kernel("6.1.0-41", True),)))
    assert ("module on disk", FindingClass.DRIFT) in bad(settings, unbuilt)


def test_ubuntu_s_kernels_are_to_be_held_with_the_driver() -> None:
    ubuntu = replace(IMAGE, operating_system=UBUNTU, driver=replace(IMAGE.driver, kernels=("linux-image-generic",)))
    assert ("held", FindingClass.DRIFT) in bad(asked(without_gpu="install", branch="535"), ubuntu)
    debian = replace(ubuntu, operating_system=DEBIAN)
    assert ("held", FindingClass.DRIFT) not in bad(asked(without_gpu="install"), debian)
