"""The packages of a node and their sources; their list is read once for several components."""

from __future__ import annotations

from gpunode.base import tables
from gpunode.base.probe import Probe, Shared, Text, shell_text
from gpunode.components.dcgm.state import GLOB as DCGM_GLOB
from gpunode.components.runtimes import packages
from gpunode.components.runtimes.packages import RUNTIMES
from gpunode.facts.base import NodeFact, probe_command
from gpunode.facts.families import by_manager, dnf, dnf5, pacman, zypper
from gpunode.packages import deb, installed_packages, trust
from gpunode.packages.driver_packages.names import GLOBS, KERNEL_GLOBS
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.packages.trust import PRIMARY_KEYS

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


class RuntimePackages(NodeFact[packages.RuntimePackages]):
    """Read which packages of container runtimes are installed, whatever source they came from."""

    probe = shell_text("components/runtimes/packages", shared=(PACKAGES,), RUNTIMES=" ".join(RUNTIMES))
    parse = staticmethod(packages.parse_runtime_packages)


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


# gpunode's own entry of the distribution's archive: the components that the node's entries lack.
SOURCE = "/etc/apt/sources.list.d/gpunode-distribution.sources"


class AptArchive(NodeFact[deb.AptArchive]):
    """Read what apt reads, by apt's own account, and the text of each file that names it."""

    probe = shell_text("packages/apt_archive", SOURCE=SOURCE)
    parse = staticmethod(deb.parse_apt_archive)


# Succeeds where dpkg was not interrupted.
_WHOLE = '[ -z "$(dpkg --audit 2>&1; ls /var/lib/dpkg/updates)" ]'
# dpkg tells of itself, so that its silence on others means that they are absent; and whether it was interrupted.
DPKG_ITSELF = (
    r"""dpkg-query -W -f 'dpkg=${db:Status-Status}\n' dpkg
"""
    + f"{_WHOLE} || echo interrupted=yes"
)


# What several ask of dpkg, asked once. $DEBS: STATUS NAME VERSION of each package that a part wants to know of, and of
# dpkg itself; $INTERRUPTED, where it was.
_DPKG = Shared(
    Text(
        r"""
set -f
DEBS=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' dpkg $NAMES_OF_DEBS)
set +f
"""
        + f"INTERRUPTED=; {_WHOLE} || INTERRUPTED=yes"
    ),
    variable="NAMES_OF_DEBS",
)


class DebPackages(NodeFact[InstalledPackages]):
    """Read the installed versions of the packages that are asked about, and whether dpkg left something half-done."""

    parse = staticmethod(deb.parse_deb_packages)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`, and for dpkg itself: silence on the others must mean that they are absent.

        + names: without an architecture behind them, and no patterns
        """
        question = _DPKG.of(*names)
        return Probe([(None, shell_text("packages/families/deb_packages", (question,), NAMES=f" {' '.join(names)} "))])


class AptRepository(NodeFact[deb.AptRepository]):
    """Read keyring, source and refresh stamp of a repository, and what else the node trusts in its place.

    Paths are those of operations.repositories.
    """

    parse = staticmethod(deb.parse_apt_repository)

    def command(  # type: ignore[override]
        self, keyring: str, source: str, stamp: str, uri: str, distrusted: list[str]
    ) -> Probe:
        """Return the probe for a repository's three files, for other lists with `uri`, and for keys in `distrusted`."""
        # Up to apt's own $(ARCH), and without the scheme: the other entry may write both differently.
        needle = uri.partition("://")[2].partition("$(")[0].rstrip("/")
        keys = "|".join(f"{identity}$" for identity in distrusted)
        text = shell_text(
            "packages/families/apt_repository", KEY=keyring, LIST=source, STAMP=stamp, NEEDLE=needle, KEYS=keys
        )
        return probe_command(f"{PRIMARY_KEYS}\n{text}")
