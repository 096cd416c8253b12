"""How rpm and dnf 5 are asked: what is installed and locked, what the repositories have, what dnf 5 would do."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, shell_text
from gpunode.facts.base import NodeFact, probe_command
from gpunode.facts.families.rpm import RUNTIME_PACKAGES, SKIPPING, VERSION, driver_packages, versions
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families.dnf import nevra, parse_offers
from gpunode.packages.families.dnf5 import LOCKLIST, parse_simulation

DRIVER_PACKAGES = driver_packages("dnf5", RUNTIME_PACKAGES, VERSIONLOCK=LOCKLIST)

VERSIONS = versions("dnf5")

DRIVER_STATE = rf"""
echo dnf5=yes
rpm -qa >/dev/null; echo "rpm=$?"
{DRIVER_PACKAGES.strip()}
of_driver | sed 's/^/package=/'
[ ! -f {LOCKLIST} ] || echo "locklist=$(file_base64 {LOCKLIST})"
"""


class Dnf5Offers(NodeFact[Offers]):
    """Read which versions of packages the repositories have, by the metadata as they are."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`; no lock hides a version from this question."""
        desired = shlex.join(names)
        return probe_command(
            f"offers=$(dnf5 -q -C {SKIPPING} repoquery "
            f"--qf 'available=%{{name}} %{{epoch}}:%{{version}}-%{{release}}\\n' {desired}); echo \"dnf=$?\"\n"
            "printf '%s\\n' \"$offers\" | grep ^available="
        )


class Dnf5Simulation(NodeFact[Simulation]):
    """Read what dnf 5 would do; it is told to answer no, and changes nothing."""

    parse = staticmethod(parse_simulation)

    def command(self, coming: dict[str, str], going: list[str], upstream: str = "") -> Probe:  # type: ignore[override]
        """Return the probe for installing `coming` (name -> version) and removing `going`.

        Of the driver's packages only those of the version `upstream` are in dnf's sight, where it is said.
        """
        text = shell_text(
            "packages/families/dnf5_simulation",
            COMING="\n".join(nevra(name, version) for name, version in coming.items()),
            GOING="\n".join(going),
            UPSTREAM=upstream,
            EVR=VERSION,
            WANTED="\n".join(f"{name} {version}" for name, version in coming.items()),
        )
        return probe_command(f"{DRIVER_PACKAGES}\n{VERSIONS}\n{text}")
