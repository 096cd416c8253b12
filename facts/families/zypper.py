"""How rpm and zypper are asked: what is installed and locked, what the repositories have, what zypper would do."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from facts.families.rpm import VERSION, RpmRepository
from gpunode.driver_packages import COMPANIONS, FOREIGN, OWN, Offers, Simulation
from gpunode.families.zypper import LOCKS, OURS, parse_offers, parse_simulation
from gpunode.probe import Probe, shell_text
from gpunode.toolkit.state import NAMES as TOOLKIT

# zypper waits for its own lock where it is told how long; 300 seconds are what apt's lock is waited for, too.
WAITS = """
export ZYPP_LOCK_TIMEOUT="${ZYPP_LOCK_TIMEOUT:-300}"
"""

# The functions of that file, `of_driver` above all.
DRIVER_PACKAGES = shell_text(
    "families/zypper",
    LOCKS=LOCKS,
    EVR=VERSION,
    OWN=OWN,
    FOREIGN=FOREIGN,
    TOOLKIT=TOOLKIT,
    COMPANIONS=" ".join(COMPANIONS),
)

DRIVER_STATE = rf"""
rpm -qa >/dev/null; echo "rpm=$?"
echo zypper=yes
{DRIVER_PACKAGES.strip()}
of_driver | sed 's/^/package=/'
[ -s {LOCKS} ] && echo "locks=$(base64 -w0 {LOCKS})"
[ -s {OURS} ] && echo "ours=$(base64 -w0 {OURS})"
"""


class ZypperOffers(NodeFact[Offers]):
    """Read which versions of packages the repositories have, by the metadata as they are."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`."""
        asked = " ".join(shlex.quote(name) for name in names)
        return probe_command(
            f"{WAITS}said=$(zypper -n --xmlout --no-refresh search --details --match-exact -t package {asked} "
            '2>/dev/null); echo "status=$?"\n'
            'echo "xml=$(printf \'%s\' "$said" | base64 -w0)"'
        )


class ZypperSimulation(NodeFact[Simulation]):
    """Read what zypper would do, in a dry run."""

    parse = staticmethod(parse_simulation)

    def command(self, coming: dict[str, str], going: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for installing `coming` (name -> version) and removing `going`."""
        asked = " ".join(shlex.quote(f"{name}={version}") for name, version in coming.items())
        leaving = " ".join(shlex.quote(name) for name in going)
        wanted = " ".join(shlex.quote(f"{name} {version}") for name, version in coming.items())
        names = " ".join(shlex.quote(name) for name in (*coming, *going))
        # With the options of the change, which lifts the driver's locks: a file without them is bound over zypper's own
        # in a mount namespace that ends with the probe.
        return probe_command(
            f"{WAITS}{DRIVER_PACKAGES}\n"
            "folder=$(mktemp -d) || exit 0; trap 'rm -rf \"$folder\"' EXIT\n"
            f'names="$(of_driver | cut -d" " -f2 | grep -v ^kernel)"\n'
            f'[ -f {LOCKS} ] && unlocking $names {names} > "$folder/locks"\n'
            'lifted() { [ -f "$folder/locks" ] || { "$@"; return; }\n'
            f'unshare --mount sh -c \'mount --bind "$1" {LOCKS} && shift && exec "$@"\' sh "$folder/locks" "$@"; }}\n'
            f'leaving=; for each in {leaving}; do rpm -q "$each" >/dev/null && leaving="$leaving !$each"; done\n'
            "said=$(lifted zypper -n --xmlout --no-refresh install --dry-run --details --no-recommends "
            f"--auto-agree-with-licenses --oldpackage --force-resolution {asked} $leaving 2>/dev/null); "
            'echo "status=$?"\n'
            'echo "xml=$(printf \'%s\' "$said" | base64 -w0)"\n'
            f'for each in {wanted}; do echo "asked=$each"; done\n'
            f"rpm -qa --qf 'installed=%{{NAME}} {VERSION}\\n' | grep -v '^installed=gpg-pubkey '"
        )


class ZypperRepository(RpmRepository):
    """Read how a repository of ours is trusted, and other .repo files of zypper's that mention its address."""

    FOLDER = "/etc/zypp/repos.d"
    # zypper takes keys from rpm's database alone, where each goes by the end of its fingerprint.
    TRUSTED = (
        'id=$(primary_keys "$key" | tail -c 9 | tr A-F a-f); '
        '[ -n "$id" ] && rpm -q gpg-pubkey --qf \'%{VERSION}\\n\' | grep -qE "$id\\$"'
    )
