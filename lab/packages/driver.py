"""The SIMULATED contents of the driver's packages, and these packages in a simple form.

The contents are those that rows of lab/world/apt_driver.yaml name (`payload`). The simple form is what the fixtures of
other package managers are made of; what apt gets is in lab/packages/cuda_driver.py, with the relations of the table.
"""

from __future__ import annotations

from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.packages.driver_libraries import library_content
from gpunode.lab.packages.imex import imex_files
from gpunode.lab.packages.smi_archive import program

DRIVER_VERSIONS = (
    "570.124.06", "570.172.08", "575.57.08", "580.82.07", "580.95.05", "590.48.01", "595.45.04", "595.58.03",
)  # fmt: skip
# Installs like any other, and its module does not load.
BROKEN_VERSION = "595.45.04"
# Its metapackages hold nothing and pull the newest driver there is, of another branch.
TRANSITIONAL_VERSION = "575.64.05"
_MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
_LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
_MODULE_FLAVOURS = {f"module-{flavour}": flavour for flavour in _LICENSES}
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# In place of depmod, which takes no text for a module: the toolkit's nvidia-cdi-refresh.service reads this list.
# Where the real depmod wrote, the list is not ours.
DEPMOD = """(cd "/lib/modules/$(uname -r)" && [ ! -e modules.alias ] || exit 0
    find . -name '*.ko' -printf '%P:\\n' > modules.dep; [ -s modules.dep ] || rm modules.dep)"""
_POSTINST = """#!/bin/sh
set -e
# SIMULATED build: where DKMS would compile, the fixture module is written for the running kernel. It is not loaded.
if [ "$1" = configure ]; then
    dir="/lib/modules/$(uname -r)/updates/dkms"
    mkdir -p "$dir"
    for module in {modules}; do
        printf '%s\\n' 'SIMULATED kernel module of the gpunode lab' "name=$module" 'version={version}' \\
            'license={license}' 'flavour={flavour}' 'loads={loads}' > "$dir/$module.ko"
    done
    {depmod}
    echo "$(date +%Y-%m-%dT%H:%M:%S) SIMULATED dkms: built nvidia/{version} ({flavour})" >> /var/log/gpunode-lab.log
fi
"""
_DAEMON = """#!/bin/sh
# SIMULATED {title} of gpunode's lab: like the real one it starts only with the module of its own version.
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
said="SIMULATED {program} {version}: the loaded driver is ${{loaded:-none}}"
echo "$(date +%Y-%m-%dT%H:%M:%S) $said" >> /var/log/gpunode-lab.log
[ "$loaded" {match} ] || {{ echo "$said" >&2; exit 1; }}
exec sleep infinity
"""
_UNIT = """[Unit]
Description=SIMULATED {title} of gpunode's lab
After=gpunode-lab-hardware.service

[Service]
ExecStart=/usr/bin/{program}

[Install]
WantedBy=multi-user.target
"""
# The real one takes the major number from /proc/devices, which is the host's kernel's here.
_MODPROBE = b"""#!/bin/sh
# SIMULATED nvidia-modprobe of gpunode's lab: -u makes the devices of nvidia_uvm, where that is loaded.
echo "$(date +%Y-%m-%dT%H:%M:%S) SIMULATED nvidia-modprobe $*" >> /var/log/gpunode-lab.log
case " $* " in *' -u '*) ;; *) exit 0;; esac
[ -d /sys/module/nvidia_uvm ] || exit 1
[ -e /dev/nvidia-uvm ] || mknod -m 666 /dev/nvidia-uvm c 511 0
[ -e /dev/nvidia-uvm-tools ] || mknod -m 666 /dev/nvidia-uvm-tools c 511 1
"""
# As debhelper would: systemd reads the unit, and nothing is restarted.
_DAEMON_RELOAD = """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
_DAEMON_PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now --quiet {unit}; fi
"""
_PRERM = """#!/bin/sh
set -e
dir="/lib/modules/$(uname -r)/updates/dkms"
for module in {modules}; do
    # rpm takes the old flavour away after the new one has come.
    if grep -qx 'version={version}' "$dir/$module.ko" 2>/dev/null && grep -qx 'flavour={flavour}' "$dir/$module.ko"
    then rm -f "$dir/$module.ko"; fi
done
[ ! -d "$dir" ] || {depmod}
"""


def driver_packages() -> list[Deb]:
    """Return the driver's packages in a simple form, which other package managers' fixtures are made of."""
    packages = [package for version in DRIVER_VERSIONS for package in packages_of(version)]
    return [*packages, *transitional()]


def transitional() -> list[Deb]:
    """Return metapackages that hold nothing and pull the newest driver there is, of another branch."""
    kernels = {"nvidia-open": "nvidia-kernel-open-dkms", "cuda-drivers": "nvidia-kernel-dkms"}
    return [
        Deb(
            name,
            f"{TRANSITIONAL_VERSION}-1",
            "NVIDIA driver (transitional package: it pulls the next branch)",
            depends=f"{kernel} (>= 580), nvidia-driver-cuda (>= 580)",
        )
        for name, kernel in kernels.items()
    ]


def contents(payload: str, version: str) -> tuple[tuple[Payload, ...], tuple[tuple[str, str], ...]]:
    """Return files and scripts of a SIMULATED content of the tables (lab/world/apt_driver.yaml: payload)."""
    if payload in _MODULE_FLAVOURS:
        return (), _module_scripts(version, _MODULE_FLAVOURS[payload])
    if payload == "nvidia-smi-and-libraries":
        return (*contents("nvidia-smi", version)[0], *contents("libraries", version)[0]), ()
    if payload == "libraries":
        return (*contents("libnvidia-ml", version)[0], *contents("libcuda", version)[0]), ()
    if payload == "nvidia-smi":
        return (Payload("usr/bin/nvidia-smi", program(version), 0o755),), ()
    if payload == "nvidia-modprobe":
        return (Payload("usr/bin/nvidia-modprobe", _MODPROBE, 0o755),), ()
    if payload in ("libnvidia-ml", "libcuda"):
        name = f"{payload}.so"
        return (
            Payload(f"{_LIBRARIES}/{name}.{version}", library_content(name, version)),
            Payload(f"{_LIBRARIES}/{name}.1", link=f"{name}.{version}"),
        ), ()
    if payload == "nvidia-imex":
        return imex_files(version), _daemon_scripts("nvidia-imex")
    if payload == "nvidia-persistenced":
        like = daemon(payload, version, "nvidia-persistenced", payload, "persistence daemon")
    elif payload == "nvidia-fabricmanager":
        like = daemon(payload, version, "nv-fabricmanager", payload, "fabric manager")
    else:
        assert payload == "", payload
        return (), ()
    return like.files, like.scripts


def packages_of(version: str) -> list[Deb]:
    """Return the driver's packages of one version in a simple form, the pinning ones apart."""
    full = f"{version}-1"
    userspace = f"nvidia-driver-cuda (= {full}), libnvidia-ml1 (= {full}), nvidia-persistenced (= {full})"
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
        Deb("libnvidia-ml1", full, "NVIDIA management library", files=contents("libraries", version)[0]),
        Deb(
            "nvidia-driver-cuda",
            full,
            "NVIDIA driver, compute part: nvidia-smi",
            depends=f"libnvidia-ml1 (= {full}), python3",
            files=contents("nvidia-smi", version)[0],
        ),
        daemon("nvidia-persistenced", version, "nvidia-persistenced", "nvidia-persistenced", "persistence daemon"),
        _fabric_manager(version),
    ]


def _fabric_manager(version: str) -> Deb:
    branch = version.split(".")[0]
    name = "nvidia-fabricmanager" if int(branch) >= 580 else f"nvidia-fabricmanager-{branch}"
    return daemon(name, version, "nv-fabricmanager", "nvidia-fabricmanager", "fabric manager")


def daemon(
    name: str, version: str, program: str, unit: str, title: str, full: str = "", any_driver: bool = False
) -> Deb:
    """Return the package of a daemon; `full` is its package's version, where that is not NVIDIA's own."""
    match = '!= ""' if any_driver else f"= {version}"
    values = {"version": version, "program": program, "title": title, "unit": unit, "match": match}
    # Under any of its names it is one and the same program.
    exclusive = unit if unit == "nvidia-fabricmanager" else ""
    return Deb(
        name,
        full or f"{version}-1",
        f"NVIDIA {title}",
        files=(
            Payload(f"usr/bin/{program}", _DAEMON.format(**values).encode(), 0o755),
            Payload(f"lib/systemd/system/{unit}.service", _UNIT.format(**values).encode()),
        ),
        scripts=_daemon_scripts(unit),
        provides=exclusive,
        conflicts=exclusive,
        replaces=exclusive,
    )


def _daemon_scripts(unit: str) -> tuple[tuple[str, str], ...]:
    prerm = _DAEMON_PRERM.format(unit=unit)
    return ("postinst", _DAEMON_RELOAD), ("prerm", prerm), ("postrm", _DAEMON_RELOAD)


def _dkms(name: str, other: str, version: str, flavour: str) -> Deb:
    full = f"{version}-1"
    return Deb(
        name,
        full,
        f"NVIDIA kernel modules, {flavour}, built by DKMS",
        depends=f"libnvidia-ml1 (= {full})",
        conflicts=other,
        replaces=other,
        scripts=_module_scripts(version, flavour),
    )


def _module_scripts(version: str, flavour: str) -> tuple[tuple[str, str], ...]:
    values = {
        "modules": " ".join(_MODULES),
        "version": version,
        "license": _LICENSES[flavour],
        "flavour": flavour,
        "loads": "no" if version == BROKEN_VERSION else "yes",
    }
    return ("postinst", _POSTINST.format(depmod=DEPMOD, **values)), ("prerm", _PRERM.format(depmod=DEPMOD, **values))
