"""Can DCGM be installed: has NVIDIA its packages, is DCGM 3 installed, has only one of host and cluster a DCGM?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.dcgm.decide import Desired, in_the_way, second_pods, second_units
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.settings.dcgm import known

ON_THE_HOST = RefusalMessage(
    "dcgm-on-the-host",
    "The host runs a DCGM that gpunode did not install, and the cluster's exporter is enabled.",
    reason="the host runs DCGM that gpunode did not install ({units}): only it or the exporter gets profiling metrics",
    source="systemctl show on the node; NVIDIA/dcgm-exporter issues 7 and 61",
    remedy="`systemctl disable --now {names}`, or set dcgm_exporter_chart.enabled = False; with dcgm.enabled = True "
    "and dcgm_exporter_chart.engine = 'host' the pods use the host's engine",
)
NO_REPOSITORY = RefusalMessage(
    "dcgm-no-repository",
    "NVIDIA has no packages of DCGM for this distribution.",
    reason="NVIDIA has no packages of DCGM for {name}",
    source="gpunode/data/distributions.yaml (repository)",
    remedy="set dcgm.enabled = False",
)
FORMER = RefusalMessage(
    "dcgm-former",
    "DCGM 3 is installed, which conflicts with DCGM 4.",
    source="NVIDIA/DCGM, cmake/packaging.cmake (datacenter-gpu-manager-4-core conflicts with datacenter-gpu-manager)",
    remedy="set dcgm.migrate = True to have it replaced, or dcgm.enabled = False to leave it",
)
IN_PODS = RefusalMessage(
    "dcgm-in-pods",
    "The cluster has DCGM on this node already, and dcgm.enabled is True for the host.",
    reason="pods have DCGM on this node ({pods}): of two engines only one gets profiling metrics",
    source="/var/log/pods of the node; NVIDIA/dcgm-exporter issues 7 and 61",
    remedy="set dcgm.enabled = False, or keep the cluster's exporter from this node (gpu_operator.dcgm_exporter = "
    "False, its chart's nodeSelector, or first a run without dcgm_exporter_chart, which removes gpunode's pods); with "
    "dcgm_exporter_chart.engine = 'host' gpunode's pods use the host's engine",
)


def dcgm_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a distribution without NVIDIA's packages, DCGM 3 that may not go, and a second DCGM on the node."""
    desired, actual, system = settings.dcgm, machine.dcgm, machine.operating_system
    to_be = Desired(desired, pods=settings.dcgm_exporter_chart.pods)
    if running := second_units(to_be, actual):
        yield ON_THE_HOST(units=", ".join(running), names=" ".join(running))
    if not desired.enabled:
        return
    row = tables.distribution(system.id, system.version_id)
    if row is not None and row.repository is None:
        yield NO_REPOSITORY(name=row.name)
    if (reason := in_the_way(desired, actual)) is not None:
        yield FORMER(reason=reason)
    if pods := second_pods(to_be, actual):
        yield IN_PODS(pods=", ".join(pods))


NOT_PAIRED = CautionMessage(
    "dcgm-not-paired",
    "DCGM and its exporter are set to versions that were not released together.",
    reason="dcgm.version is {dcgm} and dcgm.exporter.version {exporter}, which NVIDIA did not release together",
    source="NVIDIA's documentation, Install DCGM Exporter (gpunode/data/dcgm.yaml, paired)",
    remedy="set dcgm.exporter.version = '{pair}', or leave it out",
)


def dcgm_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of an exporter that was not released with the desired DCGM."""
    desired = settings.dcgm
    pair = known().paired.get(desired.version or "")
    if desired.exporter.enabled and pair is not None and desired.exporter.version not in (None, pair):
        yield NOT_PAIRED(dcgm=desired.version, exporter=desired.exporter.version, pair=pair)
