"""Can the node be one of an IMEX domain?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Refusal
from gpunode.node.machine import Machine
from gpunode.node.preflight.words import refusal
from gpunode.packages.driver_packages import driver_source, is_imex
from gpunode.settings import Settings


def imex_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse GPUs whose NVLink ends in the machine, and a driver whose source brings no nvidia-imex."""
    gpus = machine.pci.gpus
    if not settings.imex.enabled or machine.is_image or not gpus:
        return
    # Of what the table of GPUs does not know, nobody can say it.
    if not machine.pci.reaches_other_machines and all(gpu.name is not None for gpu in gpus):
        yield refusal("imex-no-multi-node-nvlink", gpus=", ".join(sorted({str(gpu.name) for gpu in gpus})))
        return
    if not settings.driver.installs or any(is_imex(name) for name, _ in machine.driver.packages):
        return
    source = driver_source(settings, machine.operating_system, machine.boot)
    if source is None or "imex" not in source.packages:
        yield refusal("imex-not-of-this-source", source=settings.driver.source)
