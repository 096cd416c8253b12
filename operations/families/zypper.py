"""zypper and rpm: SLES and openSUSE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyinfra import host
from pyinfra.api import StringCommand

from facts.driver_packages import DriverPackages
from facts.families.rpm import RpmPackages
from facts.families.zypper import DRIVER_PACKAGES, ZypperOffers, ZypperSimulation
from gpunode.driver_packages import FOREIGN, OWN, Offers, Simulation
from gpunode.driver_packages import DriverPackages as State
from gpunode.families.zypper import LOCKS, OURS, ROUNDS, LockedPackages, locked, named_too, only_at, strays
from gpunode.packages import InstalledPackages
from operations.explained import explained_command
from operations.failure import OperationRefused, known
from operations.families.family import DriverChange
from operations.families.rpm import INSTALL, TRANSACTION
from operations.families.zypper_shell import REFRESH, ZYPP
from operations.files import replace_command, write_command
from operations.keeping import UNREAD, digest_of_text
from operations.script import script_command

_FUNCTIONS = (
    DRIVER_PACKAGES.strip()
    + TRANSACTION
    + rf"""
cached_file() {{
  for packages in /var/cache/zypp/packages/* /var/cache/zypp/packages/*/*; do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}}
# zypper keeps no packages of its own accord: what a change takes away is fetched for the way back.
fetch() {{
  zypp --pkg-cache-dir "$PWD/fetched" download "$@"
  find fetched -name '*.rpm' -exec mv -t . {{}} +
  rm -rf fetched
}}
save_choices() {{ :; }}
restore_choices() {{ :; }}
# Locks are lifted for the change alone, also of packages that are to come: what $checkpoint has is put back at once,
# and by `restore` where that is not reached.
without_locks() {{
  [ -f {LOCKS} ] || {{ shift; "$@"; return; }}
  unlocking $(driver_packages | cut -d' ' -f1) $1 | stage_file {LOCKS} - && place_file {LOCKS} || return 1
  shift
  changed=0; "$@" || changed=$?
  stage_file {LOCKS} - < "$checkpoint/files$(real_file {LOCKS})" && place_file {LOCKS} || return 1
  return "$changed"
}}
install_driver() {{
  coming=''; leaving=''; told=''
  for item in $arguments; do
    case "$item" in
      *=*) coming="$coming $item"; told="$told ${{item%%=*}}";;
      *-) told="$told ${{item%-}}"; ! rpm -q "${{item%-}}" > /dev/null 2>&1 || leaving="$leaving !${{item%-}}";;
    esac
  done
  without_locks "$told" zypp install --no-recommends --auto-agree-with-licenses --oldpackage --force-resolution \
    $coming $leaving
}}
remove_driver() {{ without_locks "$*" zypp remove "$@"; }}
unneeded() {{
  zypper -n --no-refresh packages --unneeded 2>/dev/null |
    awk -F '|' '$1 ~ /^ *i/ {{gsub(/ /, "", $3); print $3}}' | sort -u
}}
remove_unneeded() {{ zypp remove "$@"; }}
"""
)

# What was killed at its work leaves the new version beside the old one: the one that came last stays.
_FINISH = rf"""
rpm -qa --qf '%{{INSTALLTIME}} %{{NAME}} %{{NAME}}-%{{VERSION}}-%{{RELEASE}}.%{{ARCH}}\n' |
  awk -v own='{OWN}' -v foreign='{FOREIGN}' '$2 ~ own && $2 !~ foreign && $2 !~ /-kmp-/' | sort -rn |
  awk 'seen[$2]++ {{print $3}}' | while read -r old; do
    rpm -e --nodeps "$old" || {{
      echo "gpunode: a change of packages was interrupted, and $old of before it cannot be removed; see zypper" \
        "verify on the node" >&2; exit 1; }}
  done
"""

OFFERED = r"""
offered() {
  zypper -n --xmlout --no-refresh search --details --match-exact -t package "$1" | grep -v 'repository="(' |
    sed -n 's/.*<solvable .* edition="\([^"]*\)".*/\1/p' | sort -r -V | while read -r full; do
    version=${full#*:}; echo "${version%-*} $full"
  done
}
losing() {
  code=0
  said=$(zypper -n --xmlout --no-refresh install --dry-run --no-recommends --auto-agree-with-licenses --oldpackage \
    "$@" 2>&1) || code=$?
  case "$code $said" in
    0\ *'<install-summary'*|10[01236]\ *'<install-summary'*|0\ *'Nothing to do'*|106\ *'Nothing to do'*) ;;
    *) untold zypper "$said"; echo "gpunode: zypper exits $code" >&2; return 1;;
  esac
  printf '%s\n' "$said" | sed -n '/<to-remove>/,/<[/]to-remove>/s/.*<solvable type="package" name="\([^"]*\)".*/\1/p'
}
install_chosen() { zypp install --no-recommends --auto-agree-with-licenses --oldpackage "$@"; }
"""


class _Zypper:
    """Change packages by zypper; the driver stays still by its locks."""

    name = "zypper"
    functions = ZYPP + _FUNCTIONS
    saved = "rpms"
    tools: tuple[str, ...] = ("ca-certificates", "curl", "gpg2")
    holding_tools: tuple[str, ...] = ()
    holding: tuple[str, ...] = (LOCKS, OURS)
    otherwise = "mend the repository"

    def state(self) -> State:
        state: State = known(host.get_fact(DriverPackages), "the list of the driver's packages")
        return state

    def held_by(self, state: State) -> Mapping[str, str]:
        # Of our own file the names were read, and not the text; no transaction writes it.
        return {LOCKS: digest_of_text(state.locks) if isinstance(state, LockedPackages) else UNREAD, OURS: UNREAD}

    def finish(self) -> Iterator[StringCommand]:
        yield explained_command(script_command(f"{ZYPP}unlocked\n{_FINISH}"))

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield explained_command(script_command(f'{ZYPP}{REFRESH}refresh "$1"', repository))

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        offers: Offers = known(host.get_fact(ZypperOffers, names=list(names)), "what the repositories offer")
        return offers

    def bound(self, change: DriverChange) -> DriverChange:
        """Name what would come at another version, until that is all: what one of them needs may be the next."""
        change = replace(change, coming={**change.coming, **change.along})
        for _ in range(ROUNDS):
            names = [name for name in strays(change.upstream, _dry_run(change)) if name not in change.coming]
            also = named_too(change.upstream, names, self.offers(names, change)) if names else {}
            if not also:
                break
            change = replace(change, coming={**change.coming, **also})
        return change

    def simulation(self, change: DriverChange) -> Simulation:
        return only_at(change.upstream, _dry_run(change))

    def variables(self, change: DriverChange) -> dict[str, str]:
        return {}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by zypper's locks; which of them are ours stands in a file of our own."""
        if not isinstance(state, LockedPackages):
            raise OperationRefused("the node's packages are not kept by zypper; nothing was changed")
        text, ours = locked(state.locks, state.ours, keep)
        # A name is ours before its lock is there, and no more after it is gone.
        steps = [(OURS, _lines({*state.ours, *ours})), (LOCKS, text), (OURS, _lines(ours))]
        there = {OURS: _lines(state.ours), LOCKS: state.locks}
        for path, wanted in steps:
            if there[path] != wanted:
                there[path] = wanted
                # As it was before the first lock: zypper makes the file itself.
                write = write_command if path == OURS else replace_command
                yield write(path, wanted) if wanted else script_command('rm -f "$path"', path=path)

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        found: InstalledPackages = known(
            host.get_fact(RpmPackages, names=list(names)), "the list of installed packages"
        )
        return found

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        asked = [argument.replace("-rc.", "~rc.") for argument in arguments]
        return explained_command(
            script_command(
                f'{ZYPP}{REFRESH}refresh "$repository"\n{OFFERED}{INSTALL}', *asked,
                repository=repository, instead=instead, manager="zypper",
            )
        )  # fmt: skip


def _dry_run(change: DriverChange) -> Simulation:
    fact = host.get_fact(ZypperSimulation, coming=dict(change.coming), going=list(change.going))
    simulation: Simulation = known(fact, "what zypper would do")
    return simulation


def _lines(names: Sequence[str] | set[str]) -> str:
    return "".join(f"{name}\n" for name in sorted(names))


ZYPPER = _Zypper()
