"""The NVIDIA driver, from NVIDIA's package repository."""

from deploys.component import component, node, settings
from deploys.repositories import trust
from gpunode.preflight import chosen_flavour
from operations import apt, files
from operations import driver as kernel_module

SOFTDEP = "/etc/modprobe.d/gpunode-nvidia-uvm.conf"
META_PACKAGES = {"open": "nvidia-open", "proprietary": "cuda-drivers"}


@component("Driver")
def driver() -> None:
    """Install the driver, pinned to its version or branch, and load its module."""
    asked = settings().driver
    if not asked.enabled:
        return
    flavour = chosen_flavour(settings(), node().pci.gpus)
    rule = asked.version or asked.branch
    if asked.source == "cuda-repository":
        trust("cuda")
        apt.packages(
            name=f"Pin the NVIDIA driver to {rule}",
            wanted={f"nvidia-driver-pinning-{rule}": None},
        )
        apt.packages(
            name=f"Install NVIDIA driver {rule} ({flavour})",
            wanted={META_PACKAGES[flavour]: rule},
        )
    # Else nvidia_uvm would be loaded by this run and be gone after the next boot.
    files.template(name="Load nvidia_uvm after nvidia, at every boot", path=SOFTDEP, source="nvidia-uvm.conf")
    kernel_module.module_loaded(name="Load the NVIDIA kernel module")
