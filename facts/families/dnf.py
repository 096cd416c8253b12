"""How rpm and dnf are asked: what is installed and locked, what the repositories have, what dnf would do."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, shell_text
from gpunode.facts.base import NodeFact, probe_command
from gpunode.facts.families.rpm import RUNTIME_PACKAGES, SKIPPING, VERSION, RpmRepository, driver_packages, versions
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families.dnf import LOCKLIST, nevra, parse_offers, parse_simulation

DRIVER_PACKAGES = driver_packages("dnf", RUNTIME_PACKAGES, LOCKLIST=LOCKLIST)

VERSIONS = versions("dnf")

DRIVER_STATE = rf"""
rpm -qa >/dev/null; echo "rpm=$?"
{DRIVER_PACKAGES.strip()}
of_driver | sed 's/^/package=/'
locking && {{ echo locking=yes; [ -s {LOCKLIST} ] && echo "locklist=$(file_base64 {LOCKLIST})"; }}
"""


class DnfOffers(NodeFact[Offers]):
    """Read which versions of packages the repositories have, by the metadata as they are."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str], stream: str = "") -> Probe:  # type: ignore[override]
        """Return the probe for `names`, as if the module stream (MODULE:STREAM) were enabled."""
        return probe_command(
            f"{shell_text('packages/families/dnf_stream', STREAM=stream)}\n"
            f"offers=$(in_stream dnf -q -C {SKIPPING} --disableplugin=versionlock repoquery --showduplicates "
            f"--qf 'available=%{{name}} %{{epoch}}:%{{version}}-%{{release}}' {shlex.join(names)}); echo \"dnf=$?\"\n"
            "printf '%s\\n' \"$offers\" | grep ^available="
        )


class DnfSimulation(NodeFact[Simulation]):
    """Read what dnf would do; it is told to answer no, and changes nothing."""

    parse = staticmethod(parse_simulation)

    def command(  # type: ignore[override]
        self, coming: dict[str, str], going: list[str], stream: str = "", upstream: str = ""
    ) -> Probe:
        """Return the probe for installing `coming` (name -> version) and removing `going`, in a module stream.

        Of the driver's packages only those of the version `upstream` are in dnf's sight, where it is said.
        """
        lines = [f"install {nevra(name, version)}" for name, version in coming.items()]
        lines += [*(f"remove {name}" for name in going), "run"]
        text = shell_text(
            "packages/families/dnf_simulation",
            ASKED="\n".join(lines),
            UPSTREAM=upstream,
            EVR=VERSION,
            WANTED="\n".join(f"{name} {version}" for name, version in coming.items()),
        )
        return probe_command(f"{shell_text('packages/families/dnf_stream', STREAM=stream)}\n{VERSIONS}\n{text}")


class DnfRepository(RpmRepository):
    """Read how a repository of ours is trusted, and other .repo files of dnf or dnf 5 that mention its address."""

    FOLDER = "/etc/yum.repos.d"
