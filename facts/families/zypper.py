"""How rpm and zypper are asked: what is installed and locked, what the repositories have, what zypper would do."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from facts.families.rpm import VERSION, RpmRepository
from gpunode.driver_packages import FOREIGN, OWN, Offers, Simulation
from gpunode.families.zypper import LOCKS, OURS, parse_offers, parse_simulation
from gpunode.probe import Probe

# zypper waits for its own lock where it is told how long; 300 seconds are what apt's lock is waited for, too.
WAITS = """
export ZYPP_LOCK_TIMEOUT="${ZYPP_LOCK_TIMEOUT:-300}"
"""

# Functions: `patterns_of_locks` prints NUMBER REGULAR-EXPRESSION NAME of each lock that keeps whole packages as they
# are; `of_driver` prints WANT NAME VERSION of every package of the driver, and of kernels, where WANT is hold or
# install; `unlocking NAME...` prints the file of locks without the entries that one of the names fits, or that name a
# package of the driver: zypper takes a lock of what is not there for a ban on it.
DRIVER_PACKAGES = rf"""
patterns_of_locks() {{
  awk 'BEGIN {{RS = ""; FS = "\n"}} {{
    kind = "package"; match_type = "substring"; partly = 0; count = 0
    for (i = 1; i <= NF; i++) {{
      key = $i; sub(/:.*/, "", key); value = $i; sub(/^[^:]*: */, "", value)
      if (key == "type") kind = value
      else if (key == "match_type") match_type = value
      else if (key == "solvable_name") names[++count] = value
      else if (key == "version" || key == "repo" || key == "install_status" || key == "query_string") partly = 1
    }}
    if (kind != "package" || partly || match_type !~ /^(glob|exact|substring)$/) next
    for (i = 1; i <= count; i++) {{
      text = names[i]
      if (text !~ /^[A-Za-z0-9._+~*?-]+$/) continue
      gsub(/[.+]/, "[&]", text); gsub(/[*]/, ".*", text); gsub(/[?]/, ".", text)
      if (match_type == "substring") text = ".*" text ".*"
      print NR, "^" text "$", names[i]
    }}
  }}' {LOCKS} 2>/dev/null
}}
of_driver() {{
  {{ patterns_of_locks | sed 's/^[0-9]* /lock /'
    rpm -qa --qf 'have %{{NAME}} {VERSION}\n' | sort; }} |
    awk -v own='{OWN}' -v foreign='{FOREIGN}' '
      $1 == "lock" {{locks[++count] = $2; next}}
      ($2 ~ own && $2 !~ foreign) || $2 ~ /^kernel(-|$)/ {{
        want = "install"; for (i = 1; i <= count; i++) if ($2 ~ locks[i]) want = "hold"
        print want, $2, $3
      }}'
}}
unlocking() {{
  [ -f {LOCKS} ] || return 0
  fitting=$(patterns_of_locks | awk -v names="$*" -v own='{OWN}' -v foreign='{FOREIGN}' '
    BEGIN {{count = split(names, all, " ")}}
    $3 ~ own && $3 !~ foreign {{printf " %s ", $1; next}}
    {{for (i = 1; i <= count; i++) if (all[i] ~ $2) {{printf " %s ", $1; break}}}}')
  awk -v fitting="$fitting" 'BEGIN {{RS = ""}} index(fitting, " " NR " ") == 0 {{printf "\n%s\n\n", $0}}' {LOCKS}
}}
"""

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
