"""What a change of the driver is to reach, as a digest that the journal of a failed change keeps.

It holds what decides whether the change can work: other settings, another kernel, its headers, the tools that build
the module, or an enrolled key make it another target, which a run tries.
"""

from __future__ import annotations

from gpunode.base.decision import target_digest
from gpunode.components.driver.coming import headers_to_come, tools_to_come
from gpunode.components.driver.sides import Actual, Desired
from gpunode.components.driver.state import DriverState
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem


def packages_target(desired: Desired, boot: Boot, system: OperatingSystem) -> str:
    """Return the target of a change by packages."""
    kernel = boot.next_kernel
    lacks_headers = kernel is not None and not kernel.headers and headers_to_come(desired, boot, system) is None
    rules = (f"{name}={rule or ''}" for name, rule in sorted(desired.packages.items()))
    return target_digest(*rules, desired.rule or "", repr((boot.next_release, lacks_headers, _unknown_key(boot))))


def runfile_target(version: str, sha256: str, flavour: str, dkms: bool, boot: Boot, driver: DriverState) -> str:
    """Return the target of a change by NVIDIA's .run file."""
    kernel = boot.next_kernel
    headers = kernel is not None and kernel.headers
    kernels = (boot.running, boot.next_release, headers, _unknown_key(boot), driver.nouveau_bound)
    return target_digest(version, sha256, flavour, repr((dkms, *kernels, boot.compiler, boot.build_tools)))


def _unknown_key(boot: Boot) -> bool:
    return bool(boot.secure_boot) and not boot.key_enrolled


def removal_target(driver: DriverState) -> str:
    """Return the target of the driver's removal."""
    return target_digest("absent", str(driver.runfile), *(f"{name}={version}" for name, version in driver.packages))


def initramfs_target(boot: Boot) -> str:
    """Return the target of new initial file systems: a newer image or blacklist is another one."""
    written = (line for line in images(boot) if line.split(" ")[0] in boot.with_nouveau)
    return target_digest(*written, str(boot.blacklist_written))


def images(boot: Boot) -> list[str]:
    """Return "RELEASE TIME" of each initial file system that is there and could be read."""
    return [
        f"{kernel.release} {kernel.initramfs_written:.0f}"
        for kernel in boot.kernels
        if kernel.initramfs_written is not None and kernel.initramfs_nouveau is not None
    ]


def target(desired: Desired, actual: Actual) -> str | None:
    """Return the target of the change that a run makes; None where the run first installs what builds the module."""
    settings, boot = desired.settings, actual.boot
    if settings.source != "runfile":
        return packages_target(desired, boot, actual.system)
    if tools_to_come(desired, boot) or headers_to_come(desired, boot, actual.system):
        return None
    version, sha256 = settings.version or "", settings.runfile_sha256 or ""
    return runfile_target(version, sha256, desired.flavour, settings.dkms, boot, actual.driver)
