"""How rpm and zypper are asked: what is installed and locked, what the repositories have, what zypper would do."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, shell_text
from gpunode.facts.base import NodeFact, probe_command
from gpunode.facts.families.rpm import VERSION, RpmRepository, driver_packages
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families.zypper import LOCKS, OURS, parse_offers, parse_simulation

# zypper waits for its own lock where it is told how long; 300 seconds are what apt's lock is waited for, too.
WAITS = """
export ZYPP_LOCK_TIMEOUT="${ZYPP_LOCK_TIMEOUT:-300}"
"""

DRIVER_PACKAGES = driver_packages("zypper", LOCKS=LOCKS)

DRIVER_STATE = f"{DRIVER_PACKAGES}\n{shell_text('packages/families/zypper_state', OURS=OURS)}"


class ZypperOffers(NodeFact[Offers]):
    """Read which versions of packages the repositories have, by the metadata as they are."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`."""
        desired = shlex.join(names)
        return probe_command(
            f"{WAITS}said=$(zypper -n --xmlout --no-refresh search --details --match-exact -t package {desired} "
            '2>/dev/null); echo "status=$?"\n'
            'echo "xml=$(printf \'%s\' "$said" | to_base64 zypper)"'
        )


class ZypperSimulation(NodeFact[Simulation]):
    """Read what zypper would do, in a dry run."""

    parse = staticmethod(parse_simulation)

    def command(self, coming: dict[str, str], going: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for installing `coming` (name -> version) and removing `going`."""
        pairs = "\n".join(f"{name} {version}" for name, version in coming.items())
        text = shell_text("packages/families/zypper_simulation", COMING=pairs, GOING="\n".join(going), EVR=VERSION)
        return probe_command(f"{WAITS}{DRIVER_PACKAGES}\n{text}")


class ZypperRepository(RpmRepository):
    """Read how a repository of ours is trusted, and other .repo files of zypper's that mention its address."""

    FOLDER = "/etc/zypp/repos.d"
    # zypper takes keys from rpm's database alone, where each goes by the end of its fingerprint.
    TRUSTED = (
        'id=$(primary_keys "$KEY" | tail -c 9 | tr A-F a-f); '
        '[ -n "$id" ] && rpm -q gpg-pubkey --qf \'%{VERSION}\\n\' | grep -qE "$id\\$"'
    )
