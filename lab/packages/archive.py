"""Driver packages under the names of the distributions' own archives, Debian's and Ubuntu's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpunode.lab.packages.cuda_driver import deb_of
from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.packages.driver import daemon
from gpunode.lab.packages.driver_libraries import library_content
from gpunode.lab.packages.smi_archive import program
from gpunode.lab.world import apt

# Version of the driver -> its revision. No archive has these three at once: they are for the life of one driver.
DEBIAN_VERSIONS = {"535.247.01": "-1~deb12u1", "535.261.03": "-1", "550.163.01": "-2"}
# As in Debian 12 at times, whose open module comes from another source package than the rest.
DEBIAN_OPEN_VERSIONS = ("535.247.01", "550.163.01")
UBUNTU_VERSIONS = ("570.172.08", "580.82.07", "580.95.05")
# Of the real one's numbers, and higher: a real archive beside it has none of them.
BUILT_VERSION, UNBUILDABLE_VERSION = "535.998.01", "535.999.01"
# The kernel for which Ubuntu's modules come built. The lab's node runs another, for which they are written, too.
UBUNTU_KERNEL = "6.8.0-60-generic"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# What the tables of lab/world call the module's contents, and its name on the disk.
_MODULE_NAMES = {"current-open": "nvidia-current-open", "current-proprietary": "nvidia-current"}
_MODULES = ("", "-uvm", "-modeset", "-drm", "-peermem")
_LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
_WRITE = """#!/bin/sh
set -e
# SIMULATED: where a module would be compiled or unpacked, the lab's own is written. It is not loaded.
if [ "$1" = configure ]; then
    for kernel in "$(uname -r)" {kernel}; do
        dir="/lib/modules/$kernel/updates/dkms"
        mkdir -p "$dir"
        for module in {modules}; do
            printf '%s\\n' 'SIMULATED kernel module of the gpunode lab' "name=$module" 'version={version}' \\
                'license={license}' 'flavour={flavour}' 'loads=yes' > "$dir/$module.ko"
        done
    done
fi
"""
_REMOVE = """#!/bin/sh
set -e
for kernel in "$(uname -r)" {kernel}; do
    dir="/lib/modules/$kernel/updates/dkms"
    for module in {modules}; do
        if grep -qx 'version={version}' "$dir/$module.ko" 2>/dev/null; then rm -f "$dir/$module.ko"; fi
    done
done
"""
_DKMS = """PACKAGE_NAME="nvidia-current"
PACKAGE_VERSION="{version}"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_NAME[0]="nvidia-current"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
"""
_SOURCE = """/* SIMULATED: a kernel module of gpunode's lab that drives nothing. */
#include <linux/module.h>
{line}
MODULE_DESCRIPTION("SIMULATED NVIDIA driver of gpunode's lab");
MODULE_VERSION("{version}");
MODULE_LICENSE("NVIDIA");
"""
_BUILD = """#!/bin/sh
set -e
if [ "$1" = configure ]; then /usr/lib/dkms/common.postinst nvidia-current {version} "" "" "$2"; fi
"""
_UNBUILD = """#!/bin/sh
set -e
if [ "$(dkms status -m nvidia-current -v {version})" ]; then dkms remove -m nvidia-current -v {version} --all; fi
"""


# apt takes no note of an index that is empty.
_MAIN = Deb("gpunode-lab-main", "1", "What makes the component main one that there is")


@dataclass(frozen=True)
class Archive:
    """Hold an archive: its folder in the mirror, Origin and suite, and the packages of each component."""

    folder: str
    origin: str
    suite: str
    components: tuple[tuple[str, tuple[Deb, ...]], ...]

    @property
    def packages(self) -> tuple[Deb, ...]:
        """Return all of its packages."""
        return tuple(package for _, packages in self.components for package in packages)


def archives() -> tuple[Archive, ...]:
    """Return Debian's, Debian's with a module that DKMS really builds, and Ubuntu's."""
    return (
        Archive("archive/debian", "Debian", "bookworm", _debian()),
        Archive("archive/debian-dkms", "Debian", "bookworm", _debian_built()),
        Archive("archive/ubuntu", "Ubuntu", "noble", _ubuntu()),
    )


def _debian() -> tuple[tuple[str, tuple[Deb, ...]], ...]:
    """Return the components by the table of lab/world, with SIMULATED contents."""
    found: dict[str, list[Deb]] = {"main": [_MAIN], "contrib": [], "non-free": [], "non-free-firmware": []}
    for row in apt.archive_packages("bookworm", DEBIAN_VERSIONS, DEBIAN_OPEN_VERSIONS):
        module = _MODULE_NAMES.get(row.payload)
        if module is not None:
            flavour = row.payload.removeprefix("current-")
            deb = replace(deb_of(replace(row, payload="")), scripts=_module_scripts(module, flavour, row.driver))
        elif row.payload == "nvidia-persistenced-of-any-driver":
            like = _persistenced()
            deb = replace(deb_of(replace(row, payload="")), files=like.files, scripts=like.scripts)
        else:
            deb = deb_of(row)
        found[row.component].append(deb)
    return tuple((component, tuple(debs)) for component, debs in found.items())


def _support(version: str) -> Deb:
    return Deb("nvidia-kernel-support", f"{version}-1~deb12u1", "What makes the module the one that is loaded")


def _debian_built() -> tuple[tuple[str, tuple[Deb, ...]], ...]:
    versions = (BUILT_VERSION, UNBUILDABLE_VERSION)
    packages = [package for version in versions for package in _debian_userland(version)]
    packages += [_support(version) for version in versions]
    packages += [_built(BUILT_VERSION, ""), _built(UNBUILDABLE_VERSION, "#error SIMULATED: this does not compile")]
    return (
        ("main", (_MAIN,)),
        ("contrib", (_persistenced(),)),
        ("non-free", tuple(packages)),
        ("non-free-firmware", ()),
    )


def _debian_userland(version: str) -> list[Deb]:
    full = f"{version}-1~deb12u1"
    return [
        _library("libnvidia-ml1", full, "libnvidia-ml.so"),
        _library("libcuda1", full, "libcuda.so", depends=f"libnvidia-ml1 (= {full})"),
        _library("libnvidia-cfg1", full, "libnvidia-cfg.so"),
        _smi("nvidia-smi", full, f"libnvidia-ml1 (= {full}), python3"),
    ]


def _persistenced() -> Deb:
    # Numbered on its own, and at home with every driver.
    return daemon("nvidia-persistenced", "535.171.04", "nvidia-persistenced", "nvidia-persistenced",
                  "persistence daemon", full="535.171.04-1~deb12u1", any_driver=True)  # fmt: skip


def _ubuntu() -> tuple[tuple[str, tuple[Deb, ...]], ...]:
    restricted = [package for version in UBUNTU_VERSIONS for package in _ubuntu_driver(version)]
    newest = {version.split(".")[0]: version for version in UBUNTU_VERSIONS}
    for branch, version in newest.items():
        for flavour, mark in (("proprietary", ""), ("open", "-open")):
            # Numbered by the kernel, and good for one version of the driver: the branch's newest.
            name = f"linux-modules-nvidia-{branch}-server{mark}"
            module = _module(f"{name}-{UBUNTU_KERNEL}", "6.8.0-60.63", "nvidia", flavour, version, UBUNTU_KERNEL)
            meta = Deb(f"{name}-generic", "6.8.0-60.63", "NVIDIA modules of the kernels to come", depends=module.name)
            restricted += [module, meta]
    managers = []
    for version in UBUNTU_VERSIONS:
        name = f"nvidia-fabricmanager-{version.split('.')[0]}"
        full = f"{version}-0ubuntu0.24.04.1"
        managers.append(daemon(name, version, "nv-fabricmanager", "nvidia-fabricmanager", "fabric manager", full=full))
    return (("main", (_MAIN,)), ("restricted", tuple(restricted)), ("multiverse", tuple(managers)))


def _ubuntu_driver(version: str) -> list[Deb]:
    branch, full = version.split(".")[0], f"{version}-0ubuntu0.24.04.1"
    library = f"libnvidia-compute-{branch}-server"
    utils = f"nvidia-utils-{branch}-server"
    daemons = f"nvidia-compute-utils-{branch}-server"
    found = [
        _library(library, full, "libnvidia-ml.so", "libcuda.so", provides="libnvidia-compute"),
        _smi(utils, full, f"{library} (= {full}), python3", provides="nvidia-utils"),
        replace(
            daemon(daemons, version, "nvidia-persistenced", "nvidia-persistenced", "persistence daemon", full=full),
            provides="nvidia-compute-utils",
            conflicts="nvidia-compute-utils",
            replaces="nvidia-compute-utils",
        ),
    ]
    for mark in ("", "-open"):
        name = f"nvidia-headless-no-dkms-{branch}-server{mark}"
        depends = f"{library} (= {full}), {daemons} (= {full})"
        found.append(Deb(name, full, "NVIDIA driver without X and without DKMS", depends=depends))
    return found


def _library(name: str, full: str, *files: str, depends: str = "", provides: str = "") -> Deb:
    version = full.split("-")[0]
    return Deb(
        name, full, f"NVIDIA library {', '.join(files)}", depends=depends, provides=provides, conflicts=provides,
        replaces=provides,
        files=tuple(
            payload for file in files for payload in (
                Payload(f"{_LIBRARIES}/{file}.{version}", library_content(file, version)),
                Payload(f"{_LIBRARIES}/{file}.1", link=f"{file}.{version}"),
            )
        ),
    )  # fmt: skip


def _smi(name: str, full: str, depends: str, provides: str = "") -> Deb:
    contents = Payload("usr/bin/nvidia-smi", program(full.split("-")[0]), 0o755)
    return Deb(name, full, "NVIDIA driver: nvidia-smi", depends=depends, provides=provides, conflicts=provides,
               replaces=provides, files=(contents,))  # fmt: skip


def _module(name: str, full: str, module: str, flavour: str, version: str = "", kernel: str = "") -> Deb:
    """Return a package that leaves modules on the disk, under the name that they bear there."""
    scripts = _module_scripts(module, flavour, version or full.split("-")[0], kernel)
    return Deb(name, full, f"NVIDIA kernel modules, {flavour}", scripts=scripts)


def _module_scripts(module: str, flavour: str, version: str, kernel: str = "") -> tuple[tuple[str, str], ...]:
    values = {
        "kernel": kernel,
        "modules": " ".join(f"{module}{part}" for part in _MODULES),
        "version": version,
        "license": _LICENSES[flavour],
        "flavour": flavour,
    }
    return ("postinst", _WRITE.format(**values)), ("prerm", _REMOVE.format(**values))


def _built(version: str, line: str) -> Deb:
    """Return the package whose module DKMS builds on the node, by the real compiler for real headers."""
    folder = f"usr/src/nvidia-current-{version}"
    values = {"version": version, "line": line}
    return Deb(
        "nvidia-kernel-dkms", f"{version}-1~deb12u1", "NVIDIA kernel modules, proprietary, built by DKMS",
        depends="dkms",
        files=(
            Payload(f"{folder}/dkms.conf", _DKMS.format(**values).encode()),
            Payload(f"{folder}/nvidia.c", _SOURCE.format(**values).encode()),
            Payload(f"{folder}/Kbuild", b"obj-m := nvidia.o\n"),
        ),
        scripts=(("postinst", _BUILD.format(**values)), ("prerm", _UNBUILD.format(**values))),
    )  # fmt: skip
