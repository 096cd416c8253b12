"""CUDA toolkit packages (lab/world/cuda.yaml): an nvcc that says its version, and the /usr/local/cuda alternative."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.world.cuda import full_version, toolkit_name


@dataclass(frozen=True)
class Release:
    """Hold a toolkit release: 12.9, 12.9.1, nvcc's own version, build name and date, the driver that ships with it.

    told: what the version.json of its .run file says instead of the release, as NVIDIA's does for some: with a date
    """

    short: str
    full: str
    nvcc: str
    build: str
    date: str
    driver: str
    told: str = ""


RELEASES = (
    Release(
        "12.8", "12.8.1", "12.8.93", "cuda_12.8.r12.8/compiler.35583870_0", "Fri_Feb_21_20:23:50_PST_2025", "570.124.06"
    ),
    Release(
        "12.9",
        "12.9.1",
        "12.9.86",
        "cuda_12.9.r12.9/compiler.36037853_0",
        "Tue_May_27_02:21:03_PDT_2025",
        "575.57.08",
        told="12.9.20250531",
    ),
    Release(
        "13.0",
        "13.0.2",
        "13.0.88",
        "cuda_13.0.r13.0/compiler.36424714_0",
        "Wed_Aug_20_01:58:59_PM_PDT_2025",
        "580.95.05",
    ),
)
_NVCC = """#!/bin/sh
# SIMULATED nvcc of gpunode's lab: it says its version and compiles nothing.
echo "$(date +%Y-%m-%dT%H:%M:%S) SIMULATED nvcc: $*" 2>/dev/null >> /var/log/gpunode-lab.log || :
case "$1" in
    --version|-V)
        echo 'nvcc: NVIDIA (R) Cuda compiler driver'
        echo 'Copyright (c) 2005-2025 NVIDIA Corporation'
        echo 'Built on {date}'
        echo 'Cuda compilation tools, release {short}, V{nvcc}'
        echo 'Build {build}' ;;
    '')
        echo 'nvcc fatal   : No input files specified; use option --help for more information' >&2; exit 1 ;;
    *)
        echo "nvcc fatal   : SIMULATED nvcc knows only --version, not '$1'" >&2; exit 1 ;;
esac
"""
_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    update-alternatives --install /usr/local/cuda cuda /usr/local/cuda-{short} {priority}
    update-alternatives --install /usr/local/cuda-{major} cuda-{major} /usr/local/cuda-{short} {priority}
fi
"""
_PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ]; then
    update-alternatives --remove cuda /usr/local/cuda-{short}
    update-alternatives --remove cuda-{major} /usr/local/cuda-{short}
fi
"""


def cuda_packages() -> list[Deb]:
    """Return cuda-toolkit-12-8, -12-9 and -13-0; they install side by side, the newest is /usr/local/cuda."""
    return [_toolkit(release) for release in RELEASES]


def nvcc_program(release: Release) -> bytes:
    """Return the fixture nvcc of a release."""
    values = {"date": release.date, "short": release.short, "nvcc": release.nvcc, "build": release.build}
    return _NVCC.format(**values).encode()


def version_file(release: Release, told: str = "") -> bytes:
    """Return the toolkit's version.json; it says `told` instead of the release where that is not empty."""
    versions = {
        "cuda": {"name": "CUDA SDK", "version": told or release.full},
        "cuda_nvcc": {"name": "CUDA NVCC", "version": release.nvcc},
    }
    return (json.dumps(versions, indent=3) + "\n").encode()


def _toolkit(release: Release) -> Deb:
    folder = f"usr/local/cuda-{release.short}"
    values = {
        "short": release.short,
        "major": release.short.split(".")[0],
        "priority": release.short.replace(".", ""),
    }
    return Deb(
        toolkit_name(release.full),
        full_version(release.full),
        f"CUDA toolkit {release.short}",
        files=(
            Payload(f"{folder}/bin/nvcc", nvcc_program(release), 0o755),
            Payload(f"{folder}/version.json", version_file(release)),
        ),
        scripts=(("postinst", _POSTINST.format(**values)), ("prerm", _PRERM.format(**values))),
    )
