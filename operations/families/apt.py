"""apt and dpkg: Debian and Ubuntu."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from facts.deb import DebPackages
from facts.driver_packages import DriverOffers, DriverPackages, DriverSimulation
from gpunode.driver_packages import DriverPackages as State
from gpunode.driver_packages import Offers, Simulation, left_behind, pin_text
from gpunode.own_files.holds import PREFERENCES, UNATTENDED
from gpunode.packages import InstalledPackages
from gpunode.template import rendered
from operations.apt_shell import APT_GET, FINISH, HOLD, MARK, READ_LISTS, REFRESH
from operations.explained import explained_command
from operations.failure import known
from operations.families.family import DriverChange
from operations.families.removal import REFUSE_REMOVAL
from operations.files import write_command
from operations.keeping import digest_of_text
from operations.own_files import keeps
from operations.script import script_command

_FUNCTIONS = r"""
driver_packages() {
  dpkg-query -W -f '${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\n' |
    awk -v own="$own" -v foreign="$foreign" \
      '$1 ~ own && $1 !~ foreign && $4 != "not-installed" && $4 != "config-files"' | sort -u
}
saved_file() {
  for file in "$1/$2_$(printf '%s' "$3" | sed 's/:/%3a/')"_*.deb; do
    if [ -f "$file" ] && [ "$(dpkg-deb -W --showformat='${Package} ${Version}' "$file" 2>/dev/null)" = "$2 $3" ] &&
      dpkg-deb --fsys-tarfile "$file" > /dev/null 2>&1; then printf '%s' "$file"; return 0; fi
  done
  return 1
}
cached_file() { saved_file /var/cache/apt/archives "$1" "$2"; }
fetch() { apt_get download "$@"; }
is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status} ${Version}' "${1%%=*}" 2>/dev/null)" = "installed ${1#*=}" ]
}
stated() { dpkg-query -W -f '${db:Status-Status} at ${Version}' "$1" 2>/dev/null || echo absent; }
save_choices() { apt-mark showmanual > "$checkpoint/manual"; }
restore_choices() {
  apt-mark auto $(grep -vxF -f "$checkpoint/manual" "$checkpoint/names") > /dev/null 2>&1
  apt-mark manual $(grep -xF -f "$checkpoint/manual" "$checkpoint/names") > /dev/null 2>&1
  apt-mark hold $(awk '$3 == "hold" {print $1}' "$checkpoint/packages") > /dev/null 2>&1
}
release() { mark unhold "$@"; }
keep() { mark hold "$1"; }
install_driver() {
  { printf '%s\n' "$pin"; cat /etc/apt/preferences 2>/dev/null || true; } > "$checkpoint/preferences"
  only=''
  if [ -n "$sources" ]; then
    printf '%s\n' "$sources" > "$checkpoint/archive.sources"
    only="-o Dir::Etc::sourcelist=$checkpoint/archive.sources -o Dir::Etc::sourceparts=-"
  fi
  apt_get -o Dir::Etc::Preferences="$checkpoint/preferences" $only install --no-install-recommends \
    --allow-downgrades --allow-change-held-packages $arguments || return 1
  # A pin of NVIDIA's is a configuration file, which stays when its package goes, and goes on pinning.
  for item in $arguments; do
    case "$item" in nvidia-driver-pinning-*-) forget "${item%-}";; esac
  done
  # What was named only so that it comes along had come for something else: it may go with that one day.
  auto=$(cut -d' ' -f1 "$checkpoint/packages" | grep -vxF -f "$checkpoint/manual" |
    grep -vxF "$(printf '%s\n' $names)") || true
  [ -z "$auto" ] || apt-mark auto $auto > /dev/null || true
}
remove_driver() { apt_get remove "$@"; }
forget() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" != config-files ] || dpkg --purge "$1"
}
unneeded() { apt-get -s -q autoremove 2>/dev/null | sed -n 's/^Remv \([^ ]*\).*/\1/p'; }
remove_unneeded() { apt_get purge "$@"; }
finish_half() { dpkg --force-confold --configure -a > /dev/null 2>&1 < /dev/null; }
finish_first() {
  apt_get --fix-broken install && [ -z "$(dpkg --audit)" ] || return 1
  come=$(driver_packages | cut -d' ' -f1 | grep -xF "$(printf '%s\n' $names)")
  [ -z "$come" ] || apt-mark manual $come > /dev/null
  return 0
}
put_back() {
  going=''
  for package in $added; do going="$going $package-"; done
  { [ -n "$files" ] && apt_get install --no-install-recommends --allow-downgrades --allow-change-held-packages \
    $files $going; } || {
    # Without apt's judgement, which what is half-installed may not satisfy.
    [ -z "$added" ] || dpkg --force-depends --purge $added
    [ -z "$files" ] || dpkg --force-confold --install "$checkpoint/$saved"/*.deb
  }
  [ -z "$added" ] || dpkg --force-depends --purge $added > /dev/null 2>&1
}
"""

# apt takes away whatever conflicts with what is asked for, and says so in a list that nobody reads.
INSTALL = """
resolve() {
  apt-cache madison "$1" | while IFS='|' read -r _ version _; do
    version=$(echo $version); upstream=${version#*:}
    case "$2" in
      '') echo "$version"; break;;
      *~rc*) case "$upstream" in "$2"|"$2"[!0-9A-Za-z]*) echo "$version"; break;; esac;;
      *) case "$upstream" in
           "$2"~rc*|"$2"~alpha*|"$2"~beta*) continue;;
           "$2"|"$2"[!0-9A-Za-z]*) echo "$version"; break;;
         esac;;
    esac
  done
}
refresh "$repository"
chosen=''; expected=''; going=''
for wanted in "$@"; do
  case "$wanted" in *-) going="$going $wanted"; continue;; esac
  name=${wanted%%=*}; rule=''; case "$wanted" in *=*) rule=${wanted#*=};; esac
  version=$(resolve "$name" "$rule")
  if [ -z "$version" ]; then
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. Available:" >&2
    apt-cache madison "$name" | cut -d'|' -f2 | sort -u | head -n 20 >&2; exit 1
  fi
  if [ -n "$rule" ]; then chosen="$chosen $name=$version"; expected="$expected $name=$version"
  else chosen="$chosen $name"; expected="$expected $name="; fi
done
told=$(apt_get -s install --no-install-recommends --allow-downgrades $chosen $going 2>&1) || {
  printf '%s\\n' "$told" >&2; exit 1; }
refuse_removal apt-get "$*" "$going" "$(printf '%s\\n' "$told" | sed -n 's/^Remv \\([^ :]*\\).*/\\1/p')"
apt_get install --no-install-recommends --allow-downgrades $chosen $going
for wanted in $expected; do
  name=${wanted%%=*}; version=${wanted#*=}
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$name" 2>/dev/null || true)
  case "$installed" in "installed ${version:-${installed#installed }}") ;; *)
    echo "gpunode: $name should be installed at ${version:-any version} but is '$installed'" >&2; exit 1;;
  esac
done
for gone in $going; do
  ! dpkg-query -W -f '${db:Status-Status}' "${gone%-}" 2>/dev/null | grep -qx installed || {
    echo "gpunode: ${gone%-} should be gone, and apt left it installed" >&2; exit 1; }
done
"""


class _Apt:
    """Change packages by apt and dpkg."""

    name = "apt"
    functions = APT_GET + MARK + _FUNCTIONS
    saved = "debs"
    tools: tuple[str, ...] = ("ca-certificates", "curl", "gpg")
    holding_tools: tuple[str, ...] = ()
    holding: tuple[str, ...] = (PREFERENCES, UNATTENDED)
    otherwise = "mend the repository"

    def state(self) -> State:
        state: State = known(host.get_fact(DriverPackages), "the list of the driver's packages")
        return state

    def held_by(self, state: State) -> Mapping[str, str]:
        return {PREFERENCES: digest_of_text(state.preferences), UNATTENDED: digest_of_text(state.unattended)}

    def finish(self) -> Iterator[StringCommand]:
        yield explained_command(script_command(f"{APT_GET}{FINISH}"))

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield explained_command(script_command(f'{APT_GET}{READ_LISTS}{REFRESH}refresh "$1"', repository))

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        fact = host.get_fact(DriverOffers, names=list(names), sources=change.sources)
        offers: Offers = known(fact, "what the repositories offer")
        return offers

    def bound(self, change: DriverChange) -> DriverChange:
        """Name what neither comes nor goes by itself: preferences bind all that comes, at one version.

        Not what would come along: some of it is empty, and in the way of what has its files now (nvidia-smi since 560).
        """
        late = left_behind(change.along, self.simulation(change)) if change.along else {}
        return replace(change, coming={**change.coming, **late})

    def simulation(self, change: DriverChange) -> Simulation:
        arguments = [*(f"{name}={version}" for name, version in change.coming.items())]
        arguments += [f"{name}-" for name in change.going]
        fact: Any = host.get_fact(
            DriverSimulation, arguments=arguments, pin=pin_text(change.upstream), sources=change.sources
        )
        simulation: Simulation = known(fact, "what apt would do")
        return simulation

    def variables(self, change: DriverChange) -> dict[str, str]:
        return {"pin": pin_text(change.upstream), "sources": change.sources}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by apt-mark, preferences and unattended-upgrades."""
        hold_now = sorted(set(keep) - set(state.held))
        let_go = sorted(set(state.held_by_us) & set(state.held) - set(keep))
        by_version: dict[str, list[str]] = {}
        for name, version in keep.items():
            by_version.setdefault(version, []).append(name)
        # As regular expressions, of which a package's name holds these two signs at most.
        names = [name.replace(".", "[.]").replace("+", "[+]") for name in keep]
        files = {
            path: (there, rendered(template, by_version=by_version, names=names) if keep else None)
            for path, there, template in (
                (PREFERENCES, state.preferences, "driver-preferences"),
                (UNATTENDED, state.unattended, "driver-unattended-upgrades.conf"),
            )
        }
        for path, (_, text) in files.items():
            keeps(path, text)
        # What is let go is known by the file of before, which is therefore written last.
        if hold_now or let_go:
            yield explained_command(script_command(HOLD, hold=" ".join(hold_now), unhold=" ".join(let_go)))
        for path, (there, text) in files.items():
            if there != text:
                yield write_command(path, text) if text is not None else script_command('rm -f "$path"', path=path)

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        found: InstalledPackages = known(
            host.get_fact(DebPackages, names=list(names)), "the list of installed packages"
        )
        return found

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        # With a tilde: so do Debian's versions put a candidate before the release.
        asked = [argument.replace("-rc.", "~rc.") for argument in arguments]
        text = f"{APT_GET}{READ_LISTS}{REFRESH}{REFUSE_REMOVAL}{INSTALL}"
        return explained_command(script_command(text, *asked, repository=repository, instead=instead))


APT = _Apt()
