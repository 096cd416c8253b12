"""What several tests share with unit/test_mig_target.py."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from gpunode.base.findings import Finding
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.files import desired_files
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.state import ENABLED, ComputeInstance, GpuInstance, Mig, MigGpu, OwnProfile
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.settings import Settings
from gpunode.system.pci import PciGpu, PciGpus
from tests.support.verify import GOOD

DECLARATION = """
version: v1
mig-configs:
  mixed:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}}
    - {devices: [1], mig-enabled: false}
  wider:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 2}}
  pair:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1}}
  both:
    - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1}}
  unverified:
    - {devices: all, mig-enabled: true, mig-devices: {2g.48gb: 1, 1g.24gb: 2}}
"""


H100 = PciGpu("0000:1a:00.0", "2330", "GH100 [H100 SXM5 80GB]", "hopper")


SECOND = replace(H100, address="0000:40:00.0")


OWN = tuple(
    OwnProfile(spot.profile_id, spot.name, spot.maximum, spot.maximum, spot.starts, spot.size)
    for spot in getattr(product_geometry("H100-80GB"), "spots", ())
)


def judged(settings: Settings, node: Node) -> tuple[Finding, ...]:
    return decisions(settings, node)["mig"].findings


def instances(*places: str) -> tuple[GpuInstance, ...]:
    """Return GPU instances from words such as `3g.40gb:4`, each with one compute instance."""
    found = []
    for number, place in enumerate(places):
        profile, start = place.split(":")
        size = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4}[profile]
        compute = ComputeInstance(0, 0, profile, 0, int(profile[0]), f"MIG-{number}")
        found.append(GpuInstance(number + 1, 0, profile, int(start), size, (compute,)))
    return tuple(found)


def gpu(index: int = 0, mode: str = ENABLED, *places: str, **more: Any) -> MigGpu:
    reading = MigGpu(
        index, f"GPU-{index}", ("0000:1a:00.0", "0000:40:00.0")[index], "2330", "NVIDIA H100 80GB HBM3", mode, mode,
        instances(*places), OWN if mode == ENABLED else (),
    )  # fmt: skip
    return replace(reading, **more)


MIXED = ("3g.40gb:4", "2g.20gb:2", "1g.10gb:0", "1g.10gb:1")


def node_with(*gpus: MigGpu, boot: MigBoot, shims: int = 0, status: str = "ok") -> Node:
    return replace(
        GOOD, pci=PciGpus((H100, SECOND)[: len(gpus)]), mig=Mig(status, None, gpus), mig_boot=boot,
        containerd=replace(GOOD.containerd, shims=shims),
    )  # fmt: skip


FILES = tuple((path, hashlib.sha256(text.encode()).hexdigest()) for path, text in desired_files().items())


def boot_of(*record: str, **more: Any) -> MigBoot:
    return replace(MigBoot(FILES, record, enabled=True), **more)


RECORD = "GPU-0 on 3g.40gb:4=3 2g.20gb:2=2 1g.10gb:0=1 1g.10gb:1=1"
