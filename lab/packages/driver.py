"""Driver packages under the names of NVIDIA's CUDA repository."""

from __future__ import annotations

from lab.packages.deb import Deb, Payload
from lab.packages.smi_archive import smi_archive

DRIVER_VERSIONS = ("570.124.06", "570.172.08", "575.57.08", "580.82.07", "580.95.05", "590.48.01")
_MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
_LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_POSTINST = """#!/bin/sh
set -e
# SIMULATED build: where DKMS would compile, the fixture module is written for the running kernel. It is not loaded.
if [ "$1" = configure ]; then
    dir="/lib/modules/$(uname -r)/updates/dkms"
    mkdir -p "$dir"
    for module in {modules}; do
        printf '%s\\n' 'SIMULATED kernel module of the gpunode lab' "name=$module" 'version={version}' \\
            'license={license}' 'flavour={flavour}' > "$dir/$module.ko"
    done
    echo "$(date +%Y-%m-%dT%H:%M:%S) SIMULATED dkms: built nvidia/{version} ({flavour})" >> /var/log/gpunode-lab.log
fi
"""
_PRERM = """#!/bin/sh
set -e
dir="/lib/modules/$(uname -r)/updates/dkms"
for module in {modules}; do
    if grep -qx 'version={version}' "$dir/$module.ko" 2>/dev/null; then rm -f "$dir/$module.ko"; fi
done
"""


def driver_packages() -> list[Deb]:
    """Return every driver package of every version, and the pinning packages of versions and branches."""
    packages = [package for version in DRIVER_VERSIONS for package in _packages_of(version)]
    newest = {version.split(".")[0]: version for version in DRIVER_VERSIONS}
    packages += [_pinning(branch, f"{branch}.*", f"{version}-1") for branch, version in newest.items()]
    return packages + [_pinning(version, f"{version}-*", f"{version}-1") for version in DRIVER_VERSIONS]


def _packages_of(version: str) -> list[Deb]:
    full = f"{version}-1"
    userspace = f"nvidia-driver-cuda (= {full}), libnvidia-ml1 (= {full}), nvidia-persistenced (= {full})"
    library = f"{_LIBRARIES}/libnvidia-ml.so"
    return [
        Deb(
            "nvidia-open",
            full,
            "NVIDIA driver with the open kernel modules (meta package)",
            depends=f"nvidia-kernel-open-dkms (= {full}), {userspace}",
        ),
        Deb(
            "cuda-drivers",
            full,
            "NVIDIA driver with the proprietary kernel modules (meta package)",
            depends=f"nvidia-kernel-dkms (= {full}), {userspace}",
        ),
        _dkms("nvidia-kernel-open-dkms", "nvidia-kernel-dkms", version, "open"),
        _dkms("nvidia-kernel-dkms", "nvidia-kernel-open-dkms", version, "proprietary"),
        Deb(
            "libnvidia-ml1",
            full,
            "NVIDIA management library",
            files=(
                Payload(f"{library}.{version}", f"SIMULATED libnvidia-ml {version}\n".encode()),
                Payload(f"{library}.1", link=f"libnvidia-ml.so.{version}"),
            ),
        ),
        Deb(
            "nvidia-driver-cuda",
            full,
            "NVIDIA driver, compute part: nvidia-smi",
            depends=f"libnvidia-ml1 (= {full}), python3",
            files=(Payload("usr/bin/nvidia-smi", smi_archive(version), 0o755),),
        ),
        Deb("nvidia-persistenced", full, "NVIDIA persistence daemon (no daemon in the fixture)"),
    ]


def _dkms(name: str, other: str, version: str, flavour: str) -> Deb:
    values = {
        "modules": " ".join(_MODULES),
        "version": version,
        "license": _LICENSES[flavour],
        "flavour": flavour,
    }
    full = f"{version}-1"
    return Deb(
        name,
        full,
        f"NVIDIA kernel modules, {flavour}, built by DKMS",
        depends=f"libnvidia-ml1 (= {full})",
        conflicts=other,
        replaces=other,
        scripts=(("postinst", _POSTINST.format(**values)), ("prerm", _PRERM.format(**values))),
    )


def _pinning(name: str, pattern: str, version: str) -> Deb:
    packages = "nvidia-open* cuda-drivers* nvidia-kernel* nvidia-driver-cuda* libnvidia-* nvidia-persistenced*"
    preferences = f"Package: {packages}\nPin: version {pattern}\nPin-Priority: 1001\n"
    # Not a conffile: one that stayed behind after removal would go on pinning.
    # apt reads a file with a dot in its name only if it ends in .pref: 580.95.05 alone would be passed over.
    path = f"etc/apt/preferences.d/nvidia-driver-pinning-{name}.pref"
    return Deb(
        f"nvidia-driver-pinning-{name}",
        version,
        f"Keep the NVIDIA driver at {name}",
        architecture="all",
        provides="nvidia-driver-pinning",
        conflicts="nvidia-driver-pinning",
        replaces="nvidia-driver-pinning",
        files=(Payload(path, preferences.encode()),),
    )
