"""Which packages are the driver's, which bring kernels, and which branch a package's version tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError

# Globs, as dpkg-query and apt's preferences take them, and what of their catch is not the driver, as grep -E takes it:
# the container toolkit, and CUDA's own tools under Debian's names.
GLOBS = (
    "nvidia-*",
    "libnvidia-*",
    "lib*-nvidia*",
    "cuda-drivers*",
    "libcuda1",
    "libcudadebugger1",
    "libnvcuvid1",
    "libnvoptix1",
    "libxnvctrl*",
    "libnvsdm*",
    "xserver-xorg-video-nvidia*",
    "linux-modules-nvidia-*",
    "linux-objects-nvidia-*",
    "linux-signatures-nvidia-*",
    "firmware-nvidia-*",
    "nvlsm",
)
OWN = (
    "^(nvidia|nvidia-.*|opencl-nvidia|lib32-(nvidia-utils|opencl-nvidia)|libnvidia-.*|kmod-nvidia-.*|cuda-drivers.*|"
    "lib(glx|egl|gl|gl1|gles|gles1|gles2)-nvidia.*|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|"
    "libxnvctrl(0|-dev)|libnvsdm(-.*)?|xserver-xorg-video-nvidia.*|linux-(modules|objects|signatures)-nvidia-.*|"
    "firmware-nvidia-.*|nvlsm|"
    "kernel-firmware-nvidia-gsp.*|nv-prefer-signed-open-driver)$"
)
FOREIGN = (
    "^(nvidia-container-.*|libnvidia-container.*|nvidia-docker.*|nvidia-cuda-(toolkit|dev|gdb|samples|doc).*|"
    "nvidia-cudnn.*|nvidia-(visual-)?profiler.*|nvidia-nsight.*|nvidia-mig-.*|nvidia-gpu-.*|nvidia-dcgm.*|nvidia-texture-tools.*|nvidia-prime.*|nvidia-acs-.*|"
    "nvidia-fs.*|nvidia-gds.*|nvidia-mlnx.*)$"
)
_OWN, _FOREIGN = re.compile(OWN), re.compile(FOREIGN)
# What the driver asks of the distribution: it is installed with the driver, and neither held nor removed with it.
COMPANIONS = ("infiniband-diags",)
# linux-image-amd64 and linux-generic bring the next kernel; linux-image-6.1.0-40-amd64 is one kernel and stays.
KERNEL_GLOBS = ("linux-*",)
_KERNEL_META = re.compile(
    r"kernel(-core|-devel|-devel-matched|-headers|-modules|-modules-core|-modules-extra)?|"
    r"kernel-(default|azure|64kb|rt|macros|syms)(-base|-devel)?|"
    r"kernel(-uek|\d+\.\d+)(-core|-devel|-headers|-modules|-modules-core|-modules-extra)?|"
    r"linux(-(lts|zen|hardened|rt|rt-lts))?(-headers)?|linux(-image|-headers)?-"
    r"(generic|virtual|lowlatency|aws|azure|gcp|gke|oracle|oem|nvidia|raspi|kvm|((cloud|rt)-)?(amd64|arm64))(-[a-z0-9.]+)*"
)
_DRIVER_VERSION = re.compile(r"(?:\d+:)?(\d{3})\.\d{2,3}(?:\.\d+)?(?:[-+~_].*)?", re.ASCII)
_IMEX = re.compile(r"nvidia-imex(-\d{3})?")
_FABRIC_MANAGER = re.compile(r"nvidia-fabric-?manager(-\d{3})?")
# What dpkg and rpm take for a name and for a version.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]+", re.ASCII)
DEB_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~:_^-]*", re.ASCII)


def is_package(name: str, version: str) -> bool:
    """Say whether these are a package's name and version, as dpkg and rpm take them: anybody may edit a file."""
    return NAME.fullmatch(name) is not None and DEB_VERSION.fullmatch(version) is not None


def pairs(lines: Iterable[str], is_pair: Callable[[str, str], bool] = is_package) -> list[tuple[str, str]]:
    """Parse `NAME VERSION` lines; raise ParseError for any other."""
    found = [(name, version) for name, _, version in (line.partition(" ") for line in lines)]
    if wrong := next((pair for pair in found if not is_pair(*pair)), None):
        raise ParseError(f"not a package: {' '.join(wrong)[:80]!r}")
    return found


def wanted(
    lines: list[str], is_pair: Callable[[str, str], bool] = is_package
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Parse `package=WANT NAME VERSION` lines into (name, version), and the names that are held; raise ParseError."""
    rows = [line.partition(" ") for line in repeated(lines, "package")]
    found = pairs((rest for _, _, rest in rows), is_pair)
    return found, tuple(sorted({name for (name, _), row in zip(found, rows, strict=True) if row[0] == "hold"}))


def belongs(name: str) -> bool:
    """Say whether a package is part of the driver, by its name."""
    return _OWN.match(name) is not None and _FOREIGN.match(name) is None


def brings_kernels(name: str) -> bool:
    """Say whether a package is one through which new kernels come, or their headers."""
    return _KERNEL_META.fullmatch(name) is not None


def is_fabric_manager(name: str) -> bool:
    """Say whether a package is fabric manager, under any of its names."""
    return _FABRIC_MANAGER.fullmatch(name) is not None


def is_imex(name: str) -> bool:
    """Say whether a package is IMEX, under any of its names."""
    return _IMEX.fullmatch(name) is not None


def driver_branch(version: str) -> str | None:
    """Return the branch that a package's version tells (580.95.05-1: 580); None where it is no driver's version."""
    match = _DRIVER_VERSION.fullmatch(version)
    return match[1] if match else None
