"""Driver packages whose kernel modules are real ones: DKMS builds them on a node that has a kernel of its own.

They drive no GPU and say SIMULATED wherever they speak. For virtual machines; a container has no kernel to build for.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.packages.driver import packages_of

VERSIONS = ("580.82.07", "580.95.05")
_SOURCES = ("nvidia.c", "nvidia-uvm.c", "Kbuild")
# Package -> what /proc/driver/nvidia/version calls the module, and its licence.
_FLAVOURS = {
    "nvidia-kernel-open-dkms": ("Open Kernel Module for x86_64", "Dual MIT/GPL"),
    "nvidia-kernel-dkms": ("x86_64 Kernel Module", "NVIDIA"),
}
_SETTINGS = """#define LAB_VERSION "{version}"
#define LAB_TITLE "{title}"
#define LAB_LICENSE "{license}"
#define LAB_COMPILER "gcc version " __VERSION__
"""
_DKMS = """PACKAGE_NAME="nvidia"
PACKAGE_VERSION="{version}"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
BUILT_MODULE_NAME[1]="nvidia-uvm"
DEST_MODULE_LOCATION[1]="/updates/dkms"
AUTOINSTALL="yes"
"""
# As debhelper's would be.
_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then /usr/lib/dkms/common.postinst nvidia {version} "" "" "$2"; fi
"""
_PRERM = """#!/bin/sh
set -e
if [ "$(dkms status -m nvidia -v {version})" ]; then dkms remove -m nvidia -v {version} --all; fi
"""


def built_driver_packages() -> list[Deb]:
    """Return the driver's packages of a few versions of one branch, in a simple form."""
    return [_built(deb, version) for version in VERSIONS for deb in packages_of(version)]


def _built(deb: Deb, version: str) -> Deb:
    if deb.name not in _FLAVOURS:
        return deb
    title, license_name = _FLAVOURS[deb.name]
    values = {"version": version, "title": title, "license": license_name}
    folder = resources.files(__package__).joinpath("kernel_module")
    content = {name: folder.joinpath(name).read_bytes() for name in _SOURCES}
    content |= {"settings.h": _SETTINGS.format(**values).encode(), "dkms.conf": _DKMS.format(**values).encode()}
    return replace(
        deb,
        depends=f"{deb.depends}, dkms",
        files=tuple(Payload(f"usr/src/nvidia-{version}/{name}", content[name]) for name in sorted(content)),
        scripts=(("postinst", _POSTINST.format(**values)), ("prerm", _PRERM.format(**values))),
    )
