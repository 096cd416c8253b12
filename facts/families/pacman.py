"""How pacman is asked: what is installed and ignored, what the repositories have now, and what would have to come."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, shell_text
from gpunode.base.shell_file import shell_file
from gpunode.components.dcgm.state import NAMES as DCGM
from gpunode.components.runtimes.toolkit.state import NAMES as TOOLKIT
from gpunode.facts.base import NodeFact, probe_command
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.names import FOREIGN, OWN
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families.pacman import CONFIGURATION, IGNORED, parse_installed, parse_offers, parse_simulation
from gpunode.packages.installed_packages import InstalledPackages

# The repositories as they are now, beside the node's own lists: to refresh those and to install from them would be the
# partial upgrade that Arch forbids, and the next person's `pacman -S` would be one, too. Newer pacmans download as a
# user of their own, who must be able to enter the folder.
DATABASE = "/var/cache/gpunode/pacman"

LOCK = f"\n{shell_file('packages/families/pacman_lock')}\n"

# The functions of that file, `of_driver` above all.
DRIVER_PACKAGES = shell_text("packages/families/pacman", OWN=OWN, FOREIGN=FOREIGN, BESIDE=f"{TOOLKIT}|{DCGM}")

_STATE = shell_text("packages/families/pacman_state", CONFIGURATION=CONFIGURATION, IGNORED=IGNORED)
DRIVER_STATE = f"{LOCK}{DRIVER_PACKAGES}\n{_STATE}"
NEEDS = f"\n{shell_text('packages/families/pacman_needs', DATABASE=DATABASE)}\n"


class PacmanPackages(NodeFact[InstalledPackages]):
    """Read the installed versions of the packages that are asked about."""

    parse = staticmethod(parse_installed)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`; pacman must find itself, so that silence means absent."""
        return probe_command(
            f"{LOCK}"
            # A name that another package provides is not installed itself.
            f"for name in {shlex.join(names)}; do\n"
            'pacman -Q "$name" | awk -v name="$name" \'$1 == name {print "package=" $0}\'\n'
            'done; pacman -Q pacman >/dev/null; echo "pacman=$?"; echo "lock=$(lock_state)"'
        )


class PacmanOffers(NodeFact[Offers]):
    """Read which versions of packages the repositories have."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`."""
        desired = shlex.quote(" ".join(names))
        return probe_command(
            f"{NEEDS}"
            'offers=$(pacman -Sl --dbpath "$(database)"); echo "pacman=$?"\n'
            f"printf '%s\\n' \"$offers\" | awk -v names={desired} "
            '\'BEGIN {split(names, list, " "); for (i in list) asked[list[i]] = 1} '
            '$2 in asked {print "available=" $2 " " $3}\''
        )


class PacmanSimulation(NodeFact[Simulation]):
    """Read what pacman would do, and what of the system is behind what would come; nothing is changed."""

    parse = staticmethod(parse_simulation)

    def command(self, coming: dict[str, str], going: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for installing `coming` (name -> version) and removing `going`."""
        pairs = "\n".join(f"{name} {version}" for name, version in coming.items())
        text = shell_text("packages/families/pacman_simulation", COMING=pairs, GOING="\n".join(going))
        return probe_command(f"{NEEDS}{text}")
