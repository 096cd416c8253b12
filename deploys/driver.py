"""The NVIDIA driver, from NVIDIA's package repository or the distribution's archive."""

from deploys.component import component, node, settings
from deploys.repositories import distrust, trust
from gpunode.driver_packages import driver_source, holds_kernels, module_stream, on_system, package_set
from gpunode.preflight import chosen_flavour
from gpunode.settings import DriverSettings
from gpunode.tables import DriverSource
from operations import apt_archive, driver_packages, files, initramfs, kernel
from operations import driver as kernel_module

SOFTDEP = "/etc/modprobe.d/gpunode-nvidia-uvm.conf"
PARAMETERS = "/etc/modprobe.d/gpunode-nvidia.conf"
NOUVEAU = "gpunode-nouveau.conf"
UMAD = "/etc/modules-load.d/gpunode-nvlink.conf"


@component("Driver")
def driver() -> None:
    """Install the driver, pinned to its version or branch, hold it there, load its module and run its services."""
    asked = on_system(settings(), node().operating_system).driver
    if not asked.enabled:
        return
    source = driver_source(settings(), node().operating_system)
    modules = ["nvidia"]
    if source is not None:
        # Debian's own packages have modprobe load the module under another name, to which all else has to be said, too.
        modules += sorted({source.modules[_flavour()]} - {"nvidia"})
        _parameters(asked, modules)
        _packages(asked, source)
    _keep_nouveau_out()
    # Else nvidia_uvm would be loaded by this run and be gone after the next boot.
    files.template(
        name="Load nvidia_uvm after nvidia, at every boot", path=SOFTDEP, source="nvidia-uvm.conf", modules=modules
    )
    if not node().has_gpu:
        return
    kernel_module.module_loaded(name="Load the NVIDIA kernel module")
    if source is not None:
        _services(asked)


def _keep_nouveau_out() -> None:
    files.template(
        name="Keep nouveau out, from the next boot on", path=f"/etc/modprobe.d/{NOUVEAU}", source="nouveau.conf"
    )
    initramfs.without_nouveau(name="Make initial file systems that load nouveau anew", blacklist=NOUVEAU)


def _flavour() -> str:
    return chosen_flavour(settings(), node().pci.gpus)


def _packages(asked: DriverSettings, source: DriverSource) -> None:
    machine = node()
    if source.origin is not None:
        apt_archive.components(
            name=f"Read the components of {source.name} that hold the driver",
            origin=source.origin,
            wanted=source.components,
        )
    else:
        trust("cuda")
    driver_packages.installed(
        name=f"Install NVIDIA driver {asked.version or asked.branch} ({_flavour()})",
        wanted=package_set(asked, source, _flavour(), machine.pci.fabric, machine.boot),
        branch=asked.branch or "",
        branch_change=asked.allow_branch_change,
        rollback=asked.rollback,
        kernel=machine.boot.next_release,
        headers=machine.boot.next_kernel is None or machine.boot.next_kernel.headers,
        source=source,
        stream=module_stream(asked, source, _flavour()),
        # A root file system without a kernel is an image that is being made.
        proof="loaded" if machine.has_gpu else "disk" if machine.boot.next_release else "packages",
    )
    driver_packages.held(
        name="Hold the NVIDIA driver" if asked.hold else "Do not hold the NVIDIA driver",
        family=source.family,
        hold=asked.hold,
        kernel=holds_kernels(settings(), machine.operating_system),
    )
    # Not before the change: the way back may need what the other source still has.
    if source.origin is None:
        files.absent(name="Remove the entry of the distribution's archive", path=apt_archive.SOURCE)
    elif not settings().cuda.enabled:
        distrust("cuda")


def _services(asked: DriverSettings) -> None:
    if node().pci.switch_managers:
        _management_datagrams()
    if node().pci.fabric:
        kernel_module.service(
            name="Run fabric manager, now and at boot", unit="nvidia-fabricmanager.service", required=True
        )
    if asked.persistenced:
        kernel_module.service(
            name="Run the persistence daemon, now and at boot", unit="nvidia-persistenced.service", required=False
        )


def _management_datagrams() -> None:
    files.template(
        name="Persist the kernel module that reaches NVLink 5's switches", path=UMAD, source="modules-load.conf",
        modules=["ib_umad"],
    )  # fmt: skip
    kernel.loaded(name="Load the kernel module that reaches NVLink 5's switches", modules=["ib_umad"])


def _parameters(asked: DriverSettings, modules: list[str]) -> None:
    if asked.module_parameters:
        files.template(
            name="Set the NVIDIA module's parameters", path=PARAMETERS, source="nvidia-parameters.conf",
            parameters=asked.module_parameters, modules=modules,
        )  # fmt: skip
    else:
        files.absent(name="Remove the NVIDIA module's parameters", path=PARAMETERS)
