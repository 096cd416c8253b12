"""Will the kernel that boots next load the driver that is to be installed, also one of a .run installer?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components import runfile
from gpunode.components.driver.flavour import chosen_flavour
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages.sources import driver_source, of_another_source
from gpunode.packages.families.wording import headers_package, wording
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
    # What the runfile builds without DKMS is judged by `_building`.
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


_NOT_MIXED = "NVIDIA driver installation guide: do not mix installation methods"

NVSWITCH = RefusalMessage(
    "runfile-nvswitch",
    component="driver",
    reason="the node has NVSwitches, and a runfile has no fabric manager: CUDA does not start (error 802)",
    source="NVIDIA fabric manager user guide; /sys/bus/pci/devices",
    remedy="set driver.source = 'cuda-repository', which installs fabric manager at the driver's version",
)


def runfile_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse to mix packages with a runfile, and a runfile whose module could not be built, loaded or served."""
    yield from _mixing(settings, machine)
    if settings.driver.enabled and settings.driver.source == "runfile":
        yield from _building(settings, machine)
        yield from _by_version(settings, machine)
        if machine.pci.fabric:
            yield NVSWITCH()


BOTH_INSTALLED = RefusalMessage(
    "runfile-both-there",
    "Packages of a driver and one of NVIDIA's .run installer are on the node at once.",
    component="driver",
    reason="packages of a driver and one of NVIDIA's .run installer are on the node: they have overwritten each "
    "other's files, and removing one breaks the other",
    source="/usr/bin/nvidia-uninstall, {installed}; " + _NOT_MIXED,
    remedy="run first with driver.source = 'runfile', which removes the packages, and then with the desired source",
)
UNDER_PACKAGES = RefusalMessage(
    "runfile-under-packages",
    component="driver",
    reason="a driver of NVIDIA's .run installer is on the node, and packages would be mixed with it",
    source="/usr/bin/nvidia-uninstall; " + _NOT_MIXED,
    remedy="set driver.migrate = True to have it replaced by packages, or driver.source = 'runfile' or 'present'",
)
OVER_PACKAGES = RefusalMessage(
    "runfile-over-packages",
    "Packages of a driver are on the node, and a runfile would be mixed with them.",
    component="driver",
    reason="packages of a driver are on the node ({packages}{more}), and a runfile would be mixed with them",
    source="{installed}; " + _NOT_MIXED,
    remedy="set driver.migrate = True to have them replaced by the runfile, or choose another driver.source",
)


def _mixing(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    desired, driver, installed = settings.driver, machine.driver, wording(machine.operating_system).installed
    if not settings.driver.installs:
        return
    if desired.migrate:
        if desired.source != "runfile" and driver.runfile and driver.packages:
            yield BOTH_INSTALLED(installed=installed)
        return
    if desired.source != "runfile" and driver.runfile:
        yield UNDER_PACKAGES()
    packages = [name for name, _ in driver.packages]
    if desired.source == "runfile" and packages:
        more = ", …" if len(packages) > 4 else ""
        yield OVER_PACKAGES(packages=", ".join(packages[:4]), more=more, installed=installed)


NO_TOOLS = RefusalMessage(
    "runfile-no-tools",
    "The runfile builds its module on the node, which lacks the tools for it.",
    component="driver",
    reason="the runfile builds its module on the node, which lacks {lacking}",
    source="command -v gcc, make, dkms on the node",
    remedy="{install}, or set driver.kernel_headers = 'install'{without}",
)
SECURE_BOOT = RefusalMessage(
    "runfile-secure-boot",
    component="next boot",
    reason="secure boot is on, and the kernel rejects a module that the runfile builds without DKMS",
    source="/sys/firmware/efi/efivars/SecureBoot-*",
    remedy="{instead}set driver.dkms = True and enrol DKMS' key",
)


def _building(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    desired = settings.driver
    needed = ("gcc", "make", "dkms") if desired.dkms else ("gcc", "make")
    lacking = [tool for tool in needed if tool not in machine.boot.build_tools]
    # An installed driver of that version is not built again.
    actual = machine.driver.runfile and machine.driver.module_version == desired.version
    if lacking and not actual and desired.kernel_headers == "require":
        install = wording(machine.operating_system).to_install(lacking)
        without = "" if "dkms" not in lacking else ", or set driver.dkms = False"
        yield NO_TOOLS(lacking=" and ".join(lacking), install=install, without=without)
    if machine.boot.secure_boot and not desired.dkms:
        yield SECURE_BOOT(instead=without_enrolment(machine.operating_system))


NO_OPEN_MODULE = RefusalMessage(
    "runfile-no-open-module",
    "The runfile of this version has no open kernel module.",
    component="driver",
    reason="the runfile of {version} has no open kernel module",
    source="nvidia-installer's options (gpunode/data/runfile.yaml)",
    remedy="set a newer driver.version, or driver.flavour = 'proprietary'",
)
WHILE_LOADED = RefusalMessage(
    "runfile-while-loaded",
    "The installer of this version does not work while a driver is loaded.",
    component="driver",
    reason="the installer of {version} does not work while a driver is loaded ({loaded})",
    source="nvidia-installer's options (gpunode/data/runfile.yaml)",
    remedy="drain the node and unload the module (`modprobe -r nvidia_uvm nvidia`), or set a newer driver.version",
)


def _by_version(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    version, driver = settings.driver.version, machine.driver
    if version is None:
        return
    if chosen_flavour(settings, machine.pci.gpus, machine.operating_system) == "open" and not runfile.knows(
        version, "open_module"
    ):
        yield NO_OPEN_MODULE(version=version)
    changes = driver.module_version is None or not versions.same(driver.module_version, version)
    if changes and driver.loaded_version is not None and not runfile.knows(version, "running_driver"):
        yield WHILE_LOADED(version=version, loaded=driver.loaded_version)
