"""The node's packages that several components read, listed once in a command."""

from __future__ import annotations

from gpunode.base.probe import Shared, shell_text
from gpunode.components.dcgm.state import GLOB as DCGM_GLOB
from gpunode.components.runtime_packages import RUNTIMES
from gpunode.facts.families import by_manager, dnf, dnf5, pacman, zypper
from gpunode.packages.driver_packages import GLOBS, KERNEL_GLOBS

# dpkg's globs of the driver catch the container toolkit, too.
_BY_DPKG = shell_text("packages/families/dpkg", GLOBS=" ".join((*GLOBS, *KERNEL_GLOBS, *RUNTIMES, DCGM_GLOB)))
# $MANAGER: apt, dnf, dnf5, zypper, pacman or nothing. $PACKAGES: WANT NAME VERSION of each package of the driver, of
# kernels, of the container toolkit and of DCGM (with apt, dnf and dnf5 of container runtimes, too), where WANT is hold
# or install. $ARCHITECTURE: dpkg's. dnf brings `locking`, dnf5 $VERSIONLOCK.
PACKAGES = Shared(
    "MANAGER=; PACKAGES=; ARCHITECTURE=\n"
    + by_manager(
        apt=_BY_DPKG,
        dnf=f"{dnf.DRIVER_PACKAGES}\nMANAGER=dnf; PACKAGES=$(of_all)",
        dnf5=f"{dnf5.DRIVER_PACKAGES}\nMANAGER=dnf5; PACKAGES=$(of_all)",
        zypper=f"{zypper.DRIVER_PACKAGES}\nMANAGER=zypper; PACKAGES=$(of_all)",
        pacman=f"{pacman.DRIVER_PACKAGES}\nMANAGER=pacman; PACKAGES=$(of_all)",
    )
)
