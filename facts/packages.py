"""The packages of a node and the sources that they come from; their list is read once for several components."""

from __future__ import annotations

from gpunode.base import tables
from gpunode.base.probe import Probe, Shared, shell_text
from gpunode.components import runtime
from gpunode.components.dcgm.state import GLOB as DCGM_GLOB
from gpunode.components.runtime import RUNTIMES
from gpunode.facts.base import NodeFact
from gpunode.facts.families import by_manager, dnf, dnf5, pacman, zypper
from gpunode.packages import deb, installed_packages, trust
from gpunode.packages.driver_packages.names import GLOBS, KERNEL_GLOBS

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


class RuntimePackages(NodeFact[runtime.RuntimePackages]):
    """Read which packages of container runtimes are installed, whatever source they came from."""

    probe = shell_text("components/runtime_packages", shared=(PACKAGES,), RUNTIMES=" ".join(RUNTIMES))
    parse = staticmethod(runtime.parse_runtime_packages)


class AptSources(NodeFact[deb.AptSources]):
    """Read lists that name NVIDIA or CUDA, retired keys among the world-trusted ones, and whose archives apt reads."""

    probe = shell_text(
        "packages/apt_sources",
        shared=(Shared(trust.PRIMARY_KEYS), PACKAGES),
        RETIRED=" ".join(tables.drivers().retired_key_ids),
    )
    parse = staticmethod(deb.parse_apt_sources)


class Keyrings(NodeFact[trust.Keyrings]):
    """Read the primary keys' fingerprints of each keyring that gpunode wrote, its mode, owner and group."""

    probe = shell_text("packages/keyrings", shared=(Shared(trust.PRIMARY_KEYS),))
    parse = staticmethod(trust.parse_keyrings)


class OutdatedServices(NodeFact[installed_packages.OutdatedServices]):
    """Read which services use files that a package replaced, where a package changed within some minutes."""

    parse = staticmethod(installed_packages.parse_outdated_services)

    def command(self, minutes: int) -> Probe:  # type: ignore[override]
        """Return the probe."""
        return Probe([(None, shell_text("packages/outdated_services", MINUTES=str(minutes)))])
