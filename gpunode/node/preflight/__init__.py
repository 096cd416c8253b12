"""Judge settings against what a node is, before anything on it is touched.

A refusal stops the node, a caution does not. Both are decided from settings, facts and tables alone.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

from gpunode.base import tables
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver import flavour
from gpunode.components.driver.flavour import chosen_flavour, wanted_driver
from gpunode.node.machine import Machine, resolved
from gpunode.node.preflight import (
    boot,
    cluster,
    cuda,
    device_plugin,
    driver,
    mig,
    mps,
    offered,
    platform,
    podman,
    runtimes,
)
from gpunode.node.preflight.anywhere import former_names
from gpunode.node.preflight.newer import newer_cautions
from gpunode.packages import trust
from gpunode.settings import Settings


def refusals(settings: Settings, machine: Machine, today: date | None = None) -> tuple[Refusal, ...]:
    """Return every reason to refuse a node; none means that the run may go on. `today` is as of `cautions`."""
    system, gpus, actual = machine.operating_system, machine.pci.gpus, machine.driver
    row = tables.distribution(system.id, system.version_id)
    settings = resolved(settings, machine)
    desired = wanted_driver(settings, gpus, actual, system)
    found = [*platform.record_refusals(machine)]
    found += [*platform.system_refusals(settings, system), *platform.gpu_refusals(settings, machine)]
    found += trust.key_refusals(settings, system)
    found += driver.present_refusals(settings, machine)
    if settings.driver.enabled and not settings.driver.removes:
        # A generation's last branch first: beyond it no flavour would help.
        by_nvidia = settings.driver.source == "cuda-repository"
        found += flavour.last_branch_refusals(gpus, desired, row.driver_branches if row and by_nvidia else ())
        found += flavour.flavour_refusals(gpus, desired)
        found += driver.offered_branch_refusals(settings, system)
        found += driver.proprietary_refusals(settings, desired, actual, today or _today())
        found += driver.flavour_branch_refusals(settings, desired, machine.operating_system)
        found += driver.minimum_refusals(desired)
    found += boot.runfile_refusals(settings, machine)
    found += trust.trust_refusals(machine.apt_sources)
    found += driver.branch_change_refusals(settings, actual)
    found += driver.candidate_refusals(settings, system, dict(machine.candidates))
    found += offered.archive_refusals(settings, machine)
    found += offered.offered_refusals(settings, machine)
    found += cuda.cuda_refusals(settings, gpus, desired)
    found += cuda.offered_refusals(settings, system)
    found += cuda.mixing_refusals(settings, system, machine.cuda)
    found += mig.mig_refusals(settings, gpus, desired)
    found += mps.mps_refusals(settings, gpus)
    found += mps.device_plugin_refusals(settings, gpus)
    found += runtimes.runtime_refusals(settings, machine)
    found += runtimes.default_refusals(settings, machine)
    found += runtimes.unit_refusals(settings)
    found += podman.podman_refusals(settings, machine)
    found += runtimes.crio_refusals(settings, machine)
    found += runtimes.toolkit_refusals(settings, machine)
    found += runtimes.lock_refusals(settings, machine)
    found += cluster.imex_refusals(settings, machine)
    found += cluster.slurm_refusals(settings, machine)
    found += cluster.rdma_refusals(settings, machine)
    found += cluster.dcgm_refusals(settings, machine)
    found += cluster.kubelet_refusals(settings, machine)
    found += device_plugin.plugin_refusals(settings, gpus)
    found += device_plugin.verify_refusals(settings, gpus)
    found += boot.boot_refusals(settings, system, machine.boot, dict(actual.packages))
    found += platform.disk_refusals(settings, machine.disk, actual, machine.cuda.versions)
    return tuple(found)


def cautions(settings: Settings, machine: Machine, today: date | None = None) -> tuple[Caution, ...]:
    """Return what a person should know though it is no reason to refuse; `today` is UTC's where it is not given."""
    given, settings = settings, resolved(settings, machine)
    desired = wanted_driver(settings, machine.pci.gpus, machine.driver, machine.operating_system)
    today = today or _today()
    return (
        *platform.gpu_cautions(settings, machine),
        *flavour.unknown_gpus(machine.pci.gpus),
        *newer_cautions(settings, machine),
        *driver.end_of_life(settings, desired, today),
        *driver.proprietary_cautions(settings, desired, machine.driver, today),
        *offered.archive_cautions(settings, machine),
        *cuda.cuda_cautions(settings, desired),
        *mig.mig_cautions(settings, machine.pci.gpus),
        *mps.mps_cautions(settings),
        *boot.boot_cautions(settings, machine.operating_system, machine.boot),
        *podman.podman_cautions(settings, machine),
        *runtimes.toolkit_cautions(settings, machine),
        *runtimes.containerd_cautions(settings),
        *runtimes.isolation_cautions(settings, machine),
        *runtimes.unmanaged_cautions(given, machine),
        *cluster.slurm_cautions(settings, machine),
        *cluster.dcgm_cautions(settings, machine),
        *cluster.kubelet_cautions(settings, machine.kubelet),
        *trust.trust_cautions(machine.apt_sources),
        *trust.proxy_cautions(settings, machine.apt_sources),
        *former_names(settings),
    )


def _today() -> date:
    return datetime.now(UTC).date()


__all__ = ["Caution", "Refusal", "cautions", "chosen_flavour", "refusals"]
