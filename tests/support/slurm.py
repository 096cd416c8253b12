"""Slurm on a node with two GPUs, bare and as it is desired."""

from __future__ import annotations

from dataclasses import replace

from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.components.slurm.state import GRES, Capability, Slurm, SlurmGpu, SlurmUnit, texts
from gpunode.settings.slurm import SlurmSettings

# As slurmd 22.05.8 and slurmctld of Debian print it.
HARDWARE = "NodeName=gpu-1 CPUs=4 Boards=1 SocketsPerBoard=2 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105"
SHOWN = "NodeName=gpu-1 Arch=x86_64 Gres=gpu:h100:2(S:0-1) State=IDLE Partitions=all"
NO_MIG = Mig("ok")
UP = SlurmUnit(active=True, enabled=True, stale=False)
H100 = "NVIDIA H100 80GB HBM3"
BARE = Slurm(
    "22.05.8",
    configured=True,
    hardware=HARDWARE,
    types=("gpu",),
    includes=(("/etc/slurm/gres.conf", GRES), ("/etc/slurm/slurm.conf", "gpunode-nodes.conf")),
    slurmd=UP,
    gpus=(SlurmGpu("0000:18:00.0", 0, H100, (0, 1)), SlurmGpu("0000:2a:00.0", 1, H100, (2, 3))),
    cores=((0,), (1,), (2,), (3,)),
    node=SHOWN,
)
ASKED = SlurmSettings(enabled=True)
RIGHT = replace(BARE, texts=tuple(texts(ASKED, BARE, NO_MIG).items()))
DIVIDED = replace(
    BARE,
    capabilities=(
        Capability(1, 9, None, 219), Capability(1, 9, 0, 220), Capability(1, 2, None, 156), Capability(1, 2, 0, 157),
    ),
)  # fmt: skip
MIXED = Mig(
    "ok",
    None,
    (
        MigGpu("0", "GPU-0", "0000:18:00.0", "2330", H100, "Disabled", "Disabled"),  # type: ignore[arg-type]
        MigGpu(
            1, "GPU-1", "0000:2a:00.0", "2330", H100, "Enabled", "Enabled",
            (
                GpuInstance(9, 19, "1g.10gb", 0, 1, (ComputeInstance(0, 0, "1g.10gb", 0, 1),)),
                GpuInstance(2, 9, "3g.40gb", 4, 4, (ComputeInstance(0, 2, "3g.40gb", 0, 3),)),
            ),
        ),
    ),
)  # fmt: skip


def lines(settings: SlurmSettings, actual: Slurm, mig: Mig) -> dict[str, list[str]]:
    """Return what gpunode's files say, without comments."""
    found = texts(settings, actual, mig)
    return {path: [line for line in text.splitlines() if not line.startswith("#")] for path, text in found.items()}
