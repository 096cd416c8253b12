"""dnf and rpm: RHEL and its kin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyinfra import host
from pyinfra.api import StringCommand

from facts.driver_packages import DriverPackages
from facts.families.dnf import (
    DRIVER_PACKAGES,
    EVERY_VERSION,
    OTHER_VERSIONS,
    DnfOffers,
    DnfSimulation,
    RpmPackages,
)
from gpunode.driver_packages import DriverPackages as State
from gpunode.driver_packages import Offers, Simulation
from gpunode.families.dnf import LOCKLIST, LockedPackages, locked
from gpunode.packages import InstalledPackages
from gpunode.tables import driver_sources
from operations.failure import OperationRefused, known
from operations.families.family import DriverChange
from operations.files import write_command
from operations.script import script_command

# dnf waits for its own lock and rpm's. versionlock hides what our own change is about.
_DNF = """
dnf_run() { dnf -q -y --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False "$@"; }
"""

_FUNCTIONS = (
    r"""
stream=${stream:-} streamed=${streamed:-}
"""
    + DRIVER_PACKAGES.strip()
    + r"""
verified=''
driver_packages() {
  of_driver | awk '$2 !~ /^kernel(-|$)/ {print $2, $3, $1, "installed"}' | sort -u |
    while read -r package version want state; do
      [ -z "$verified" ] || is_whole "$package" || state=broken
      echo "$package $version $want $state"
    done
}
is_whole() { rpm -V --nodeps --noscripts --noconfig --nomtime "$1" > /dev/null 2>&1; }
evr() { rpm -q --qf '%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n' "$@" 2>/dev/null; }
# NAME=VERSION as dnf takes it: with the epoch, which rpm prints only where there is one.
nevra() { case "$2" in *:*) printf '%s' "$1-$2";; *) printf '%s' "$1-0:$2";; esac; }
saved_file() {
  for file in "$1/$2-${3#*:}".*.rpm; do
    if [ -f "$file" ] && [ "$(evr -p --nosignature "$file")" = "$3" ] && rpm -K "$file" > /dev/null 2>&1; then
      printf '%s' "$file"; return 0
    fi
  done
  return 1
}
cached_file() {
  for packages in /var/cache/dnf/*/packages; do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}
fetch() {
  asked=''
  for item in "$@"; do asked="$asked $(nevra "${item%%=*}" "${item#*=}")"; done
  dnf_run --disableplugin=versionlock download --destdir . $asked
}
is_installed() { [ "$(evr "${1%%=*}")" = "${1#*=}" ]; }
stated() { evr "$1" || echo absent; }
save_choices() {
  mkdir "$checkpoint/modules.d"
  cp -a /etc/dnf/modules.d/. "$checkpoint/modules.d/" 2>/dev/null || true
}
restore_choices() {
  [ -d "$checkpoint/modules.d" ] || return 0
  rm -rf /etc/dnf/modules.d && cp -a "$checkpoint/modules.d" /etc/dnf/modules.d
}
release() { :; }
keep() { :; }
install_driver() {
  module=${stream%%:*}
  if [ -n "$stream" ] && dnf -q -C module list "$module" > /dev/null 2>&1; then
    grep -qsx "stream=${stream#*:}" "/etc/dnf/modules.d/$module.module" || {
      dnf_run module reset "$module" && dnf_run module enable "$stream"; } || return 1
  fi
  coming=''; leaving=''
  for item in $arguments; do
    case "$item" in
      *=*) coming="$coming $(nevra "${item%%=*}" "${item#*=}")";;
      *-) ! rpm -q "${item%-}" > /dev/null 2>&1 || leaving="$leaving ${item%-}";;
    esac
  done
  others=$("""
    + f"{EVERY_VERSION} | {OTHER_VERSIONS}"
    + r""")
  dnf_run --disableplugin=versionlock ${others:+"--setopt=*.excludepkgs=$others"} \
    install --allowerasing $coming || return 1
  for item in $leaving; do
    ! rpm -q "$item" > /dev/null 2>&1 || dnf_run --disableplugin=versionlock remove "$item" || return 1
  done
}
remove_driver() { dnf_run --disableplugin=versionlock remove "$@"; }
# Without its packages, which stream is enabled is nobody's choice any more.
forget() {
  for each in $streamed; do rm -f "/etc/dnf/modules.d/$each.module"; done
}
unlocked() { :; }
# rpm lists what it has begun to unpack only when that has ended: what is put back is looked at file by file.
finish_half() { verified=yes; }
finish_first() {
  [ -n "$names" ] || return 1
  for item in $names; do rpm -q "$item" > /dev/null 2>&1 || return 1; done
  [ -z "$(driver_packages | cut -d' ' -f1 | uniq -d)" ]
}
# By rpm alone: it needs no repository, and takes whatever an interruption left. What is installed once more at the
# version that is there must not run the scripts of a removal: they come last, and take the module away again.
put_back() {
  restore_choices
  [ -z "$added" ] || rpm -e --nodeps $added
  moved=''; again=''
  while read -r package version _; do
    file=$(saved_file "$checkpoint/$saved" "$package" "$version") || continue
    there=$(evr "$package") || there=''
    case " $(echo $there) " in
      "  ") again="$again $file";;
      " $version ") is_whole "$package" || again="$again $file";;
      *" $version "*) again="$again $file"
        for other in $there; do
          [ "$other" = "$version" ] || rpm -e --nodeps "$package-${other#*:}"
        done;;
      *) moved="$moved $file";;
    esac
  done < "$checkpoint/packages"
  [ -z "$moved" ] || rpm -U --oldpackage --nodeps $moved
  [ -z "$again" ] || rpm -U --oldpackage --replacepkgs --nodeps --nopreun --nopostun $again
  # Once is enough: what still differs then, somebody else changes.
  verified=''
}
"""
)

_FINISH = """
dnf_run --disableplugin=versionlock remove --duplicates || {
  echo "gpunode: a change of packages was interrupted, and what it began cannot be finished; see dnf check" >&2
  exit 1; }
"""

_REFRESH = """
dnf -q -y makecache --refresh || {
  echo "gpunode: the repositories could not be read; nothing was installed. See dnf's message above" >&2; exit 1; }
"""

_INSTALL = r"""
evr() { rpm -q --qf '%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n' "$1" 2>/dev/null; }
# Newest first; what stands behind the version that was asked for must not go on with it.
offered() {
  dnf -q -C repoquery --showduplicates --qf '%{version} %{epoch}:%{version}-%{release}' "$1" | sort -r -V
}
resolve() {
  offered "$1" | while read -r version full; do
    case "$2" in
      '') echo "$full"; break;;
      *~rc*) case "$version" in "$2"|"$2"[!0-9A-Za-z]*) echo "$full"; break;; esac;;
      *) case "$version" in
           "$2"~rc*|"$2"~alpha*|"$2"~beta*) continue;;
           "$2"|"$2"[!0-9A-Za-z]*) echo "$full"; break;;
         esac;;
    esac
  done
}
chosen=''; expected=''; going=''
for wanted in "$@"; do
  case "$wanted" in *-) going="$going ${wanted%-}"; continue;; esac
  name=${wanted%%=*}; rule=''; case "$wanted" in *=*) rule=${wanted#*=};; esac
  version=$(resolve "$name" "$rule")
  if [ -z "$version" ]; then
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. Available:" >&2
    offered "$name" | cut -d' ' -f2 | head -n 20 >&2; exit 1
  fi
  chosen="$chosen $name-$version"
  expected="$expected $name=${rule:+${version#0:}}"
done
if [ -z "$going" ]; then dnf_run install $chosen
else
  # rpm takes a package's configuration away with it, or puts it aside: docker's own file is to stay.
  kept=/etc/docker/daemon.json
  keep() { [ ! -e "$kept.gpunode-kept" ] || [ -e "$kept" ] || cp -p "$kept.gpunode-kept" "$kept"; }
  if [ -e "$kept" ]; then cp -p "$kept" "$kept.gpunode-kept"; fi
  trap 'keep; rm -f "$kept.gpunode-kept"' EXIT
  # One transaction, which only dnf's shell makes of both; its status says nothing.
  commands=$(mktemp)
  { [ -z "$chosen" ] || echo "install $chosen"; echo "remove $going"; echo run; } > "$commands"
  dnf_run shell "$commands" || true
  rm -f "$commands"
  for gone in $going; do
    ! rpm -q "$gone" > /dev/null 2>&1 || {
      echo "gpunode: $gone should be gone, and dnf left it installed; its words are above" >&2; exit 1; }
  done
fi
for wanted in $expected; do
  name=${wanted%%=*}; version=${wanted#*=}; there=$(evr "$name" || true)
  [ -n "$there" ] && [ "$there" = "${version:-$there}" ] || {
    echo "gpunode: $name should be installed at ${version:-any version} but is '${there:-absent}'" >&2; exit 1; }
done
"""


class _Dnf:
    """Change packages by dnf; the driver stays still by versionlock."""

    name = "dnf"
    functions = _DNF + _FUNCTIONS
    saved = "rpms"
    # curl is there, as the package curl or curl-minimal. `dnf download` saves what a change takes away.
    tools: tuple[str, ...] = ("ca-certificates", "dnf-plugins-core", "gnupg2")
    holding_tools: tuple[str, ...] = ("python3-dnf-plugin-versionlock",)
    holding: tuple[str, ...] = (LOCKLIST,)

    def state(self) -> State:
        state: State = known(host.get_fact(DriverPackages), "the list of the driver's packages")
        return state

    def finish(self) -> Iterator[StringCommand]:
        yield script_command(f"{_DNF}{_FINISH}")

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(_REFRESH)

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        fact = host.get_fact(DnfOffers, names=list(names), stream=change.stream)
        offers: Offers = known(fact, "what the repositories offer")
        return offers

    def simulation(self, change: DriverChange) -> Simulation:
        # What only goes is looked for at no version.
        upstream = change.upstream if change.coming else ""
        fact = host.get_fact(
            DnfSimulation, coming=dict(change.coming), going=list(change.going), stream=change.stream, upstream=upstream
        )
        simulation: Simulation = known(fact, "what dnf would do")
        return simulation

    def variables(self, change: DriverChange) -> dict[str, str]:
        streams = [name for row in driver_sources() if row.family == self.name for name in row.stream.values()]
        return {"stream": change.stream, "streamed": " ".join(sorted({name.partition(":")[0] for name in streams}))}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by our part of versionlock's list; the plugin comes with what else dnf needs before the driver."""
        if not isinstance(state, LockedPackages) or (state.locklist is None and keep):
            raise OperationRefused(
                "dnf's plugin versionlock is missing or switched off, and without it nothing keeps the driver's "
                "packages as they are; install python3-dnf-plugin-versionlock and set enabled = 1 in "
                "/etc/dnf/plugins/versionlock.conf, or set driver.hold = False"
            )
        there = state.locklist or ""
        text = locked(there, keep)
        if text != there:
            yield write_command(LOCKLIST, text)

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        found: InstalledPackages = known(
            host.get_fact(RpmPackages, names=list(names)), "the list of installed packages"
        )
        return found

    def install(self, arguments: Sequence[str], repository: str) -> StringCommand:
        asked = [argument.replace("-rc.", "~rc.") for argument in arguments]
        return script_command(f"{_DNF}{_REFRESH}{_INSTALL}", *asked)


DNF = _Dnf()
