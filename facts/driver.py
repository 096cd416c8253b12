"""The NVIDIA driver: what is installed and loaded, its packages, what repositories offer, what apt would do."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, shell_text
from gpunode.base.probe_output import values
from gpunode.components.driver import state as driver
from gpunode.facts.base import UNITS, NodeFact, probe_command
from gpunode.facts.families import by_manager
from gpunode.facts.families import dnf5 as by_dnf5
from gpunode.facts.families import pacman as by_pacman
from gpunode.facts.families.dnf import DRIVER_STATE
from gpunode.facts.families.zypper import DRIVER_STATE as ZYPPER_DRIVER_STATE
from gpunode.facts.packages import DPKG_ITSELF, PACKAGES
from gpunode.node.own_files.holds import PREFERENCES, UNATTENDED
from gpunode.packages.driver_packages import installed
from gpunode.packages.driver_packages.choice import Offers, parse_offers
from gpunode.packages.driver_packages.names import COMPANIONS, FOREIGN, GLOBS, KERNEL_GLOBS, OWN
from gpunode.packages.driver_packages.simulation import Simulation, parse_simulation
from gpunode.packages.families import dnf, dnf5, pacman, zypper
from gpunode.system.running_boot import RECORD

_SERVICES = ("nvidia-fabricmanager", "nvidia-persistenced")
_UNITS = tuple(f"{name}.service" for name in _SERVICES)


class Driver(NodeFact[driver.DriverState]):
    """Read every place where a driver version shows, and whether nvidia_uvm is loaded."""

    probe = shell_text(
        "components/driver/state",
        shared=(PACKAGES, UNITS.of(*_UNITS)),
        RECORD=RECORD,
        SERVICES=" ".join(_SERVICES),
        PREFERENCES=PREFERENCES,
        LOCKLIST=dnf.LOCKLIST,
        VERSIONLOCK=dnf5.LOCKLIST,
    )
    parse = staticmethod(driver.parse_driver)


# What dpkg-query is asked for wherever the driver's packages count.
ASKED = " ".join(shlex.quote(pattern) for pattern in (*GLOBS, *KERNEL_GLOBS, *COMPANIONS))


_BY_DPKG = rf"""
dpkg-query -W -f '${{db:Status-Status}} ${{db:Status-Want}} ${{Package}} ${{Version}}\n' {ASKED} |
  sed -n 's/^installed /package=/p'
{DPKG_ITSELF}
[ -f {PREFERENCES} ] && echo "preferences=$(file_base64 {PREFERENCES})"
[ -f {UNATTENDED} ] && echo "unattended=$(file_base64 {UNATTENDED})"
"""


def _parse(lines: list[str]) -> installed.DriverPackages:
    found = values(lines)
    if "zypper" in found:
        return zypper.parse_driver_packages(lines)
    if "dnf5" in found:
        return dnf5.parse_driver_packages(lines)
    if "pacman" in found:
        return pacman.parse_driver_packages(lines)
    return dnf.parse_driver_packages(lines) if "rpm" in found else installed.parse_driver_packages(lines)


class DriverPackages(NodeFact[installed.DriverPackages]):
    """Read the installed packages of driver and kernel, which are held, and the files that keep them still."""

    probe = by_manager(
        apt=_BY_DPKG,
        dnf=DRIVER_STATE,
        dnf5=by_dnf5.DRIVER_STATE,
        zypper=ZYPPER_DRIVER_STATE,
        pacman=by_pacman.DRIVER_STATE,
    )
    parse = staticmethod(_parse)


class DriverOffers(NodeFact[Offers]):
    """Read which versions of packages the repositories have, by the lists as they are."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str], sources: str = "") -> Probe:  # type: ignore[override]
        """Return the probe for `names`; `sources` (deb822) are all that apt may look at, empty: the node's own."""
        return probe_command(
            f"{shell_text('packages/families/apt_only', SOURCES=sources)}\n"
            f'offers=$(apt-cache $only madison {shlex.join(names)}); echo "apt=$?"\n'
            'printf \'%s\\n\' "$offers" | awk -F \'|\' \'NF>1{gsub(/ /, ""); print "available=" $1 " " $2}\''
        )


class DriverSimulation(NodeFact[Simulation]):
    """Read what apt would do; it only simulates, and changes nothing."""

    parse = staticmethod(parse_simulation)

    def command(self, arguments: list[str], pin: str, sources: str = "") -> Probe:  # type: ignore[override]
        """Return the probe for `apt-get install ARGUMENTS` with the preferences `pin` before the node's own.

        `sources` as for DriverOffers.
        """
        only = shell_text("packages/families/apt_only", SOURCES=sources)
        text = shell_text("packages/families/apt_simulation", PIN=pin, OWN=OWN, FOREIGN=FOREIGN)
        return probe_command(f"{only}\nset -- {shlex.join(arguments)}\n{text}")
