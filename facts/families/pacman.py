"""How pacman is asked: what is installed and ignored, what the repositories have now, and what would have to come."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.driver_packages import FOREIGN, OWN, Offers, Simulation
from gpunode.families.pacman import CONFIGURATION, IGNORED, parse_installed, parse_offers, parse_simulation
from gpunode.packages import InstalledPackages
from gpunode.probe import Probe, shell_text
from gpunode.toolkit.state import NAMES as TOOLKIT

# The repositories as they are now, beside the node's own lists: to refresh those and to install from them would be the
# partial upgrade that Arch forbids, and the next person's `pacman -S` would be one, too. Newer pacmans download as a
# user of their own, who must be able to enter the folder.
DATABASE = "/var/cache/gpunode/pacman"

# Functions: `own_lock` prints the path of pacman's lock; `lock_holder` which process has it, nothing where none does;
# a pacman keeps its lock open, so that a lock without a holder is one that was left behind.
LOCK = r"""
own_lock() { printf '%s/db.lck' "$(pacman-conf DBPath | sed 's|/*$||')"; }
lock_holder() { find /proc/[0-9]*/fd -lname "$1" 2>/dev/null | cut -d/ -f3 | head -n 1; }
lock_state() {
  lock=$(own_lock)
  if [ ! -e "$lock" ]; then echo none
  elif [ -n "$(lock_holder "$lock")" ]; then echo held
  # It may have been let go while it was looked for.
  elif [ -e "$lock" ]; then echo stale
  else echo none; fi
}
"""

# The functions of that file, `of_driver` above all.
DRIVER_PACKAGES = shell_text("families/pacman", OWN=OWN, FOREIGN=FOREIGN, TOOLKIT=TOOLKIT)

DRIVER_STATE = rf"""
{LOCK.strip()}
{DRIVER_PACKAGES.strip()}
pacman -Q pacman >/dev/null; echo "pacman=$?"
echo "lock=$(lock_state)"
of_driver | sed 's/^/package=/'
echo "configuration=$(base64 -w0 {CONFIGURATION})"
[ -f {IGNORED} ] && echo "ignored=$(base64 -w0 {IGNORED})"
"""

# Functions: `database` prints where the lists are that count: ours, where they were fetched, else the node's own.
# `asked OPTION...` asks pacman by the node's configuration without what it ignores, since what is held is needed, too.
# `needed NAME...` prints NAME VERSION of packages and of all that they need, as if nothing were installed.
# `differing NAME...` prints NAME INSTALLED OFFERED ORDER of those among them that are installed at another version,
# with vercmp's ORDER. All three need $folder, an empty folder of their own.
NEEDS = rf"""
database() {{
  for list in {DATABASE}/sync/*.db; do if [ -e "$list" ]; then printf %s {DATABASE}; return 0; fi; done
  pacman-conf DBPath
}}
asked() {{
  [ -e "$folder/pacman.conf" ] || pacman-conf | grep -v '^Ignore' > "$folder/pacman.conf"
  pacman --config "$folder/pacman.conf" --noconfirm "$@"
}}
needed() {{
  if [ ! -e "$folder/bare" ]; then
    mkdir "$folder/bare" "$folder/bare/local"; ln -s "$(database)/sync" "$folder/bare/sync"
  fi
  asked -Sp --dbpath "$folder/bare" --print-format '%n %v' "$@"
}}
differing() {{
  pacman -Q > "$folder/installed"
  [ "$#" -gt 0 ] || {{ : > "$folder/needed"; return 0; }}
  needed "$@" > "$folder/needed" || return 1
  awk 'NR == FNR {{there[$1] = $2; next}} $1 in there && there[$1] != $2 {{print $1, there[$1], $2}}' \
    "$folder/installed" "$folder/needed" |
    while read -r name mine offered; do echo "$name $mine $offered $(vercmp "$mine" "$offered")"; done
}}
"""


class PacmanPackages(NodeFact[InstalledPackages]):
    """Read the installed versions of the packages that are asked about."""

    parse = staticmethod(parse_installed)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`; pacman must find itself, so that silence means absent."""
        asked = " ".join(shlex.quote(name) for name in names)
        return probe_command(
            f"{LOCK}"
            # A name that another package provides is not installed itself.
            f'for name in {asked}; do pacman -Q "$name" | awk -v name="$name" \'$1 == name {{print "package=" $0}}\'\n'
            'done; pacman -Q pacman >/dev/null; echo "pacman=$?"; echo "lock=$(lock_state)"'
        )


class PacmanOffers(NodeFact[Offers]):
    """Read which versions of packages the repositories have."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`."""
        asked = shlex.quote(" ".join(names))
        return probe_command(
            f"{NEEDS}"
            'offers=$(pacman -Sl --dbpath "$(database)"); echo "pacman=$?"\n'
            f"printf '%s\\n' \"$offers\" | awk -v names={asked} "
            '\'BEGIN {split(names, list, " "); for (i in list) asked[list[i]] = 1} '
            '$2 in asked {print "available=" $2 " " $3}\''
        )


class PacmanSimulation(NodeFact[Simulation]):
    """Read what pacman would do, and what of the system is behind what would come; nothing is changed."""

    parse = staticmethod(parse_simulation)

    def command(self, coming: dict[str, str], going: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for installing `coming` (name -> version) and removing `going`."""
        pairs = " ".join(shlex.quote(f"{name} {version}") for name, version in coming.items())
        leaving = " ".join(shlex.quote(name) for name in going)
        return probe_command(
            f"{NEEDS}"
            "folder=$(mktemp -d) || exit 0; trap 'rm -rf \"$folder\"' EXIT\n"
            # What is there already stays, also where the repositories have moved on from it.
            "set --\n"
            f"for each in {pairs}; do\n"
            'echo "asked=$each"; [ "$(pacman -Q "${each%% *}")" = "$each" ] || set -- "$@" "${each%% *}"\n'
            "done\n"
            'if [ "$#" -gt 0 ]; then\n'
            'asked -Sp --dbpath "$(database)" --print-format "%n %v" "$@" > "$folder/comes" 2> "$folder/said"\n'
            'else : > "$folder/comes"; : > "$folder/said"; fi; echo "status=$?"\n'
            # What cannot be satisfied it tells on standard output, what is wrong else on the other.
            "sed -n 's/^:: /line=/p' \"$folder/comes\"; sed '/^warning: /d; s/^/line=/' \"$folder/said\"\n"
            "sed '/^:: /d; s/^/comes=/' \"$folder/comes\"\n"
            f'for each in {leaving}; do echo "going=$each"; done\n'
            'differing "$@" > "$folder/differing" 2> "$folder/why"; echo "needed=$?"\n'
            "sed 's/^/differs=/' \"$folder/differing\"\n"
            "sed -n 's/^:: /why=/p' \"$folder/needed\"; sed '/^warning: /d; s/^/why=/' \"$folder/why\"\n"
            "sed 's/^/installed=/' \"$folder/installed\"\n"
            '[ "$#" -eq 0 ] || pacman -Si --dbpath "$(database)" "$@" |'
            """ awk -F ' *: ' '/^Name /{name=$2} /^Conflicts With /&&$2!="None"{
              count = split($2, list, " +")
              for (i = 1; i <= count; i++) if (list[i] !~ /[<>=]/) print name, list[i]}' |
  while read -r name other; do
    # Also one that only provides what is named.
    pacman -Qq "$other" | sed "s/^/conflict=$name /"
  done"""
        )
