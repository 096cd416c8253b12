"""Can NVIDIA's own installer (the .run file) give this node its driver, and may it?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import versions
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.components import runfile
from gpunode.components.driver.flavour import chosen_flavour
from gpunode.node.machine import Machine
from gpunode.node.preflight.boot import without_enrolment
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings

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
