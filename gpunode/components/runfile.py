"""NVIDIA's .run files: their names and addresses, what their installers are told, and what their logs mean. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpunode.base import tables, versions
from gpunode.base.probe_output import values
from gpunode.base.reading import Reading
from gpunode.components.driver.state import DriverState
from gpunode.packages.families.wording import headers_package
from gpunode.settings.component import filled
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem

if TYPE_CHECKING:
    from gpunode.settings import Settings

# Where the .run files are kept on a node: the driver's for the way back, CUDA's until it is installed.
FOLDER = "/var/lib/gpunode/runfiles"
DRIVER_LOG = "/var/log/nvidia-installer.log"
CUDA_LOG = "/var/log/cuda-installer.log"

# Which package that is depends on the distribution; preflight names it, before it comes to this.
_HEADERS = (
    "the headers of the kernel that the module is for are not there: install them, or boot a kernel that has them"
)
_LOADED = "another NVIDIA module is loaded: drain the node, `modprobe -r nvidia_uvm nvidia`"
# What stands in an installer's log -> what it means, and what to do. The first that is found is told.
CAUSES: tuple[tuple[str, str], ...] = (
    ("No space left on device", "a file system is full (df): free space in /usr, /var and /tmp"),
    ("nouveau", "nouveau has the GPU: boot the node without it"),
    ("appears to already be loaded", _LOADED),
    ("appears to be already loaded", _LOADED),
    ("kernel source", _HEADERS),
    ("kernel headers", _HEADERS),
    ("compiler", "there is no compiler that fits the kernel's: install gcc, or set driver.kernel_headers = 'install'"),
    ("dkms", "DKMS could not build the module; see make.log below /var/lib/dkms/nvidia, or set driver.dkms = False"),
    ("kernel module", "the module could not be built: this driver may not know this kernel; see the log on the node"),
)


@dataclass(frozen=True)
class Runfile:
    """Hold one .run file: its name, where it is fetched from, its SHA-256, and where it lies on the node."""

    name: str
    url: str
    sha256: str

    @property
    def path(self) -> str:
        """Return where it is kept on the node."""
        return f"{FOLDER}/{self.name}"


def driver_runfile(settings: Settings, system: OperatingSystem) -> Runfile:
    """Return the driver's .run file that the settings ask for, on this architecture."""
    desired = settings.driver
    if desired.version is None or desired.runfile_sha256 is None:
        raise ValueError("driver.source 'runfile' needs driver.version and driver.runfile_sha256")
    name = tables.driver_runfile().architectures[system.architecture]
    url = filled(desired.runfile_url, version=desired.version, architecture=name)
    return Runfile(f"NVIDIA-Linux-{name}-{desired.version}.run", url, desired.runfile_sha256)


def cuda_runfile(settings: Settings, system: OperatingSystem) -> Runfile:
    """Return CUDA's .run file that the settings ask for, on this architecture."""
    desired = settings.cuda
    if desired.release is None or desired.runfile_sha256 is None:
        raise ValueError("cuda.source 'runfile' needs cuda.release and cuda.runfile_sha256")
    # A release that is newer than the table has no driver in its name, which `CudaSettings` requires.
    driver = tables.cuda().toolkit_driver.get(desired.release, "")
    platform = tables.cuda_runfile().platforms[system.architecture]
    address, name = desired.runfile_url, "cuda_{release}_{driver}_{platform}.run"
    if versions.at_least(desired.release, tables.cuda_runfile().without_driver):
        address, name = address.replace("_{driver}", ""), name.replace("_{driver}", "")
    values = {"release": desired.release, "driver": driver, "platform": platform}
    return Runfile(filled(name, **values), filled(address, **values), desired.runfile_sha256)


def knows(version: str, ability: str) -> bool:
    """Say whether the installer of a driver's version has an ability of runfile.yaml's `first_version`."""
    return versions.at_least(version, tables.driver_runfile().first_version[ability])


def install_arguments(version: str, flavour: str, dkms: bool) -> tuple[str, ...]:
    """Return what nvidia-installer of a version is told: no questions, this module, and to leave its loading to us.

    + flavour: open or proprietary
    + dkms: whether DKMS builds the module
    """
    found = ["--silent", "--no-nouveau-check", f"--log-file-name={DRIVER_LOG}"]
    if knows(version, "module_type"):
        found.append(f"--kernel-module-type={flavour}")
    elif knows(version, "build_directory"):
        found.append(f"--kernel-module-build-directory={'kernel-open' if flavour == 'open' else 'kernel'}")
    if knows(version, "skip_module_load"):
        found.append("--skip-module-load")
    if knows(version, "running_driver"):
        found.append("--allow-installation-with-running-driver")
    # Where dkms is installed, silence is consent.
    if dkms:
        found.append("--dkms")
    elif knows(version, "no_dkms"):
        found.append("--no-dkms")
    return tuple(found)


def uninstall_arguments(version: str | None) -> tuple[str, ...]:
    """Return what nvidia-uninstall is told: no questions, and the loaded module stays until the node boots."""
    found = ["--silent"]
    if version is None or knows(version, "skip_module_unload"):
        found.append("--skip-module-unload")
    return tuple(found)


def build_packages(settings: Settings, system: OperatingSystem, boot: Boot) -> dict[str, str | None]:
    """Return package -> rule of what the driver's module is built with, and the headers of the next kernel."""
    found = ["gcc", "make"] + (["dkms"] if settings.driver.dkms else [])
    kernel = boot.next_kernel
    if kernel is not None and not kernel.headers and tables.installs_headers(system.id):
        found.append(headers_package(system, kernel))
    return dict.fromkeys(found)


def way_back(driver: DriverState) -> dict[str, str]:
    """Return the variables by which the driver's transaction puts a runfile's driver back, if there is one."""
    # The module rather than the library, whose link is the easier to bend.
    version = (driver.module_version or driver.library_version) if driver.runfile else None
    flavour = driver.module_flavour or driver.loaded_flavour or "open"
    install = install_arguments(version, flavour, driver.dkms) if version else ()
    return {
        "runfiles": FOLDER,
        "installer_log": DRIVER_LOG,
        "before_version": version or "",
        "before_install": " ".join(install),
        "before_uninstall": " ".join(uninstall_arguments(version)),
    }


@dataclass(frozen=True)
class FetchedRunfile(Reading):
    """Hold what is on a node of a .run file: whether it is there whole, and the SHA-256 that it had when it came."""

    present: bool
    sha256: str | None = None

    def is_whole(self, sha256: str) -> bool:
        """Say whether it is there and was found to have that SHA-256."""
        return self.present and self.sha256 == sha256


def parse_fetched(lines: list[str]) -> FetchedRunfile:
    """Parse the probe of facts.file.FetchedRunfile."""
    found = values(lines)
    return FetchedRunfile(found.get("present") == "yes", found.get("sha256"))
