"""Will the kernel that boots next load the driver? Said by the verdict, before anybody reboots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.next_boot import next_boot as judged_next_boot
from gpunode.node import Node
from gpunode.system.boot import Boot, DkmsBuild, Kernel
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

RELEASE = "6.1.0-41-amd64"
KERNEL = Kernel(RELEASE, headers=True, module_version="580.95.05", module_signer="DKMS module key")
BOOT = Boot("6.1.0-40-amd64", RELEASE, "grub", (KERNEL,), blacklist_written=5.0)


def next_boot(node: Node) -> Iterator[Finding]:
    return judged_next_boot(node.boot, node.driver, node.operating_system)


def judged(boot: Boot) -> dict[str, Finding]:
    return {item.what: item for item in next_boot(replace(GOOD, boot=boot))}


def test_a_next_kernel_with_the_same_module_is_good() -> None:
    assert {what: item.finding_class for what, item in judged(BOOT).items()} == {
        "nouveau": FindingClass.OK, "next boot": FindingClass.OK,
    }  # fmt: skip


def test_a_container_is_not_judged_and_a_node_without_driver_by_nouveau_alone() -> None:
    assert judged(Boot("6.18.44")) == {}
    bare = replace(GOOD.driver, module_version=None)
    assert [item.what for item in next_boot(replace(GOOD, driver=bare, boot=BOOT))] == ["nouveau"]


def test_a_node_that_may_load_nouveau_at_its_next_boot_is_drift() -> None:
    item = judged(replace(BOOT, blacklist_written=None))["nouveau"]
    assert (item.finding_class, item.remedy) == (FindingClass.DRIFT, "run deploys/gpu_node.py again")


@pytest.mark.parametrize(
    ("kernel", "dkms", "cause", "remedy"),
    [
        (
            replace(KERNEL, module_version=None, headers=False),
            (),
            "DKMS knows of none; its headers are not there",
            f"install linux-headers-{RELEASE}, then `dkms autoinstall -k {RELEASE}`",
        ),
        (
            replace(KERNEL, module_version=None),
            (DkmsBuild("nvidia", "580.95.05", None, "added"),),
            "has no nvidia module; DKMS: added",
            f"`dkms autoinstall -k {RELEASE}` on the node, before it boots",
        ),
        (
            replace(KERNEL, module_version="570.172.08"),
            (),
            "has a module 570.172.08",
            f"`dkms autoinstall -k {RELEASE}`",
        ),
    ],
)
def test_a_next_kernel_without_the_driver_s_module_is_drift_with_its_cause_and_remedy(
    kernel: Kernel, dkms: tuple[DkmsBuild, ...], cause: str, remedy: str
) -> None:
    item = judged(replace(BOOT, kernels=(kernel,), dkms=dkms))["next boot"]
    assert item.finding_class is FindingClass.DRIFT
    assert cause in (item.cause or "") and remedy in (item.remedy or "")


def test_secure_boot_asks_for_a_signature() -> None:
    signed = judged(replace(BOOT, secure_boot=True))["next boot's signature"]
    assert signed.finding_class is FindingClass.OK
    by_dkms = replace(BOOT, secure_boot=True, dkms=(DkmsBuild("nvidia", "580.95.05", RELEASE, "installed"),))
    assert judged(by_dkms)["next boot's signature"].finding_class is FindingClass.DRIFT
    enrolled = replace(by_dkms, key_enrolled=True)
    assert judged(enrolled)["next boot's signature"].finding_class is FindingClass.OK
    unsigned = replace(BOOT, secure_boot=True, kernels=(replace(KERNEL, module_signer=None),))
    item = judged(unsigned)["next boot's signature"]
    assert item.finding_class is FindingClass.DRIFT and "mokutil" in (item.remedy or "")
    assert "next boot's signature" not in judged(replace(unsigned, secure_boot=False))


def test_an_initramfs_that_would_load_nouveau_is_drift_and_an_older_one_without_it_is_not() -> None:
    kernel = replace(KERNEL, initramfs_written=10.0, initramfs_nouveau=True)
    item = judged(replace(BOOT, kernels=(kernel,), blacklist_written=20.0))["next boot's initramfs"]
    assert (item.finding_class, item.actual) == (FindingClass.DRIFT, f"of {RELEASE} holds nouveau")
    assert (item.remedy, item.disruption) == ("run deploys/gpu_node.py again", Disruption.nothing)
    without = replace(BOOT, kernels=(replace(kernel, initramfs_nouveau=False),), blacklist_written=20.0)
    assert judged(without)["next boot's initramfs"].finding_class is FindingClass.OK


def test_an_initramfs_of_another_kernel_counts_too_and_one_that_cannot_be_read_is_not_called_good() -> None:
    other = Kernel("6.1.0-9-amd64", headers=True, initramfs_written=10.0, initramfs_nouveau=True)
    item = judged(replace(BOOT, kernels=(replace(KERNEL, initramfs_written=30.0), other)))["next boot's initramfs"]
    assert item.actual == "of 6.1.0-9-amd64 holds nouveau"
    unread = replace(KERNEL, initramfs_written=1.0, initramfs_nouveau=None)
    item = judged(replace(BOOT, kernels=(unread,)))["next boot's initramfs"]
    assert item.finding_class is FindingClass.DRIFT and "lsinitramfs" in (item.remedy or "")


def test_a_kernel_without_its_built_module_gets_it_by_a_run_and_not_by_dkms() -> None:
    kernel = Kernel("6.8.0-151-generic", headers=False)
    boot = replace(GOOD.boot, next_release=kernel.release, kernels=(kernel,), blacklist_written=1.0)
    packages = (("linux-modules-nvidia-580-server-open-6.8.0-149-generic", "6.8.0-149.149"),)
    node = replace(GOOD, boot=boot, driver=replace(GOOD.driver, packages=packages))
    item = next(item for item in next_boot(node) if item.what == "next boot")
    assert item.finding_class is FindingClass.DRIFT
    assert "run deploys/gpu_node.py" in str(item.remedy) and "dkms" not in f"{item.remedy}{item.cause}".lower()
