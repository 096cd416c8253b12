"""The NVIDIA driver, from NVIDIA's package repository."""

from deploys.component import component, node, settings
from deploys.repositories import trust
from gpunode.driver_packages import package_set
from gpunode.preflight import chosen_flavour
from operations import driver as kernel_module
from operations import driver_packages, files, initramfs

SOFTDEP = "/etc/modprobe.d/gpunode-nvidia-uvm.conf"
PARAMETERS = "/etc/modprobe.d/gpunode-nvidia.conf"
NOUVEAU = "gpunode-nouveau.conf"


@component("Driver")
def driver() -> None:
    """Install the driver, pinned to its version or branch, hold it there, load its module and run its services."""
    asked = settings().driver
    if not asked.enabled:
        return
    if asked.source == "cuda-repository":
        _parameters()
        trust("cuda")
        _packages()
    _keep_nouveau_out()
    # Else nvidia_uvm would be loaded by this run and be gone after the next boot.
    files.template(name="Load nvidia_uvm after nvidia, at every boot", path=SOFTDEP, source="nvidia-uvm.conf")
    kernel_module.module_loaded(name="Load the NVIDIA kernel module")
    if asked.source == "cuda-repository":
        _services()


def _keep_nouveau_out() -> None:
    files.template(
        name="Keep nouveau out, from the next boot on", path=f"/etc/modprobe.d/{NOUVEAU}", source="nouveau.conf"
    )
    initramfs.without_nouveau(name="Make initial file systems that load nouveau anew", blacklist=NOUVEAU)


def _packages() -> None:
    asked, machine = settings().driver, node()
    flavour = chosen_flavour(settings(), machine.pci.gpus)
    driver_packages.installed(
        name=f"Install NVIDIA driver {asked.version or asked.branch} ({flavour})",
        wanted=package_set(settings(), flavour, machine.pci.nvswitches, machine.boot),
        branch=asked.branch or "",
        branch_change=asked.allow_branch_change,
        rollback=asked.rollback,
        kernel=machine.boot.next_release,
    )
    driver_packages.held(
        name="Hold the NVIDIA driver" if asked.hold else "Do not hold the NVIDIA driver",
        hold=asked.hold,
        kernel=asked.hold_kernel,
    )


def _services() -> None:
    if node().pci.nvswitches:
        kernel_module.service(
            name="Run fabric manager, now and at boot", unit="nvidia-fabricmanager.service", required=True
        )
    if settings().driver.persistenced:
        kernel_module.service(
            name="Run the persistence daemon, now and at boot", unit="nvidia-persistenced.service", required=False
        )


def _parameters() -> None:
    parameters = settings().driver.module_parameters
    if parameters:
        files.template(
            name="Set the NVIDIA module's parameters", path=PARAMETERS, source="nvidia-parameters.conf",
            parameters=parameters,
        )  # fmt: skip
    else:
        files.absent(name="Remove the NVIDIA module's parameters", path=PARAMETERS)
