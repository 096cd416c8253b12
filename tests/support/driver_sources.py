"""Helpers and data for the tests of driver sources."""

from __future__ import annotations

from dataclasses import replace

from gpunode.base import tables
from gpunode.packages.deb import AptArchive, Target
from tests.support.preflight import DEBIAN

CUDA_SOURCE, DEBIAN_SOURCE, UBUNTU_SOURCE, *_ = tables.driver_sources()


ARCHIVE = AptArchive(
    (Target("Debian", "http://mirror.example/debian", "bookworm", "main", "/etc/apt/sources.list"),),
    (("/etc/apt/sources.list", "deb http://mirror.example/debian bookworm main\n"),),
)


CUDA_ON_UBUNTU = tables.driver_source("cuda-repository", "ubuntu")


TRIXIE = replace(DEBIAN, version_id="13", codename="trixie", name="Debian GNU/Linux 13 (trixie)", kernel="6.12.0-1")


RESOLUTE = replace(DEBIAN, id="ubuntu", version_id="26.04", codename="resolute", name="Ubuntu 26.04 LTS")
