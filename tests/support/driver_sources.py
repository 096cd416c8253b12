"""What several tests share with unit/test_driver_sources.py."""

from __future__ import annotations

from gpunode.base import tables
from gpunode.packages.apt_archive import AptArchive, Target

CUDA_SOURCE, DEBIAN_SOURCE, UBUNTU_SOURCE, *_ = tables.driver_sources()


ARCHIVE = AptArchive(
    (Target("Debian", "http://mirror.example/debian", "bookworm", "main", "/etc/apt/sources.list"),),
    (("/etc/apt/sources.list", "deb http://mirror.example/debian bookworm main\n"),),
)


CUDA_ON_UBUNTU = tables.driver_source("cuda-repository", "ubuntu")
