"""Will the kernel that boots next load the driver that is on disk?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.families.wording import headers_package
from gpunode.findings import Finding
from gpunode.node import Node
from gpunode.verify.nouveau import nouveau


def next_boot(node: Node) -> Iterator[Finding]:
    """Judge whether the kernel that boots next will load the driver that is on disk; nothing where none is known."""
    yield from nouveau(node.boot)
    kernel, driver, boot = node.boot.next_kernel, node.driver, node.boot
    if kernel is None or driver.module_version is None:
        return
    release = kernel.release
    built = any(name.startswith("linux-modules-nvidia-") for name, _ in driver.packages)
    build = f"`dkms autoinstall -k {release}` on the node, before it boots"
    if not kernel.headers:
        build = f"install {headers_package(node.operating_system, kernel)}, then {build}"
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
        "driver", Subject.NEXT_BOOT, kernel.module_version, driver.module_version,
        kernel.module_version == driver.module_version, remedy=build, cause=cause,
    )  # fmt: skip
    if boot.secure_boot and kernel.module_version is not None:
        yield compared(
            "driver", Subject.SIGNATURE, kernel.module_signer, "signed by a key that the firmware knows",
            # What DKMS built, DKMS signed.
            kernel.module_signer is not None and (boot.key_enrolled or boot.dkms_state("nvidia", release) is None),
            remedy="enrol a key and sign the module (`mokutil --import`, `dkms autoinstall`), or use signed packages",
            cause="secure boot is on: the kernel will reject the module", disturbs=Disturbance.reboot,
        )  # fmt: skip
