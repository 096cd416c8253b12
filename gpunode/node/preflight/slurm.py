"""Can the node's Slurm offer its GPUs?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.slurm.decide import lacks
from gpunode.components.slurm.state import FOLDER
from gpunode.node.machine import Machine
from gpunode.settings import Settings

LACKS = RefusalMessage(
    "slurm-lacks",
    "The Slurm on the node cannot offer GPUs as the settings require.",
    source=f"slurmd and {FOLDER} of this node",
    detail="The node has no slurmd or slurm.conf, or its Slurm lacks NVML, for example. gpunode installs no Slurm.",
    remedies=("install or configure Slurm as your cluster does, or set slurm.enabled = False",),
)


def slurm_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without a slurmd or its slurm.conf, or with a Slurm that cannot do what the settings need."""
    if settings.slurm.enabled and (lacking := lacks(settings.slurm, machine.slurm)) is not None:
        reason, remedy = lacking
        yield LACKS(reason=reason, remedy=remedy)


MIG_BY_NUMBER = CautionMessage(
    "slurm-mig-by-number",
    reason="without NVML, Slurm names MIG devices to a job by numbers, of which CUDA takes only the first",
    source="SchedMD/slurm at 22.05.8 (src/common/gres.c: a device's UUID comes from AutoDetect alone); gres.conf(5)",
    remedy="have jobs see no other devices (TaskPlugin=task/cgroup, and ConstrainDevices=yes in cgroup.conf), or use a "
    "Slurm with NVML and slurm.autodetect = 'nvml'",
)


def slurm_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of MIG devices by their numbers, of which CUDA takes only the first."""
    desired = settings.slurm
    if desired.enabled and desired.autodetect == "off" and settings.mig.config is not None:
        yield MIG_BY_NUMBER()
