"""DCGM on the host: its host engine, its exporter, and the GPUs' health."""

from gpunode.components.dcgm.decide import Desired, cuda_of
from gpunode.components.dcgm.state import ENGINE_FILE, EXPORTER, EXPORTER_FILE
from gpunode.components.driver.flavour import wanted_driver
from gpunode.deploys.component import component, distribution, needed, node, own_file, run_alone, settings
from gpunode.deploys.repositories import trust
from gpunode.operations import dcgm as control
from gpunode.operations import packages, systemd
from gpunode.operations.phase import is_image
from gpunode.packages.driver_packages.sources import resolve_for_os
from gpunode.settings.dcgm import known


@component("DCGM", own_files=True)
def dcgm() -> None:
    """Install DCGM and run what is asked for of it; switched off: what gpunode runs of it is stopped."""
    resolved, machine = resolve_for_os(settings(), node().operating_system), node()
    driver = wanted_driver(resolved, machine.pci.gpus, machine.driver, machine.operating_system)
    desired = Desired(resolved.dcgm, cuda_of(driver.version or driver.branch), resolved.dcgm_exporter_chart.pods)
    if resolved.dcgm.enabled:
        # Before the packages: whatever starts the exporter, it listens where it is to.
        own_file(ENGINE_FILE, keep="Tell DCGM's host engine what to watch")
        if EXPORTER in desired.units:
            own_file(EXPORTER_FILE, keep="Tell DCGM's exporter where to listen")
        _packages(desired)
        for unit in desired.units:
            systemd.running(name=f"Run {unit}, now and at boot", unit=unit)
    if not is_image():
        needed(
            resolved.dcgm.enabled,
            control.services,
            name="Run DCGM as desired" if resolved.dcgm.enabled else "Run nothing of DCGM",
            desired=desired,
        )


def _packages(desired: Desired) -> None:
    names = known()
    trust("cuda")
    packages.installed(
        name=f"Install DCGM {desired.settings.version or ''}".strip(),
        family=distribution().family,
        desired=desired.packages,
        one_version=True,
        repository="cuda",
        replaces=names.former if desired.settings.migrate else (),
        lost=node().dcgm.lost,
        instead="set dcgm.migrate = True to have DCGM 3 replaced",
    )
    if EXPORTER in desired.units:
        packages.installed(
            name=f"Install DCGM's exporter {desired.settings.exporter.version or ''}".strip(),
            family=distribution().family,
            desired={names.exporter: desired.settings.exporter.version},
            repository="cuda",
        )


run_alone(__name__, dcgm)
