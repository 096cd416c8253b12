"""The NVIDIA driver, from NVIDIA's repository, the distribution's archive, or by NVIDIA's installer, the .run file."""

from gpunode.base import tables
from gpunode.base.disruption import Disruption, Drain
from gpunode.base.tables.sources import DriverSource
from gpunode.components.driver.loading import removal_waits
from gpunode.components.driver.sides import Desired, desired
from gpunode.components.runfile import build_packages, driver_runfile
from gpunode.deploys.component import component, distribution, drain, needed, node, own_file, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.deploys.repositories import distrust, trust
from gpunode.facts.packages import SOURCE as ARCHIVE_SOURCE
from gpunode.node.own_files.driver import (
    BLACKLIST,
    DRACUT,
    NOUVEAU,
    PARAMETERS,
    PEERMEM,
    SOFTDEP,
    UMAD,
    UMAD_MODULES,
    UVM_RULE,
)
from gpunode.node.own_files.repositories import forgets_cuda
from gpunode.operations import (
    apt,
    driver_packages,
    driver_removal,
    files,
    initramfs,
    kernel,
    mps,
    packages,
    runfile,
    systemd,
)
from gpunode.operations import driver as kernel_module
from gpunode.operations.phase import is_image
from gpunode.packages.driver_packages.sources import archive_components, module_stream, resolve_for_os
from gpunode.settings import DriverSettings


@component("Driver", own_files=True)
def driver() -> None:
    """Install the driver, pinned to its version or branch, hold it there, load its module and run its services."""
    resolved = resolve_for_os(settings(), node().operating_system)
    chosen = resolved.driver
    if not chosen.enabled:
        return
    if chosen.removes:
        _none(chosen)
        return
    own_file(PARAMETERS, keep="Set the NVIDIA module's parameters", remove="Remove the NVIDIA module's parameters")
    to_be = desired(resolved, node().operating_system, node().boot, node().pci)
    if to_be.source is not None:
        _packages(to_be, to_be.source)
    elif chosen.source == "runfile":
        _runfile(to_be)
    _keep_nouveau_out()
    own_file(SOFTDEP, keep="Load nvidia_uvm after nvidia, at every boot")
    own_file(UVM_RULE, keep="Make nvidia_uvm's devices whenever it is loaded")
    own_file(PEERMEM, keep="Load nvidia_peermem at every boot", remove="Load no nvidia_peermem at boot")
    if is_image() and chosen.persistenced and chosen.source != "present":
        systemd.running(name="Run the persistence daemon, now and at boot", unit="nvidia-persistenced.service")
    if not node().has_gpu or chosen.is_elsewhere:
        return
    kernel_module.module_loaded(name="Load the NVIDIA kernel module")
    if chosen.peermem:
        kernel_module.peermem_loaded(name="Load nvidia_peermem")
    if chosen.source != "present":
        _services(chosen)


def _none(desired: DriverSettings) -> None:
    """Take away the driver that is there, however it came, and what gpunode set up for one."""
    allowed = settings().disruption.allow == "reboot"
    waits = removal_waits(Disruption[settings().disruption.allow], node().driver)
    if not waits:
        mps.daemons(
            name="Run no MPS control daemon", desired=(), settings=settings().mps, restart_allowed=True, drain=drain()
        )
    driver_removal.removed(
        name="Remove the NVIDIA driver",
        family=distribution().family,
        rollback=desired.rollback,
        allowed=allowed,
        drain=drain(),
    )
    if waits:
        return
    driver_packages.held(name="Do not hold the NVIDIA driver", family=distribution().family, hold=False, kernel=False)
    for what, path in (
        ("the order in which NVIDIA's modules are loaded", SOFTDEP),
        ("who makes nvidia_uvm's devices", UVM_RULE),
        ("the NVIDIA module's parameters", PARAMETERS),
        ("the module that lends the GPUs' memory to RDMA adapters", PEERMEM),
        ("the module that reaches NVLink 5's switches", UMAD),
        ("what keeps nouveau out", NOUVEAU),
        ("what leaves nouveau out of initial file systems", DRACUT),
    ):
        own_file(path, keep="", remove=f"Forget {what}")
    _forget_others(None)


def _keep_nouveau_out() -> None:
    own_file(NOUVEAU, keep="Keep nouveau out, from the next boot on")
    own_file(DRACUT, keep="Leave nouveau out of initial file systems")
    initramfs.without_nouveau(name="Make initial file systems that load nouveau anew", blacklist=BLACKLIST)


def _headers(desired: DriverSettings) -> None:
    if desired.kernel_headers == "install" and tables.headers_of_image(node().operating_system.id):
        kernel.headers_installed(name="Install the headers of the kernel that boots next", family=distribution().family)


def _packages(desired: Desired, source: DriverSource) -> None:
    chosen, machine = desired.settings, node()
    if source.built_on_node:
        _headers(chosen)
    if archive := _archive():
        origin, components = archive
        whose = "that hold the driver" if source.origin else "that the driver's packages need"
        apt.components(name=f"Read the components of {origin}'s archive {whose}", origin=origin, desired=components)
    if source.origin is None:
        trust("cuda")
    driver_packages.installed(
        name=f"Install NVIDIA driver {chosen.version or chosen.branch} ({desired.flavour})",
        desired=desired.packages,
        branch=chosen.branch or "",
        branch_change=chosen.allow_branch_change,
        rollback=chosen.rollback,
        kernel=machine.boot.next_release,
        target=desired.target(machine.boot, machine.driver),
        source=source,
        stream=module_stream(chosen, source, desired.flavour),
        proof=_proof(),
        migrate=chosen.migrate,
        drain=_drain(),
    )
    driver_packages.held(
        name="Hold the NVIDIA driver" if chosen.hold else "Do not hold the NVIDIA driver",
        family=source.family,
        hold=chosen.hold,
        kernel=desired.holds_kernels,
    )
    _forget_others(source)


def _forget_others(source: DriverSource | None) -> None:
    """Drop the repositories of other sources; not before the change: the way back may need what they still have."""
    if source is None or _archive() is None:
        needed(False, files.absent, name="Remove the entry of the distribution's archive", path=ARCHIVE_SOURCE)
    if forgets_cuda(resolve_for_os(settings(), node().operating_system), node()):
        distrust("cuda")


def _archive() -> tuple[str, tuple[str, ...]] | None:
    return archive_components(resolve_for_os(settings(), node().operating_system), node().operating_system)


def _drain() -> Drain | None:
    # Below that level the loaded driver stays, and packages alone disturb nobody.
    return drain() if settings().disruption.allow == "reboot" else None


def _proof() -> str:
    # A root file system without a kernel is an image that is being made.
    return "loaded" if node().has_gpu else "disk" if node().boot.next_release else "packages"


def _runfile(desired: Desired) -> None:
    chosen, machine = desired.settings, node()
    file = driver_runfile(settings(), machine.operating_system)
    _headers(chosen)
    if chosen.kernel_headers == "install":
        packages.installed(
            name="Install what builds the NVIDIA module",
            family=distribution().family,
            desired=build_packages(settings(), machine.operating_system, machine.boot),
        )
    runfile.fetched(
        name=f"Fetch {file.name}", file=file, proxies=settings().proxy.environment, setting="driver.runfile_sha256"
    )
    runfile.installed(
        name=f"Install NVIDIA driver {chosen.version} ({desired.flavour}) by its runfile",
        family=distribution().family,
        file=file,
        version=chosen.version or "",
        flavour=desired.flavour,
        dkms=chosen.dkms,
        rollback=chosen.rollback,
        kernel=machine.boot.next_release,
        target=desired.target(machine.boot, machine.driver),
        proof=_proof(),
        drain=_drain(),
    )
    kernels = chosen.hold and chosen.hold_kernel
    driver_packages.held(
        name="Hold the kernel's packages" if kernels else "Hold no packages",
        family=distribution().family,
        hold=kernels,
        kernel=kernels,
    )
    _forget_others(None)


def _services(desired: DriverSettings) -> None:
    if node().pci.switch_managers:
        own_file(UMAD, keep="Persist the kernel module that reaches NVLink 5's switches")
        kernel.loaded(name="Load the kernel module that reaches NVLink 5's switches", modules=UMAD_MODULES)
    if node().pci.fabric:
        kernel_module.service(
            name="Run fabric manager, now and at boot", unit="nvidia-fabricmanager.service", required=True
        )
    if desired.persistenced:
        kernel_module.service(
            name="Run the persistence daemon, now and at boot", unit="nvidia-persistenced.service", required=False
        )


run_alone(__name__, driver, uncordon)
