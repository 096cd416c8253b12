"""The next boot: will its kernel load the driver that is on disk, or does nouveau take the GPUs first?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gpunode.base.comparison import RUN, compared, not_known
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.subject import Subject
from gpunode.base.tables.sources import DriverSource
from gpunode.components.driver.state import DriverState
from gpunode.packages.families.wording import headers_package
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem


def next_boot(boot: Boot, driver: DriverState, system: OperatingSystem) -> Iterator[Finding]:
    """Judge whether the kernel that boots next will load the driver that is on disk; nothing where none is known."""
    yield from _nouveau(boot)
    kernel = boot.next_kernel
    if kernel is None or driver.module_version is None:
        return
    release = kernel.release
    built = any(name.startswith("linux-modules-nvidia-") for name, _ in driver.packages)
    build = f"`dkms autoinstall -k {release}` on the node, before it boots"
    if not kernel.headers:
        build = f"install {headers_package(system, kernel)}, then {build}"
    if built:
        build = f"{RUN}: it installs the modules of that kernel"
    cause = f"kernel {release} boots next and has " + (
        f"a module {kernel.module_version}" if kernel.module_version else "no nvidia module"
    )
    if kernel.module_version is None and not built:
        state = boot.dkms_state("nvidia", release)
        cause += f"; DKMS: {state}" if state else "; DKMS knows of none"
        cause += "" if kernel.headers else "; its headers are not there"
    yield compared(
        "driver",
        Subject.NEXT_BOOT,
        kernel.module_version,
        driver.module_version,
        kernel.module_version == driver.module_version,
        remedy=build,
        cause=cause,
    )
    if boot.secure_boot and kernel.module_version is not None:
        yield compared(
            "driver",
            Subject.SIGNATURE,
            kernel.module_signer,
            "signed by a key that the firmware knows",
            # What DKMS built, DKMS signed.
            kernel.module_signer is not None and (boot.key_enrolled or boot.dkms_state("nvidia", release) is None),
            remedy="enrol a key and sign the module (`mokutil --import`, `dkms autoinstall`), or use signed packages",
            cause="secure boot is on: the kernel will reject the module",
            disruption=Disruption.reboot,
        )


def other_kernels(
    source: DriverSource, flavour: str, boot: Boot, driver: DriverState, system: OperatingSystem
) -> Iterator[Finding]:
    """Tell of kernels that do not boot next and lack the driver's module: who boots one as a way back has no GPUs.

    It is for a distribution whose kernels have packages of their own with the module, or DKMS for all of them (Arch).
    No run changes a driver that is right for them, so that it is told and is no difference.
    """
    for kernel in boot.kernels if driver.module_version is not None else ():
        if kernel.release == boot.next_release or kernel.base is None:
            continue
        found, desired = kernel.module_version, driver.module_version
        item = compared("driver", f"module for kernel {kernel.release}", found, found or "none", True)
        if found == desired:
            yield item
            continue
        package = source.kernels.get(flavour, {}).get(kernel.base)
        if source.built_on_node:
            remedy = f"`dkms autoinstall -k {kernel.release}` on the node"
            if not kernel.headers:
                remedy = f"install {headers_package(system, kernel)}, then {remedy}"
        elif package is None:
            remedy = f"no package brings one for {kernel.base} beside that of the next kernel: remove this kernel"
        else:
            remedy = f"install {package} where the repositories have it at {desired}, or upgrade the node's system"
        yield replace(item, cause=f"driver {desired} is there, and a boot into this kernel has no GPU", remedy=remedy)


def nouveau_steps(found: Iterable[Finding]) -> Iterator[Step[Any]]:
    """Yield what keeps nouveau out of the next boot."""
    for item in bad(*found):
        if item.what == Subject.NOUVEAU:
            yield Step("keep nouveau out, in effect at the next boot", (item,), Disruption.nothing)
        elif item.what == Subject.INITRAMFS:
            action = "make the initial file systems anew without nouveau, in effect at the next boot"
            yield Step(action, (item,), Disruption.nothing)


def _nouveau(boot: Boot) -> Iterator[Finding]:
    """Judge whether nouveau is kept out, and of the initial file systems too; nothing on a node without a kernel."""
    kernel = boot.next_kernel
    if kernel is None:
        return
    kept_out = boot.blacklist_written is not None
    yield compared(
        "driver",
        Subject.NOUVEAU,
        "kept out" if kept_out else "may be loaded",
        "kept out",
        kept_out,
        cause="no file in modprobe.d blacklists it: at the next boot it may take the GPUs",
    )
    if kernel.initramfs_written is None and not boot.with_nouveau:
        return
    desired = "does not load nouveau"
    cause = "it is older than the blacklist of nouveau, which may be loaded before the blacklist is read"
    if boot.with_nouveau:
        found = f"of {', '.join(boot.with_nouveau)} holds nouveau"
        yield compared("driver", Subject.INITRAMFS, found, desired, False, cause=cause)
    elif kernel.initramfs_nouveau is None:
        unread = f"{cause}, and what it holds could not be read"
        remedy = f"look at the initial file system of kernel {kernel.release} (`lsinitramfs`), and make it again"
        yield not_known("driver", Subject.INITRAMFS, desired, unread, remedy)
    else:
        yield compared("driver", Subject.INITRAMFS, desired, desired, True)
