"""pacman: Arch Linux."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyinfra import host
from pyinfra.api import StringCommand

from facts.driver_packages import DriverPackages
from facts.families.pacman import (
    DATABASE,
    DRIVER_PACKAGES,
    LOCK,
    NEEDS,
    PacmanOffers,
    PacmanPackages,
    PacmanSimulation,
)
from gpunode.driver_packages import FOREIGN, OWN, Offers, Simulation
from gpunode.driver_packages import DriverPackages as State
from gpunode.families.pacman import CONFIGURATION, IGNORED, IgnoredPackages, ignored_text, including
from gpunode.packages import InstalledPackages
from operations.failure import OperationRefused, known
from operations.families.family import DriverChange
from operations.files import replace_command, write_command
from operations.own_files import keeps
from operations.script import script_command

# A lock that nobody has open was left behind. While a pacman runs it is waited for, and never taken away.
_UNLOCKED = (
    LOCK
    + r"""
unlocked() {
  tries=0
  while :; do
    case $(lock_state) in
      none) return 0;;
      stale)
        echo "gpunode: pacman's lock $(own_lock) of $(stat -c %y "$(own_lock)") was left behind: no program has it" \
          "open; nothing was changed. Run again, or look at the end of /var/log/pacman.log and remove it" >&2
        exit 1;;
    esac
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || {
      holder=$(lock_holder "$(own_lock)")
      echo "gpunode: pacman is at work for 5 minutes: process $holder ($(cat "/proc/$holder/comm" 2>/dev/null)) has" \
        "$(own_lock); nothing was changed. Run again when it has ended" >&2; exit 1; }
    sleep 1
  done
}
"""
)

# What is installed comes from the package's file: so pacman's own lists stay as old as the system is.
_FILES = (
    NEEDS
    + rf"""
pacman_run() {{ pacman --noconfirm --noprogressbar "$@" < /dev/null; }}
saved_file() {{
  for file in "$1/$2-$3-"*.pkg.tar*; do
    case "$file" in *.sig) continue;; esac
    if [ -f "$file" ] && [ "$(pacman -Qp "$file" 2>/dev/null)" = "$2 $3" ]; then printf '%s' "$file"; return 0; fi
  done
  return 1
}}
cached_file() {{
  for packages in $(pacman-conf CacheDir | sed 's|/*$||'); do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}}
# Downloads packages and what they need, and prints the paths of those that are not there at that version.
brought() {{
  asked -Sw --noprogressbar --dbpath {DATABASE} "$@" >&2 < /dev/null || return 1
  listed=$(asked -Sp --needed --dbpath {DATABASE} --print-format '%n %v' "$@") || return 1
  printf '%s\n' "$listed" | while read -r name version; do
    [ -n "$name" ] || continue
    cached_file "$name" "$version" || {{ echo "gpunode: $name $version was fetched and is not there" >&2; exit 1; }}
    echo
  done
}}
"""
)

_REFRESH = rf"""
refresh() {{
  install -d -m 755 {DATABASE.rpartition("/")[0]} {DATABASE} {DATABASE}/sync
  ln -sfn "$(pacman-conf DBPath | sed 's|/*$||')/local" {DATABASE}/local
  if [ -z "$(lock_holder {DATABASE}/db.lck)" ]; then rm -f {DATABASE}/db.lck; fi
  pacman --noconfirm --noprogressbar -Sy --dbpath {DATABASE} --logfile /dev/null > /dev/null < /dev/null || {{
    echo "gpunode: the repositories could not be read; nothing was installed. See pacman's message above, and" \
      "/etc/pacman.d/mirrorlist" >&2; exit 1; }}
}}
"""

_FUNCTIONS = (
    DRIVER_PACKAGES.strip()
    + rf"""
driver_packages() {{
  of_driver | while read -r want name version; do
    case "$name" in linux|linux-*) continue;; esac
    if pacman -Qkq "$name" > /dev/null 2>&1; then echo "$name $version $want installed"
    else echo "$name $version $want incomplete"; fi
  done | sort -u
}}
fetch() {{
  failed=0
  for item in "$@"; do
    name=${{item%%=*}}; version=${{item#*=}}; got=''
    for lists in {DATABASE} "$(pacman-conf DBPath)"; do
      pacman -Sl --dbpath "$lists" 2>/dev/null | grep -qF " $name $version" || continue
      pacman_run -Swdd --dbpath "$lists" "$name" || continue
      if got=$(cached_file "$name" "$version"); then cp "$got" .; break; fi
    done
    [ -n "$got" ] || failed=1
  done
  return "$failed"
}}
is_installed() {{ [ "$(pacman -Q "${{1%%=*}}" 2>/dev/null)" = "${{1%%=*}} ${{1#*=}}" ]; }}
stated() {{ pacman -Q "$1" 2>/dev/null | cut -d' ' -f2 | grep . || echo absent; }}
save_choices() {{ pacman -Qeq > "$checkpoint/explicit"; }}
restore_choices() {{
  for package in $(cat "$checkpoint/names"); do
    reason=--asdeps; ! grep -qxF "$package" "$checkpoint/explicit" || reason=--asexplicit
    pacman -D "$reason" "$package" > /dev/null 2>&1
  done
}}
release() {{ :; }}
keep() {{ :; }}
install_driver() {{
  coming=''; leaving=''
  for item in $arguments; do
    case "$item" in
      *=*) is_installed "$item" || coming="$coming ${{item%%=*}}";;
      *-) ! pacman -Q "${{item%-}}" > /dev/null 2>&1 || leaving="$leaving ${{item%-}}";;
    esac
  done
  folder=$checkpoint
  new=''
  [ -z "$coming" ] || new=$(brought $coming) || return 1
  unlocked
  # What depends on it gets the other one a moment later.
  [ -z "$leaving" ] || pacman_run -Rdd $leaving || return 1
  [ -n "$new" ] || return 0
  pacman -Qq > "$checkpoint/before"
  pacman_run -U --ask 4 $new || return 1
  # What came along was not asked for by anybody.
  along=$(pacman -Qq | grep -vxF -f "$checkpoint/before" | grep -vxF "$(printf '%s\n' $coming)" || true)
  [ -z "$along" ] || pacman -D --asdeps $along > /dev/null
}}
remove_driver() {{ pacman_run -R "$@"; }}
unneeded() {{ pacman -Qdtq || true; }}
remove_unneeded() {{ pacman_run -R "$@"; }}
forget() {{ :; }}
finish_half() {{
  tries=0
  while [ "$(lock_state)" = held ] && [ "$tries" -lt 300 ]; do tries=$((tries + 1)); sleep 1; done
  if [ "$(lock_state)" = stale ]; then rm -f "$(own_lock)"; fi
}}
finish_first() {{
  [ -n "$names" ] || return 1
  for item in $names; do driver_packages | grep -q "^$item .* installed$" || return 1; done
}}
# By files alone: it needs no repository, and takes whatever an interruption left.
put_back() {{
  for package in $added; do pacman_run -Rdd "$package"; done
  [ -z "$files" ] || pacman_run -U --ask 4 --overwrite '*' $files || pacman_run -Udd --ask 4 --overwrite '*' $files
}}
"""
)

_FINISH = r"""
if [ "$(lock_state)" = stale ]; then
  echo "gpunode: pacman's lock $(own_lock) of $(stat -c %y "$(own_lock)") was left by a pacman that is gone; removed"
  rm -f "$(own_lock)"
fi
half=''
for entry in "$(pacman-conf DBPath | sed 's|/*$||')"/local/*/; do
  [ -s "$entry/desc" ] || half="$half $(basename "$entry")"
done
said=$(pacman -Dk 2>&1) || half="$half $(printf '%s\n' "$said" | tail -n 5)"
[ -z "$half" ] || {
  echo "gpunode: a change of packages was interrupted, and left half-done:$half" >&2
  echo "gpunode: remedy: upgrade the node as a whole (pacman -Syu), or reinstall what is named (pacman -S --overwrite" \
    "'*' NAME), and run again" >&2; exit 1; }
"""

_INSTALL = r"""
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
unlocked
refresh
offered() {
  pacman -Sl --dbpath "$(database)" | awk -v name="$1" '$2 == name {print $3; exit}'
}
fits() {
  upstream=${1#*:}
  case "$2" in
    '') ;;
    *rc*) case "$upstream" in "$2"|"$2"[!0-9A-Za-z]*) ;; *) return 1;; esac;;
    *) case "$upstream" in
         "$2"rc*|"$2"[._-]rc*|"$2"alpha*|"$2"beta*) return 1;;
         "$2"|"$2"[!0-9A-Za-z]*) ;;
         *) return 1;;
       esac;;
  esac
}
names=''; expected=''
for wanted in "$@"; do
  name=${wanted%%=*}; rule=''; case "$wanted" in *=*) rule=${wanted#*=};; esac
  version=$(offered "$name")
  if [ -z "$version" ] || ! fits "$version" "$rule"; then
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. A rolling release has one:" \
      "${version:-none}" >&2
    echo "gpunode: remedy: ask for that one, or have /etc/pacman.d/mirrorlist name the archive of a day that had the" \
      "other (https://archive.archlinux.org/repos/YYYY/MM/DD)" >&2; exit 1
  fi
  names="$names $name"; expected="$expected $name=$version"
done
# A driver that is held back is a choice; anything else that is behind makes this a partial upgrade.
behind=$(differing $names | awk -v own="$own" -v foreign="$foreign" -v asked=" $names " \
  '$4 == -1 && index(asked, " " $1 " ") == 0 && !($1 ~ own && $1 !~ foreign) {print "  " $1, $2, "(there is " $3 ")"}')
if [ -n "$behind" ]; then
  echo "gpunode: that would be a partial upgrade, which Arch does not support; nothing was installed. What$names" \
    "need is behind:" >&2
  printf '%s\n' "$behind" | head -n 10 >&2
  echo "gpunode: remedy: upgrade the whole node (pacman -Syu), reboot it, and run again" >&2; exit 1
fi
pacman -Qq > "$folder/before"
new=$(brought $names)
if [ -n "$new" ]; then unlocked; pacman_run -U $new; fi
# What came along was not asked for by anybody.
along=$(pacman -Qq | grep -vxF -f "$folder/before" | grep -vxF "$(printf '%s\n' $names)" || true)
if [ -n "$along" ]; then pacman -D --asdeps $along > /dev/null; fi
for wanted in $expected; do
  [ "$(pacman -Q "${wanted%%=*}" 2>/dev/null)" = "${wanted%%=*} ${wanted#*=}" ] || {
    echo "gpunode: ${wanted%%=*} should be installed at ${wanted#*=} but is not" >&2; exit 1; }
done
"""


class _Pacman:
    """Change packages by pacman; the driver stays still by IgnorePkg, in a file of our own."""

    name = "pacman"
    functions = _UNLOCKED + _FILES + _FUNCTIONS
    saved = "packages.d"
    tools: tuple[str, ...] = ("ca-certificates", "curl", "gnupg")
    holding_tools: tuple[str, ...] = ()
    # Names alone, without versions: what is put back needs no other list.
    holding: tuple[str, ...] = ()
    otherwise = (
        "a rolling release has one version of a package: have /etc/pacman.d/mirrorlist name the archive of a day that "
        "had yours (https://archive.archlinux.org/repos/YYYY/MM/DD/$repo/os/$arch), or set driver.source = 'runfile'"
    )

    def state(self) -> State:
        state: State = known(host.get_fact(DriverPackages), "the list of the driver's packages")
        return state

    def held_by(self, state: State) -> Mapping[str, str]:
        return {}

    def finish(self) -> Iterator[StringCommand]:
        # What a command prints is not shown where it succeeds.
        host.log("caution: pacman's lock was left by a pacman that is gone; taken away; what is there is checked")
        yield script_command(f"{LOCK}{_FINISH}")

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(f"{LOCK}{_REFRESH}refresh")

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        offers: Offers = known(host.get_fact(PacmanOffers, names=list(names)), "what the repositories offer")
        return offers

    def bound(self, change: DriverChange) -> DriverChange:
        """Return the change as it is: of each package there is one version."""
        return replace(change, coming={**change.coming, **change.along})

    def simulation(self, change: DriverChange) -> Simulation:
        fact = host.get_fact(PacmanSimulation, coming=dict(change.coming), going=list(change.going))
        simulation: Simulation = known(fact, "what pacman would do")
        return simulation

    def variables(self, change: DriverChange) -> dict[str, str]:
        return {}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by IgnorePkg: our own file, and the line of pacman.conf that reads it."""
        if not isinstance(state, IgnoredPackages):
            raise OperationRefused("pacman's configuration is unknown; nothing was changed")
        try:
            configuration = including(state.configuration, bool(keep))
        except ValueError as error:
            raise OperationRefused(
                f"{error}, where the driver's packages are to be held; mend it, or set driver.hold = False"
            ) from error
        text = ignored_text(keep)
        keeps(IGNORED, text if keep else None)
        # pacman refuses to work where a file is missing that is to be read: first there, and last away.
        if keep and state.ignored != text:
            yield write_command(IGNORED, text)
        if configuration != state.configuration:
            yield replace_command(CONFIGURATION, configuration)
        if not keep and state.ignored is not None:
            yield script_command('rm -f "$path"', path=IGNORED)

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        found: InstalledPackages = known(
            host.get_fact(PacmanPackages, names=list(names)), "the list of installed packages"
        )
        return found

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        return script_command(f"{_UNLOCKED}{_FILES}{_REFRESH}{_INSTALL}", *arguments, own=OWN, foreign=FOREIGN)


PACMAN = _Pacman()
