"""Can the Slurm that is there offer the node's GPUs?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.codes import preflight
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.slurm.decide import lacks
from gpunode.components.slurm.state import FOLDER
from gpunode.node.machine import Machine
from gpunode.node.preflight.words import caution
from gpunode.settings import Settings


def slurm_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without a slurmd, without its slurm.conf, or with one that cannot do what is asked."""
    if settings.slurm.enabled and (lacking := lacks(settings.slurm, machine.slurm)) is not None:
        reason, remedy = lacking
        yield Refusal("slurm", reason, f"slurmd and {FOLDER} of this node", remedy, preflight("slurm-lacks"))


def slurm_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell what CUDA makes of a MIG device by its number."""
    desired = settings.slurm
    if desired.enabled and desired.autodetect == "off" and settings.mig.config is not None:
        yield caution("slurm-mig-by-number")
