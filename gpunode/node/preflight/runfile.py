"""Can NVIDIA's own installer (the .run file) give this node its driver, and may it?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import versions
from gpunode.base.verdicts import Refusal
from gpunode.components import runfile
from gpunode.components.driver.flavour import chosen_flavour, installed_by_gpunode
from gpunode.node.machine import Machine
from gpunode.node.preflight.boot import without_enrolment
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings

_MIX = "NVIDIA driver installation guide: do not mix installation methods"
_OPTIONS = "nvidia-installer's options (gpunode/data/runfile.yaml)"
_TOOLS = "command -v gcc, make, dkms on the node"


def runfile_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse to mix packages with a runfile, and a runfile whose module could not be built, loaded or served."""
    yield from _mixing(settings, machine)
    if settings.driver.enabled and settings.driver.source == "runfile":
        yield from _building(settings, machine)
        yield from _by_version(settings, machine)
        if machine.pci.fabric:
            yield Refusal(
                "driver",
                "the node has NVSwitches, and a runfile brings no fabric manager, without which CUDA does not start "
                "(error 802)",
                "NVIDIA fabric manager user guide; /sys/bus/pci/devices",
                "set driver.source = 'cuda-repository', which installs fabric manager at the driver's version",
            )


def _mixing(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    desired, driver, words = settings.driver, machine.driver, wording(machine.operating_system)
    if not installed_by_gpunode(settings):
        return
    if desired.migrate:
        if desired.source != "runfile" and driver.runfile and driver.packages:
            yield Refusal(
                "driver",
                "packages of a driver and one of NVIDIA's .run installer are on the node: they have overwritten each "
                "other's files, and removing the one leaves the other in pieces",
                f"/usr/bin/nvidia-uninstall, {words.installed}; {_MIX}",
                "bring the node to driver.source = 'runfile' first, which removes the packages, and then back",
            )
        return
    if desired.source != "runfile" and driver.runfile:
        yield Refusal(
            "driver",
            "a driver of NVIDIA's .run installer is on the node, and packages would be mixed with it",
            f"/usr/bin/nvidia-uninstall; {_MIX}",
            "set driver.migrate = True to have it replaced by packages, or driver.source = 'runfile' or 'present'",
        )
    packages = [name for name, _ in driver.packages]
    if desired.source == "runfile" and packages:
        yield Refusal(
            "driver",
            f"packages of a driver are on the node ({', '.join(packages[:4])}{', …' if len(packages) > 4 else ''}), "
            "and a runfile would be mixed with them",
            f"{words.installed}; {_MIX}",
            "set driver.migrate = True to have them replaced by the runfile, or choose another driver.source",
        )


def _building(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    desired = settings.driver
    needed = ("gcc", "make", "dkms") if desired.dkms else ("gcc", "make")
    lacking = [tool for tool in needed if tool not in machine.boot.build_tools]
    # What is there already need not be built again.
    actual = machine.driver.runfile and machine.driver.module_version == desired.version
    if lacking and not actual and desired.kernel_headers == "require":
        install = wording(machine.operating_system).to_install(lacking)
        without = "" if "dkms" not in lacking else ", or set driver.dkms = False"
        yield Refusal(
            "driver",
            f"the runfile builds its module on the node, and {' and '.join(lacking)} "
            f"{'are' if len(lacking) > 1 else 'is'} not there",
            _TOOLS,
            f"{install}, or set driver.kernel_headers = 'install'{without}",
        )
    if machine.boot.secure_boot and not desired.dkms:
        yield Refusal(
            "next boot",
            "secure boot is on, and a module that the runfile builds without DKMS is signed by no key that the "
            "firmware knows: the kernel will reject it",
            "/sys/firmware/efi/efivars/SecureBoot-*",
            without_enrolment(machine.operating_system) + "set driver.dkms = True and enrol DKMS' key",
        )


def _by_version(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    version, driver = settings.driver.version, machine.driver
    if version is None:
        return
    if chosen_flavour(settings, machine.pci.gpus, machine.operating_system) == "open" and not runfile.knows(
        version, "open_module"
    ):
        yield Refusal(
            "driver",
            f"the runfile of {version} has no open kernel module",
            _OPTIONS,
            "ask for a newer driver.version, or set driver.flavour = 'proprietary'",
        )
    changes = driver.module_version is None or not versions.same(driver.module_version, version)
    if changes and driver.loaded_version is not None and not runfile.knows(version, "running_driver"):
        yield Refusal(
            "driver",
            f"the installer of {version} does not work while a driver is loaded ({driver.loaded_version})",
            _OPTIONS,
            "drain the node and unload the module (`modprobe -r nvidia_uvm nvidia`), or ask for a newer driver.version",
        )


__all__ = ["runfile_refusals"]
