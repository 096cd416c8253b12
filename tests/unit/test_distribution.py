"""A driver of the distribution's archive: what preflight refuses, and what the verdict says, without a GPU, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.findings import ExitCode, FindingClass, verdict
from gpunode.components.driver import DriverState
from gpunode.facts.candidates import parse_candidates
from gpunode.node.preflight import cautions, refusals
from gpunode.node.verdict import judge
from gpunode.packages.apt_sources import AptSources, parse_apt_sources
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpus
from tests.support.messages import unnamed
from tests.support.preflight import DEBIAN, H100, UBUNTU, machine
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

ALONE = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
READS_DEBIAN = AptSources("amd64", origins=("Debian", "Docker"))


def asked(**driver: Any) -> Any:
    return settings_from({**ALONE, "driver": {"source": "distribution", **driver}})


def refused(settings: Any, *args: Any, **more: Any) -> list[str]:
    return [item.reason for item in refusals(settings, machine(*args, **more))]


def test_a_node_that_the_archive_can_serve_is_accepted() -> None:
    assert refused(asked(), apt_sources=READS_DEBIAN) == []
    assert refused(asked(), UBUNTU) == [], "whose archive apt reads is not known before its first refresh"


def test_a_node_that_reads_another_archive_is_refused() -> None:
    (reason,) = refused(asked(), UBUNTU, apt_sources=READS_DEBIAN)
    assert unnamed(reason, "origin Ubuntu", "Debian, Docker") == []


def test_nvswitches_are_refused_where_there_is_no_fabric_manager() -> None:
    board = PciGpus((H100,), 4)
    (reason,) = refused(asked(), pci=board)
    assert unnamed(reason, "Debian", "no fabric manager") == []
    assert refused(asked(), UBUNTU, pci=board) == []


@pytest.mark.parametrize(
    ("settings", "offers", "said"),
    [
        ({"branch": "580"}, [("nvidia-open-kernel-dkms", "535.261.03-1")], "535.261.03-1, and branch 580 is asked for"),
        ({"version": "535.309.01"}, [("nvidia-open-kernel-dkms", "535.261.03-1")], "and 535.309.01 is asked for"),
        ({}, [("nvidia-open-kernel-dkms", "535.261.03-1"), ("nvidia-open-kernel-dkms", "550.1.1-1")], None),
        ({"branch": "580"}, [], None),
    ],
)
def test_what_the_lists_are_known_not_to_have_is_refused_and_what_they_do_not_tell_is_not(
    settings: dict[str, Any], offers: list[tuple[str, str]], said: str | None
) -> None:
    found = refused(asked(**settings), offers=tuple(offers))
    assert found == [] if said is None else said in found[0]


def test_offers_are_those_of_an_archive_and_candidates_apt_s() -> None:
    lines = ["candidate=nvidia-open-580 580.95.05-1", "offer=nvidia-kernel-dkms 535.261.03-1", "offer=x 1"]
    assert parse_candidates(lines) == {
        "candidates": (("nvidia-open-580", "580.95.05-1"),),
        "offers": (("nvidia-kernel-dkms", "535.261.03-1"), ("x", "1")),
    }


def test_whose_archives_apt_reads_is_told_once_each() -> None:
    lines = ["architecture=amd64", "origin=NVIDIA", "origin=Debian", "origin=Debian"]
    assert parse_apt_sources(lines).origins == ("Debian", "NVIDIA")


NO_HEADERS = Boot("6.1.0-40", "6.1.0-41", "grub", (Kernel("6.1.0-41", False),), secure_boot=True)


def test_modules_that_debian_builds_need_headers_and_a_key_and_those_of_ubuntu_neither() -> None:
    reasons = refused(asked(), boot=NO_HEADERS)
    assert any("headers" in reason for reason in reasons)
    assert any("signed" in reason and "firmware" in reason for reason in reasons)
    there = replace(NO_HEADERS, kernels=(Kernel("6.1.0-41", False, "580.95.05", None),))
    assert refused(asked(), UBUNTU, boot=there) == [], "the unsigned one is replaced"


def test_a_node_without_a_gpu_is_refused_until_the_settings_say_otherwise() -> None:
    assert refused(asked(), gpus=()) == ["no NVIDIA GPU is on the PCI bus"]
    assert refused(asked(without_gpu="install"), gpus=()) == []
    assert any("the verdict will be no GPU" in item.reason for item in cautions(asked(without_gpu="install"),
                                                                                machine(gpus=())))  # fmt: skip
    present = settings_from({**ALONE, "driver": {"source": "present", "without_gpu": "install"}})
    assert "no NVIDIA GPU is on the PCI bus" in refused(present, gpus=())


PACKAGES = (("nvidia-smi", "535.261.03-1"),)
# All that a run brings of Debian's own driver.
BROUGHT = (
    "nvidia-smi", "libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "nvidia-persistenced", "nvidia-open-kernel-dkms",
    "nvidia-open-kernel-support",
)  # fmt: skip
WHOLE = tuple((name, PACKAGES[0][1]) for name in BROUGHT)
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
