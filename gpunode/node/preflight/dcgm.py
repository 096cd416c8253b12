"""Can DCGM come to the node: is it NVIDIA's to have, is DCGM 3 there, and have host and cluster one alone?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.dcgm.decide import Desired, in_the_way, second_pods, second_units
from gpunode.node.machine import Machine
from gpunode.node.preflight.words import caution, refusal
from gpunode.settings import Settings
from gpunode.settings.dcgm import known


def dcgm_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a distribution without NVIDIA's packages, DCGM 3 that may not go, and a second DCGM on the node."""
    desired, actual, system = settings.dcgm, machine.dcgm, machine.operating_system
    to_be = Desired(desired, pods=settings.dcgm_exporter_chart.pods)
    if running := second_units(to_be, actual):
        yield refusal("dcgm-on-the-host", units=", ".join(running), names=" ".join(running))
    if not desired.enabled:
        return
    row = tables.distribution(system.id, system.version_id)
    if row is not None and row.repository is None:
        yield refusal("dcgm-no-repository", name=row.name)
    if (reason := in_the_way(desired, actual)) is not None:
        yield refusal("dcgm-former", reason=reason)
    if pods := second_pods(to_be, actual):
        yield refusal("dcgm-in-pods", pods=", ".join(pods))


def dcgm_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell of an exporter that was not released with the DCGM that is asked for."""
    desired = settings.dcgm
    pair = known().paired.get(desired.version or "")
    if desired.exporter.enabled and pair is not None and desired.exporter.version not in (None, pair):
        yield caution("dcgm-not-paired", dcgm=desired.version, exporter=desired.exporter.version, pair=pair)
