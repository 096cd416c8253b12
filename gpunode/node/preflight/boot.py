"""Will the kernel that boots next load the driver that is to be installed?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.packages.driver_packages.sources import driver_source, of_another_source
from gpunode.packages.families.wording import headers_package
from gpunode.settings import Settings
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem

_ENROL = (
    "enrol the key that DKMS signs with (Debian: /var/lib/dkms/mok.pub, made when DKMS first builds a module; Ubuntu: "
    "/var/lib/shim-signed/mok/MOK.der, made by `update-secureboot-policy --new-key`): `mokutil --import KEY`, which "
    "asks for a password, reboot, choose `Enroll MOK` at the console and enter it; or switch secure boot off"
)


def without_enrolment(system: OperatingSystem) -> str:
    """Return the remedy for secure boot that needs no key, as the remedy begins; empty where none exists."""
    own = tables.driver_source("distribution", system.id)
    # What a rolling release has built comes without a signature.
    if own is None or own.built_on_node or own.origin is None:
        return ""
    return "set driver.source = 'distribution', whose modules come signed by a key that the firmware knows; or "


def built_on_node(settings: Settings, system: OperatingSystem, boot: Boot) -> bool:
    """Say whether the driver's module is built on the node, by DKMS or by the runfile, rather than brought built."""
    source = driver_source(settings, system, boot)
    by_runfile = settings.driver.enabled and settings.driver.source == "runfile"
    return by_runfile or (source is not None and source.built_on_node)


NO_HEADERS = RefusalMessage(
    "boot-no-headers",
    "The kernel that boots next has no headers, so that no NVIDIA module can be built for it.",
    component="next boot",
    reason="kernel {kernel.release} boots next (decided by {decided}) and has no headers for an NVIDIA module",
    source="/lib/modules/{kernel.release}/build; NVIDIA driver installation guide, pre-installation actions",
    remedy="install {headers}{by_us}",
)
KEY_NOT_ENROLLED = RefusalMessage(
    "boot-key-not-enrolled",
    component="next boot",
    reason="secure boot is on, and the kernel rejects DKMS' module: the firmware does not know the key that signs it",
    source="/sys/firmware/efi/efivars/SecureBoot-*, mokutil --test-key",
    remedy="{instead}" + _ENROL,
)
MODULE_UNSIGNED = RefusalMessage(
    "boot-module-unsigned",
    "Secure boot is on, and the next kernel's NVIDIA module is not signed.",
    component="next boot",
    reason="secure boot is on, and kernel {kernel.release} will reject its nvidia module, which is not signed",
    source="modinfo -k {kernel.release} -F signer nvidia",
    remedy="{instead}" + _ENROL,
)


def boot_refusals(
    settings: Settings, system: OperatingSystem, boot: Boot, installed: Iterable[str] = ()
) -> Iterator[Refusal]:
    """Refuse what would leave the next boot without a driver: no headers to build by, a module that the kernel rejects.

    + installed: names of the driver's packages: what came from another source goes, its modules too
    """
    kernel = boot.next_kernel
    if kernel is None or not settings.driver.enabled:
        return
    builds, source = built_on_node(settings, system, boot), driver_source(settings, system, boot)
    desired = settings.driver.version or settings.driver.branch
    # An installed module of that version is not built again; any other is, even where an older module is on the disk.
    actual = (
        kernel.module_version is not None and desired is not None and versions.in_branch(kernel.module_version, desired)
    )
    actual = actual and not (source is not None and of_another_source(source, installed))
    # The packages' modules go as the runfile comes.
    actual = actual and not (settings.driver.source == "runfile" and tuple(installed))
    can_install = tables.installs_headers(system.id) or tables.headers_of_image(system.id)
    if (
        builds
        and not kernel.headers
        and not actual
        and not (can_install and settings.driver.kernel_headers == "install")
    ):
        by_us = ", or set driver.kernel_headers = 'install'" if can_install else ""
        headers = headers_package(system, kernel)
        yield NO_HEADERS(kernel=kernel, decided=_decided(boot), headers=headers, by_us=by_us)
    if not boot.secure_boot:
        return
    # What the runfile builds without DKMS is judged there (preflight/runfile.py).
    signs = settings.driver.source != "runfile" or settings.driver.dkms
    if builds and signs and not boot.key_enrolled:
        yield KEY_NOT_ENROLLED(instead=without_enrolment(system))
    # What gpunode installs without building it comes signed by the distribution.
    elif settings.driver.source == "present" and kernel.module_version is not None and kernel.module_signer is None:
        instead = without_enrolment(system) or "install the distribution's signed module packages, or "
        yield MODULE_UNSIGNED(kernel=kernel, instead=instead)


OTHER_COMPILER = CautionMessage(
    "boot-other-compiler",
    "The node's gcc is not the version that built the kernel, so that the module may not build.",
    component="next boot",
    reason="gcc is {boot.compiler}, and {kernel.compiler} built kernel {kernel.release}: the module may not build",
    source="/boot/config-{kernel.release} (CONFIG_CC_VERSION_TEXT), gcc -dumpversion",
    remedy="install gcc {kernel.compiler}",
)
REBOOTS_FIRST = CautionMessage(
    "boot-reboots-first",
    "A module can only be built for the kernel that boots next, so that the driver will load after a reboot.",
    component="next boot",
    reason="kernel {boot.running} runs without headers: the module is built for {kernel.release}, which boots next",
    source="/lib/modules/{boot.running}/build",
    remedy="reboot first, or accept that the node is reported reboot pending",
)


def boot_cautions(settings: Settings, system: OperatingSystem, boot: Boot) -> Iterator[Caution]:
    """Warn of a compiler that is not the kernel's, and of a running kernel that no module can be built for."""
    kernel = boot.next_kernel
    if kernel is None or not built_on_node(settings, system, boot):
        return
    if kernel.compiler and boot.compiler and kernel.compiler != boot.compiler:
        yield OTHER_COMPILER(boot=boot, kernel=kernel)
    running = next((item for item in boot.kernels if item.release == boot.running), None)
    if boot.running != kernel.release and (running is None or not running.headers):
        yield REBOOTS_FIRST(boot=boot, kernel=kernel)


def _decided(boot: Boot) -> str:
    return {"grub": "GRUB's configuration", "link": "the link /vmlinuz"}.get(
        boot.decided_by or "", "its version: it is the newest in /boot"
    )
