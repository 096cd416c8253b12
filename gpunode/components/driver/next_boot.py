"""The next boot: will its kernel load the driver that is on disk, or does nouveau take the GPUs first?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gpunode.base.comparison import RUN
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.tables.sources import DriverSource
from gpunode.components.driver.state import DriverState, driver_finding
from gpunode.packages.families.wording import headers_package
from gpunode.system.boot import Boot, Kernel
from gpunode.system.operating_system import OperatingSystem

_LOOK_INTO = "look at the initial file system of kernel {release} (`lsinitramfs`), and make it again"
_NO_GPU = "driver {version} is there, and a boot into this kernel has no GPU"
_LACKS = "kernel {release} boots next and has {found}"
NEXT_BOOT = driver_finding(
    "next boot",
    "The kernel that boots next has no module of the driver's version.",
    "All may work now, and the GPUs will be gone after the next boot.",
    causes=(f"{_LACKS}; DKMS: {{state}}",),
    remedies=(f"{RUN}: it installs the modules of that kernel", "`dkms autoinstall -k {release}` on the node"),
)
SIGNATURE = driver_finding(
    "next boot's signature",
    "The module that boots next is not signed, and secure boot is on.",
    "The kernel will reject the module, and the GPUs will be gone after the next boot.",
    cause="secure boot is on: the kernel will reject the module",
    remedies=("enrol a key and sign the module (`mokutil --import`, `dkms autoinstall`), or use signed packages",),
)
NOUVEAU = driver_finding(
    "nouveau",
    "The module nouveau is not kept from loading.",
    "nouveau is the kernel's own driver. Where it takes a GPU at boot, NVIDIA's driver cannot drive that GPU.",
    cause="no file in modprobe.d blacklists it: at the next boot it may take the GPUs",
)
INITRAMFS = driver_finding(
    "next boot's initramfs",
    "The initial file system of the next boot is older than what it has to know.",
    "It holds nouveau without its blacklist, so nouveau may take the GPUs before other settings are read.",
    cause="it is older than the blacklist of nouveau, which may be loaded before the blacklist is read",
    remedies=(RUN, _LOOK_INTO),
)
OTHER_KERNEL = driver_finding(
    "module for kernel",
    "Another installed kernel has this module of the driver, or none.",
    "It is information alone: only the kernel that boots next is judged.",
    causes=(_NO_GPU,),
    remedies=(f"nothing to do: {NEXT_BOOT.code} reports where there is",),
    classes=(),
)


def next_boot(boot: Boot, driver: DriverState, system: OperatingSystem) -> Iterator[Finding]:
    """Judge whether the kernel that boots next will load the driver that is on disk; nothing where none is known."""
    yield from _nouveau(boot)
    kernel = boot.next_kernel
    if kernel is None or driver.module_version is None:
        return
    release = kernel.release
    built = any(name.startswith("linux-modules-nvidia-") for name, _ in driver.packages)
    has = f"a module {kernel.module_version}" if kernel.module_version else "no nvidia module"
    cause = _LACKS.format(release=release, found=has)
    if kernel.module_version is None and not built:
        state = boot.dkms_state("nvidia", release)
        cause += f"; DKMS: {state}" if state else "; DKMS knows of none"
        cause += "" if kernel.headers else "; its headers are not there"
    yield NEXT_BOOT.compared(
        kernel.module_version,
        driver.module_version,
        kernel.module_version == driver.module_version,
        cause=cause,
        remedy=NEXT_BOOT.remedies[0] if built else f"{_build(kernel, system)}, before it boots",
    )
    if boot.secure_boot and kernel.module_version is not None:
        yield SIGNATURE.compared(
            kernel.module_signer,
            "signed by a key that the firmware knows",
            kernel.module_signer is not None and (boot.key_enrolled or boot.dkms_state("nvidia", release) is None),
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
        item = OTHER_KERNEL.compared(found, found or "none", True, of=kernel.release)
        if found == desired:
            yield item
            continue
        package = source.kernels.get(flavour, {}).get(kernel.base)
        if source.built_on_node:
            remedy = _build(kernel, system)
        elif package is None:
            remedy = f"no package brings one for {kernel.base} beside that of the next kernel: remove this kernel"
        else:
            remedy = f"install {package} where the repositories have it at {desired}, or upgrade the node's system"
        yield replace(item, cause=_NO_GPU.format(version=desired), remedy=remedy)


def _build(kernel: Kernel, system: OperatingSystem) -> str:
    build = f"`dkms autoinstall -k {kernel.release}` on the node"
    return build if kernel.headers else f"install {headers_package(system, kernel)}, then {build}"


def nouveau_steps(found: Iterable[Finding], target: str) -> Iterator[Step[Any]]:
    """Yield what keeps nouveau out of the next boot; target: digest of the new initial file systems."""
    for item in bad(*found):
        if item.code == NOUVEAU.code:
            yield Step("keep nouveau out, in effect at the next boot", (item,), Disruption.nothing)
        elif item.code == INITRAMFS.code:
            action = "make the initial file systems anew without nouveau, in effect at the next boot"
            yield Step(action, (item,), Disruption.nothing, target=target)


def _nouveau(boot: Boot) -> Iterator[Finding]:
    """Judge whether nouveau is kept out, and of the initial file systems too; nothing on a node without a kernel."""
    kernel = boot.next_kernel
    if kernel is None:
        return
    kept_out = boot.blacklist_written is not None
    yield NOUVEAU.compared("kept out" if kept_out else "may be loaded", "kept out", kept_out)
    if kernel.initramfs_written is None and not boot.with_nouveau:
        return
    desired = "does not load nouveau"
    if boot.with_nouveau:
        found = f"of {', '.join(boot.with_nouveau)} holds nouveau"
        yield INITRAMFS.compared(found, desired, False)
    elif kernel.initramfs_nouveau is None:
        cause = f"{INITRAMFS.cause}, and what it holds could not be read"
        yield INITRAMFS.not_known(desired, cause, _LOOK_INTO.format(release=kernel.release))
    else:
        yield INITRAMFS.compared(desired, desired, True)
