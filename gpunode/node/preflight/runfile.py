"""Can NVIDIA's own installer (the .run file) give this node its driver, and may it?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import versions
from gpunode.base.verdicts import Refusal
from gpunode.components import runfile
from gpunode.components.driver.flavour import chosen_flavour, installed_by_gpunode
from gpunode.node.machine import Machine
from gpunode.node.preflight.boot import without_enrolment
from gpunode.node.preflight.words import refusal
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings


def runfile_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse to mix packages with a runfile, and a runfile whose module could not be built, loaded or served."""
    yield from _mixing(settings, machine)
    if settings.driver.enabled and settings.driver.source == "runfile":
        yield from _building(settings, machine)
        yield from _by_version(settings, machine)
        if machine.pci.fabric:
            yield refusal("runfile-nvswitch")


def _mixing(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    desired, driver, words = settings.driver, machine.driver, wording(machine.operating_system)
    if not installed_by_gpunode(settings):
        return
    if desired.migrate:
        if desired.source != "runfile" and driver.runfile and driver.packages:
            yield refusal("runfile-both-there", words=words)
        return
    if desired.source != "runfile" and driver.runfile:
        yield refusal("runfile-under-packages")
    packages = [name for name, _ in driver.packages]
    if desired.source == "runfile" and packages:
        yield refusal(
            "runfile-over-packages",
            packages=", ".join(packages[:4]),
            more=", …" if len(packages) > 4 else "",
            words=words,
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
        yield refusal(
            "runfile-no-tools",
            lacking=" and ".join(lacking),
            are="are" if len(lacking) > 1 else "is",
            install=install,
            without=without,
        )
    if machine.boot.secure_boot and not desired.dkms:
        yield refusal("runfile-secure-boot", instead=without_enrolment(machine.operating_system))


def _by_version(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    version, driver = settings.driver.version, machine.driver
    if version is None:
        return
    if chosen_flavour(settings, machine.pci.gpus, machine.operating_system) == "open" and not runfile.knows(
        version, "open_module"
    ):
        yield refusal("runfile-no-open-module", version=version)
    changes = driver.module_version is None or not versions.same(driver.module_version, version)
    if changes and driver.loaded_version is not None and not runfile.knows(version, "running_driver"):
        yield refusal("runfile-while-loaded", version=version, driver=driver)
