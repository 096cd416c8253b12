"""Helpers and data for the tests of driver packages."""

from __future__ import annotations

from typing import Any

from gpunode.base import tables
from gpunode.components.driver.state import DriverState
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages as State

CUDA, DEBIAN, UBUNTU, RPM, *_ = tables.driver_sources()


OFFERED = [
    ("nvidia-driver-pinning-580", "580.95.05-1"),
    *(("nvidia-open", f"{version}-1") for version in ("595.58.03", "580.105.08", "580.95.05", "580.82.07")),
    *(("nvidia-fabricmanager", f"{version}-1") for version in ("595.58.03", "580.126.09", "580.95.05")),
    ("nvidia-fabricmanager", "580.82.07-1"),
]


INSTALLED = State(
    (("libnvidia-ml1", "580.82.07-1"), ("linux-image-amd64", "6.1.1-1"), ("nvidia-driver-pinning-580", "580.82.07-1"),
     ("nvidia-open", "580.82.07-1"))
)  # fmt: skip


ASK: dict[str, Any] = {
    "desired": {"nvidia-driver-pinning-580": None, "nvidia-open": "580"}, "branch": "580", "branch_change": False,
    "rollback": "required", "kernel": None, "source": CUDA,
}  # fmt: skip


UPGRADE = {**ASK, "desired": {**ASK["desired"], "nvidia-open": "580.95.05"}}


NO_DRIVER = DriverState((), None, None, None, None, None)


OFFERS = Offers(tuple(OFFERED))
