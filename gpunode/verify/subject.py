"""What findings are about, by the names that people read; the plan asks for them by these."""

from __future__ import annotations

from enum import StrEnum


class Subject(StrEnum):
    """Name what is compared. What there are several of has its own name behind: `key of cuda`."""

    MODULE_ON_DISK = "module on disk"
    LOADED_MODULE = "loaded module"
    FLAVOUR = "flavour"
    GPU = "GPU"
    LIBRARY = "library"
    UVM = "nvidia_uvm"
    PARAMETERS = "module parameters"
    INSTALLED_BY = "installed by"
    DKMS = "DKMS"
    HELD = "held"
    FABRIC_MANAGER = "fabric manager"
    SUBNET_MANAGER = "NVLink subnet manager"
    UMAD = "ib_umad"
    GPUS = "GPUs by nvidia-smi"
    NEXT_BOOT = "next boot"
    SIGNATURE = "next boot's signature"
    INITRAMFS = "next boot's initramfs"
    NOUVEAU = "nouveau"
    KEY = "key of"
    KEYRING = "keyring of"
    CUDA_TOOLKIT = "toolkit"
    CUDA_RELEASE = "release"
    CUDA_DEFAULT = "/usr/local/cuda"
    NVCC = "nvcc"
    CUDA_PROFILE = "profile script"
    TOOLKIT = "nvidia-container-toolkit"
    TOOLKIT_PACKAGES = "packages"
    TOOLKIT_RUNTIME = "nvidia-container-runtime"
    TOOLKIT_LEGACY = "nvidia-docker2"
    TOOLKIT_HELD = "held packages"
    TOOLKIT_CONFIGURATION = "config.toml"
    CDI_SPECIFICATION = "CDI specification"
    DEVICE_LINKS = "device links"
    VERSION = "version"
    SERVICE = "service"
    STARTS_AT_BOOT = "starts at boot"
    RUNNING_CONFIGURATION = "running configuration"
    DEFAULT_RUNTIME = "default runtime"
    SYSTEMD_CGROUP = "SystemdCgroup of"
    CRI_PLUGIN = "CRI plugin"
    AT_BOOT = "starts at boot:"
    MPS_SETTING = "daemon"
    COMPUTE_MODE = "compute mode of GPU"
    MIG_MODE = "MIG mode of GPU"
    MIG_INSTANCES = "MIG instances of GPU"
    MIG_TARGET = "MIG configuration"
    MIG_RECORD = "layout for the next boot"
    CDI = "CDI"
    SYSCTL = "sysctl"
    CGROUP_DRIVER = "cgroup driver"
    RUNTIME_NVIDIA = "runtime nvidia"

    def of(self, name: str) -> str:
        """Return the name of one of several: `SystemdCgroup of runc`."""
        return f"{self} {name}"

    def named(self, what: str) -> str | None:
        """Return which of several a finding is about; None where it is about something else."""
        return what.removeprefix(f"{self} ") if what.startswith(f"{self} ") else None
